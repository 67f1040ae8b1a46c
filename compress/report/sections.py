"""The parts of a report that are plain lists: the model, the environment, the files, the recipe."""

from __future__ import annotations

from typing import Any

from compress.report import cells, lookup, numbers
from compress.results import Results

_WORDS = {"cpu": "CPU", "cpus": "CPUs", "gb": "(GB)", "mb": "(MB)", "ms": "(ms)"}


def pairs(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return free-form facts as label and text."""
    return [(_label(k), numbers.fact(v)) for k, v in values.items()]


def model_facts(results: Results) -> list[tuple[str, str]]:
    """Return what is known of the model as label and text."""
    model = results.model
    return [
        ("File", numbers.clean(model.path)),
        ("Kind", numbers.clean(model.kind)),
        *([("Architecture", numbers.clean(model.code))] if model.code else []),
        ("SHA-256", numbers.clean(model.sha256)),
        ("Parameters", "not measured — they could not be counted" if model.parameters is None
         else numbers.count(model.parameters)),
        ("Multiply-accumulates of one sample", "not measured — they could not be counted" if model.macs is None
         else numbers.count(model.macs)),
        ("Subnormal weights", f"{model.subnormal_weights:,}"),
        ("Inputs", "; ".join(map(numbers.clean, model.inputs)) or "none"),
        ("Outputs", "; ".join(map(numbers.clean, model.outputs)) or "none"),
    ]  # fmt: skip


def files(results: Results) -> list[tuple[str, str]]:
    """Return the files of the run folder with what each one is."""
    found = []
    for entry in results.variants:
        if entry.artifact is None:
            found.append((numbers.clean(entry.name), f"no file — {lookup.reason(entry, 'artifact')}"))
        else:
            what = f"variant {numbers.clean(entry.name)}, {cells.size(entry).main}"
            found.append((numbers.clean(entry.artifact), what))
    if results.best is not None:
        found.append(("artifacts/best.*", f"the recommended file: {numbers.clean(results.best)}"))
    return [
        *found,
        ("results.json", "all numbers of this report, for programs"),
        ("report.md", "this report in short, for comments in a review"),
        ("recipe.yaml", "the settings that reproduce the run"),
        ("manifest.json", "size and SHA-256 of every file"),
    ]


def recipe_text(results: Results) -> str:
    """Return the recipe as YAML."""
    import yaml

    text: str = yaml.safe_dump(results.recipe, sort_keys=False, allow_unicode=True)
    return text


def _label(key: str) -> str:
    return " ".join(_WORDS.get(word, word) for word in numbers.clean(key).split("_"))
