from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from compress.errors import StageError
from compress.report import read_results, write_report


def test_three_files_and_nothing_else(samples: ModuleType, tmp_path: Path) -> None:
    files = write_report(samples.labelled(), tmp_path)
    assert [f.name for f in files] == ["results.json", "report.html", "report.md"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "report.md", "results.json"]
    assert all(f.stat().st_size > 1000 for f in files)
    assert read_results(tmp_path) == samples.labelled()


def test_a_second_report_replaces_the_first(samples: ModuleType, tmp_path: Path) -> None:
    write_report(samples.labelled(), tmp_path)
    write_report(samples.nothing_keeps_budget(), tmp_path)
    assert "No variant keeps the budget." in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert len(list(tmp_path.iterdir())) == 3


def test_results_that_cannot_be_written_leave_the_old_report(samples: ModuleType, tmp_path: Path) -> None:
    write_report(samples.labelled(), tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    broken = samples.change(samples.labelled(), "int8", metric=samples.top1(float("inf"), 0.1))
    with pytest.raises(StageError):
        write_report(broken, tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_importing_the_report_loads_no_heavy_library() -> None:
    code = (
        "import sys, compress.report, compress.report.text, compress.report.html\n"
        "print(sorted({'torch', 'plotly', 'jinja2', 'onnx', 'onnxruntime', 'openvino', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
