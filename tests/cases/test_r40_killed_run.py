"""R40, babysor/MockingBird#267: a killed run leaves nothing half-written, and the same command goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnxruntime
import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


def _command(small_model: Path, small_data: Path) -> list[str]:
    options = ["--target", "openvino", "--variants", "fp32,int8", "--batch", "1", "--rounds", "3", "--out", "r"]
    start = [sys.executable, "-c", "from compress.cli import main; main()", "run"]
    return [*start, str(small_model), "--data", str(small_data), *options]


def _wait(process: subprocess.Popen, condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the run ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _log(folder: Path) -> str:
    file = folder / "log.txt"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _made(folder: Path) -> dict[str, int]:
    """Return every finished stage and step, with the time it was written."""
    files = (*folder.glob("stages/*/stage.json"), *folder.glob("steps/*.json"))
    return {str(p): p.stat().st_mtime_ns for p in files}


def test_kill_at_three_moments_then_the_same_command(small_model, small_data, tmp_path):
    folder = tmp_path / "r"
    command = _command(small_model, small_data)
    moments = [
        lambda: any(folder.glob("stages/.part-*")),  # in the middle of a stage
        lambda: "int8: scoring" in _log(folder).rpartition("Going on")[2],
        lambda: "Measuring speed" in _log(folder).rpartition("Going on")[2],
    ]
    kept: dict[str, int] = {}
    for moment in moments:
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _wait(process, moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = _made(folder)
        assert kept.items() <= now.items(), "a finished stage was made again"
        kept = now
        # Nothing under a final name is half-written, and no result claims to be one.
        assert not (folder / "results.json").exists()
        for record in folder.glob("stages/*/stage.json"):
            json.loads(record.read_text(encoding="utf-8"))
            for model in record.parent.glob("*.onnx"):
                onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Going on with r" in done.stderr
    assert kept.items() <= _made(folder).items()
    assert not [p for p in folder.rglob("*") if p.name.startswith((".part-", ".tmp")) or p.suffix == ".tmp"]
    assert {"report.html", "results.json", "manifest.json"} <= {p.name for p in folder.iterdir()}


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_exits_130_and_says_how_to_go_on(small_model, small_data, tmp_path, sent):
    folder = tmp_path / "r"
    process = subprocess.Popen(
        _command(small_model, small_data), cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    _wait(process, lambda: "scoring" in _log(folder))
    process.send_signal(sent)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert not (folder / "results.json").exists()
