"""The rules of the layout: which way imports go, how long a file may be, and what importing it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("compress", "exporters", "evaluators")
LAYERS = (
    {"compress.cli"},
    {"compress.pipeline"},
    {"compress.passes", "exporters", "evaluators", "compress.report"},
    {"compress.runners", "compress.load", "compress.data", "compress.store", "compress.stage", "compress.difference"},
    {
        "compress.recipe",
        "compress.artifact",
        "compress.results",
        "compress.errors",
        "compress.progress",
        "compress.atomic",
        "compress",
    },
)
"""Components from the top down. One may import from its own layer and from those below, and never from those above."""
SIBLINGS = LAYERS[2]
"""Components of one layer that must not import one another either."""
HEAVY = (
    "torch",
    "onnx",
    "onnx_ir",
    "onnxscript",
    "onnxruntime",
    "openvino",
    "plotly",
    "scipy",
    "torchmetrics",
    "pandas",
)
LONGEST = 400

FILES = sorted(f for package in PACKAGES for f in (ROOT / package).rglob("*.py"))


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(f) for f in FILES}


def component(module: str) -> str:
    """Return the part of the layout a module belongs to: ``compress.passes`` for ``compress.passes.int8.graph``."""
    top, *rest = module.split(".")
    return f"compress.{rest[0]}" if top == "compress" and rest else top


def imported(source: str, module: str, *, package: bool) -> set[str]:
    """Return the project's modules that ``source`` imports anywhere in it, annotations' imports included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = len(parts) - node.level + (1 if package else 0)
                base = ".".join([*parts[:kept], *filter(None, [node.module])])
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names}
    return {name for name in found if name.split(".")[0] in PACKAGES}


def wrong_imports(source: str, module: str, *, package: bool = False) -> list[str]:
    """Return a sentence for every import that goes against the layers."""
    importer = component(module)
    level = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    wrong = []
    for target in sorted(imported(source, module, package=package)):
        other = component(target)
        if other == importer:
            continue
        if level[other] < level[importer]:
            wrong.append(f"{module} imports {target}, which lies above it")
        elif {importer, other} <= SIBLINGS:
            wrong.append(f"{module} imports {target}, its sibling")
    return wrong


def test_every_component_has_a_layer() -> None:
    assert {component(m) for m in MODULES} - {name for layer in LAYERS for name in layer} == set()


def test_imports_go_down() -> None:
    wrong = []
    for file in FILES:
        if module_of(file) != "compress":  # the package itself names what it offers, lazily
            source = file.read_text(encoding="utf-8")
            wrong += wrong_imports(source, module_of(file), package=file.name == "__init__.py")
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("compress.runners.base", "from compress.passes import table"),
        ("compress.runners.base", "def f():\n    import compress.pipeline.plan"),
        ("compress.pipeline.plan", "from compress import cli"),
        ("compress.passes.prune", "from evaluators.harness import Harness"),
        ("exporters.onnx", "import evaluators"),
        ("compress.report.html", "from ..passes.table import PASSES"),
        (
            "compress.recipe",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from compress.store import RunFolder",
        ),
    ],
)
def test_the_rule_catches_an_import_that_goes_up_or_sideways(module: str, source: str) -> None:
    assert len(wrong_imports(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "compress.passes.int8.quantize",
            "from compress.passes.observe import observe\nfrom compress.load import spec",
        ),
        ("compress.stage", "from compress.data.base import Dataset\nfrom compress.runners.targets import Target"),
        ("compress.cli.app", "import compress\nfrom compress.pipeline import run\nimport torch"),
        ("compress.report.html", "from .numbers import times"),
    ],
)
def test_the_rule_lets_the_others_pass(module: str, source: str) -> None:
    assert wrong_imports(source, module) == []


def test_no_file_is_long() -> None:
    lengths = {module_of(f): len(f.read_text(encoding="utf-8").splitlines()) for f in FILES}
    assert {m: n for m, n in lengths.items() if n > LONGEST} == {}


def test_no_module_is_called_utils() -> None:
    assert [m for m in MODULES if m.rpartition(".")[2] in ("utils", "util", "helpers", "common", "misc")] == []


@pytest.mark.parametrize(
    "code",
    [
        "import compress",
        "import compress.cli",
        "run('--help')",
        "run('run', '--help')",
        "run('--version')",
        "run('run', 'model.pt', '--max-drop', 'banana')",
    ],
)
def test_importing_and_help_load_nothing_heavy(code: str) -> None:
    script = f"""
import sys
def run(*arguments):
    from compress.cli import main
    sys.argv = ["compress", *arguments]
    try:
        main()
    except SystemExit:
        pass
{code}
print("loaded:", *[name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]
