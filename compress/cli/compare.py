"""``compress compare``: two artifacts measured in turn, or two variants of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compress.cli import options as o

if TYPE_CHECKING:
    from compress.results import Entry


def compare(
    a: Annotated[str, typer.Argument(help="Model file, or a finished run: FOLDER or FOLDER:variant.", metavar="A")],
    b: Annotated[str, typer.Argument(help="The same.", metavar="B")],
    data: o.Data = None,
    code: o.Code = None,
    input: o.Input = None,
    preprocess: o.Preprocess = None,
    metric: o.Metric = None,
    batch: Annotated[str | None, typer.Option(help="Batch sizes to measure.  [1,8]")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of measuring.  [7]")] = None,
    threads: o.Threads = None,
    trust_pickle: o.Trust = False,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Compare A and B: accuracy or closeness, speed, size and memory.

    Two model files are measured now, in turn. Two finished runs are read: FOLDER means its best variant.
    """
    from compress.errors import UsageError

    runs = [_entry_of_run(text) for text in (a, b)]
    if all(runs):
        _print(runs[0], runs[1], (a, b), as_json, same_run=a.partition(":")[0] == b.partition(":")[0])  # type: ignore[arg-type]
        return
    if any(runs):
        raise UsageError("compress compare takes two model files, or two finished runs, not one of each.")
    given = {
        "data": data,
        "code": code,
        "input": input or None,
        "preprocess": preprocess,
        "metric": metric,
        "batch": o.numbers(batch, "--batch"),
        "rounds": rounds,
        "threads": threads,
        "trust_pickle": trust_pickle,
    }
    _measure(a, b, {k: v for k, v in given.items() if v is not None}, as_json=as_json, verbose=verbose)


def _measure(a: str, b: str, settings: dict[str, Any], *, as_json: bool, verbose: bool) -> None:
    import json

    from compress.cli.console import ConsoleProgress
    from compress.recipe import make_recipe

    recipes = [make_recipe({**settings, "model": model}) for model in (a, b)]
    from compress.pipeline.single import compare_artifacts
    from evaluators.statistics import inside_noise

    found = compare_artifacts(recipes[0], recipes[1], ConsoleProgress(verbose=verbose, quiet=as_json))
    if as_json:
        document = {
            "a": found.a.model_dump(mode="json"),
            "b": found.b.model_dump(mode="json"),
            "speedup_b_over_a": [r.model_dump(mode="json") for r in found.speedups],
        }
        typer.echo(json.dumps(document, indent=2))
        return
    _print(found.a, found.b, (a, b), False, same_run=True)
    for ratio in found.speedups:
        noise = "; no difference shown" if inside_noise(ratio) else ""
        typer.echo(
            f"At batch {ratio.batch} B runs at {ratio.ratio:.2f}× the speed of A "
            f"(95 % interval {ratio.low:.2f}–{ratio.high:.2f}{noise})."
        )


def _print(a: Entry, b: Entry, titles: tuple[str, str], as_json: bool, *, same_run: bool) -> None:
    import json

    from rich.console import Console

    from compress.report.text import comparison

    if as_json:
        typer.echo(json.dumps({"a": a.model_dump(mode="json"), "b": b.model_dump(mode="json")}, indent=2))
        return
    Console(highlight=False).print(comparison(a, b, titles, same_run=same_run))


def _entry_of_run(text: str) -> Entry | None:
    """Return the entry that ``FOLDER[:variant]`` means; None where it names no finished run."""
    from compress.errors import UsageError
    from compress.report import read_results

    folder, _, name = (text, "", "") if Path(text).exists() else text.rpartition(":")
    file = Path(folder) if Path(folder).name == "results.json" else Path(folder) / "results.json"
    if not folder or not file.is_file():
        return None
    results = read_results(file)
    wanted = name or results.best or results.variants[0].name
    for entry in (results.baseline, *results.variants):
        if entry.name == wanted:
            return entry
    raise UsageError(f"{folder} has no variant '{wanted}'.", f"It has {', '.join(v.name for v in results.variants)}.")
