"""The documents stay true: they name every field, flag and target, their links lead somewhere, their code runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer
import yaml

from compress.artifact import Artifact, Difference, Form, sha256_of
from compress.data.base import Batch
from compress.passes.table import PASSES
from compress.progress import Quiet
from compress.recipe import Recipe, load_recipe, parse_variant
from compress.runners.base import Runner, RunOptions
from compress.runners.onnx_file import read_signature
from compress.runners.targets import TARGETS
from compress.stage import Context, Pass

ROOT = Path(__file__).resolve().parents[1]
RECIPE = (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DOCUMENTS = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("models/*/*.md")})


def row(name: str) -> list[str]:
    """Return the cells of the recipe's row for a field."""
    found = re.findall(rf"^\| `{name}` \|(.*)\|$", RECIPE, re.MULTILINE)
    assert len(found) == 1, f"docs/recipe.md has {len(found)} rows for {name}"
    return [cell.strip() for cell in found[0].split(" | ")]


@pytest.mark.parametrize("name", Recipe.model_fields)
def test_every_field_of_a_recipe_has_its_row_with_flag_and_default(name: str) -> None:
    flag, default, meaning = row(name)
    field = Recipe.model_fields[name]
    assert ("MODEL" if name == "model" else f"--{name.replace('_', '-')}") in flag
    assert len(meaning) > 10
    if isinstance(field.default, bool):
        assert default == str(field.default).lower()
    elif isinstance(field.default, (int, float)):
        assert default == str(field.default)
    elif isinstance(field.default, str) and field.default:
        assert default == f"`{field.default}`"


@pytest.mark.parametrize("name", PASSES)
def test_every_setting_of_a_pass_has_its_row(name: str) -> None:
    table = RECIPE.partition("Settings of the passes:")[2].partition("\n## ")[0]
    mine: dict[str, list[str]] = {}
    for owner, setting in re.findall(r"^\| (?:`(\w+)` )?\| `(\w+)` \|", table, re.MULTILINE):
        mine.setdefault(owner or list(mine)[-1], []).append(setting)
    assert mine[name] == list(PASSES[name].model_fields)


def test_readme_names_every_target_and_exit_code() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)` \| \w+ ", README.partition("## Targets")[2], re.MULTILINE)) == set(TARGETS)
    codes = re.findall(r"^\| (\d+) \|", README.partition("## Exit codes")[2].partition("\n## ")[0], re.MULTILINE)
    assert codes == ["0", "2", "3", "4", "5", "130"]


def test_readme_names_every_flag_of_run_and_no_other() -> None:
    from compress.cli.app import app

    group: Any = typer.main.get_command(app)
    options = {o for p in group.commands["run"].params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")}
    table = README.partition("## Flags of `compress run`")[2].partition("\nOther commands")[0]
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", table))
    assert options - {"--help", "-h"} == named


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = [t.partition("#")[0] for t in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in t]
    assert [t for t in targets if t and not (document.parent / t).exists()] == []


def test_the_recipes_in_the_document_and_the_example_are_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", RECIPE, re.DOTALL)
    example = load_recipe(ROOT / "models" / "digits" / "recipe.yaml")
    shown = yaml.safe_load(blocks[0])
    assert (shown["max_drop"], tuple(shown["batch"])) == (example.max_drop, example.batch)
    assert Recipe.model_validate({"model": "m.pt", **yaml.safe_load(blocks[1])}).preprocess == {
        "preset": "imagenet",
        "resize": 232,
        "crop": 224,
    }
    assert load_recipe(ROOT / "models" / "minilm" / "recipe.yaml", {"model": "m"}).code.endswith("sentence_encoder")


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "int8"])
def test_short_names_are_what_the_document_says(name: str) -> None:
    says = re.search(rf"^\| `{name}` \| (.*?) \|$", RECIPE, re.MULTILINE)
    assert says is not None
    chain = says[1].partition("`")[2].partition("`")[0]
    assert parse_variant(name).passes == parse_variant(f"{name}={chain}").passes


def test_hooks_and_check_script_run_the_same() -> None:
    script = (ROOT / "scripts" / "check.sh").read_text(encoding="utf-8")
    ran = re.findall(r'^"\$venv/bin/(ruff|mypy)"(.*)$', script, re.MULTILINE)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    assert [tool + rest for tool, rest in ran] == [hook["entry"] for hook in hooks]


@pytest.fixture
def examples() -> dict[str, Any]:
    """What the code blocks of CONTRIBUTING define."""
    names: dict[str, Any] = {"__name__": "examples"}
    for block in re.findall(r"```python\n(.*?)```", CONTRIBUTING, re.DOTALL):
        exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    return names


@pytest.fixture
def linear(tmp_path: Path) -> Artifact:
    """y = x·w with w = (1/3, 2)."""
    value = onnx.helper.make_tensor_value_info
    weight = onnx.numpy_helper.from_array(np.array([[1 / 3], [2]], dtype=np.float32), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", 1, ["batch", 2])],
        [value("y", 1, ["batch", 1])],
        [weight],
    )
    path = tmp_path / "linear.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9), path)
    return Artifact(Form.ONNX, path, read_signature(path), sha256_of(path))


def test_the_pass_and_the_runner_of_contributing_work(
    examples: Mapping[str, Any], linear: Artifact, tmp_path: Path
) -> None:
    runner: type[Runner] = examples["ReferenceRunner"]
    x = np.array([[3, 0], [3, 1]], dtype=np.float32)

    def outputs(artifact: Artifact) -> list[float]:
        with runner(artifact, RunOptions(threads=1)) as opened:
            assert opened.bind({"x": x})() is None
            return [float(v) for v in opened.infer({"x": x})["y"].ravel()]

    def verify(child: Artifact, parent: Artifact) -> Difference:
        worst = max(abs(a - b) for a, b in zip(outputs(child), outputs(parent), strict=True))
        return Difference(sqnr_db=0, cosine=1, max_abs=worst, top1_agreement=None, samples=2)

    work = tmp_path / "work"
    work.mkdir()
    step: Pass = examples["RoundWeights"](bits=2)
    made = step.run(linear, Context(TARGETS["ort-cpu"], work, Quiet(), verify))
    assert outputs(linear) == [1.0, 3.0]
    assert outputs(made) == [1.125, 3.125]  # 1/3 to two bits of mantissa is 3/8
    assert made.lineage[-1].config == {"bits": 2}
    assert made.lineage[-1].difference is not None
    assert made.lineage[-1].difference.max_abs == 0.125
    assert made.lineage[-1].notes == ("1 weights rounded to 2 bits.",)


def test_the_metric_of_contributing_works(examples: Mapping[str, Any]) -> None:
    tally = examples["worst"].start()
    targets = np.zeros((2, 1), dtype=np.float32)
    for largest in (1.0, 4.0):
        output = np.array([[0.5], [-largest]], dtype=np.float32)
        tally.update({"y": output}, Batch(inputs={}, targets=targets, count=2))
    assert tally.finish().value == 4.0
