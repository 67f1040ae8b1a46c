"""Measuring side by side: who takes turns when, and what is reported; never how fast this machine is."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compress.artifact import Artifact, Form, Signature, sha256_of
from compress.data.base import Array
from compress.progress import Quiet
from compress.runners.base import RunOptions
from compress.runners.process import RunnerProcess
from compress.runners.timing import Timing
from evaluators import harness
from evaluators.harness import Subject, Timings, measure, turns

SHORT = Timing(min_seconds=0, min_runs=4, least_runs=4, warmup_runs=1, warmup_seconds=0)


class Heard(Quiet):
    """Keeps lines and warnings."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(text)


def relu(path: Path, batch: int | str = "batch") -> Artifact:
    """Write ``y = max(x, 0)``."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return Artifact(Form.ONNX, path, Signature(()), sha256_of(path))


def ones(signature: Signature, batch: int) -> dict[str, Array]:
    return {spec.name: np.ones((batch, 4), np.float32) for spec in signature.inputs}


def run(
    subjects: list[Subject], batches: tuple[int, ...] = (1, 8), rounds: int = 3, **more: object
) -> dict[str, Timings]:
    settings = {"progress": Quiet(), "seed": 0, "timing": SHORT, "options": RunOptions(1), "make_inputs": ones} | more
    return measure(subjects, batches, rounds, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("kept", [True, False])
def test_every_subject_has_its_runs_of_every_round(tmp_path: Path, kept: bool) -> None:
    subjects = [Subject("a", relu(tmp_path / "a.onnx")), Subject("b", relu(tmp_path / "b.onnx"))]
    found = run(subjects, rounds=2, keep_loaded=kept)
    assert list(found) == ["a", "b"]
    for name in found:
        assert {b: [len(r) for r in rounds] for b, rounds in found[name].rounds.items()} == {1: [4] * 2, 8: [4] * 2}
        assert found[name].failure is None
        assert found[name].facts["device"] == "cpu"
        memory = found[name].memory
        assert memory is not None and memory.file == pytest.approx(subjects[0].artifact.size_bytes / 1e6)


@pytest.mark.skipif(sys.platform == "win32", reason="looks at POSIX process states")
def test_one_runs_while_the_others_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    states = []
    alive: list[RunnerProcess] = []
    opened, timed = RunnerProcess.__init__, RunnerProcess.time

    def open_seen(self: RunnerProcess, *args: object, **kwargs: object) -> None:
        opened(self, *args, **kwargs)  # type: ignore[arg-type]
        alive.append(self)

    def time_seen(self: RunnerProcess, *args: object) -> list[float]:
        states.append([psutil.Process(p._pid).status() == psutil.STATUS_STOPPED for p in alive if p is not self])
        return timed(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(RunnerProcess, "__init__", open_seen)
    monkeypatch.setattr(RunnerProcess, "time", time_seen)
    run([Subject(n, relu(tmp_path / f"{n}.onnx")) for n in "abc"], (1,), rounds=2)
    assert states == [[], [True], [True, True]] + [[True, True]] * 6


def test_a_fixed_batch_is_measured_at_its_size_alone(tmp_path: Path) -> None:
    found = run([Subject("fixed", relu(tmp_path / "f.onnx", 8)), Subject("other", relu(tmp_path / "o.onnx", 3))])
    assert list(found["fixed"].rounds) == [8]
    assert found["fixed"].skipped == {1: "the file fixes the batch size at 8"}
    assert found["other"].failure is not None
    assert found["other"].failure.startswith("The file fixes the batch size at 3, and only 1, 8 was asked for.")


def test_a_subject_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    broken = relu(tmp_path / "broken.onnx")
    broken.path.write_bytes(b"nonsense")
    heard = Heard()
    found = run([Subject("good", relu(tmp_path / "a.onnx")), Subject("broken", broken)], progress=heard)
    assert found["good"].failure is None
    assert len(found["good"].rounds[1]) == 3
    assert found["broken"].rounds == {}
    assert found["broken"].memory is None
    assert heard.lines == [f"broken could not be measured: {found['broken'].failure}"]
    assert "broken.onnx" in heard.lines[0]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_subject_killed_half_way_has_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = RunnerProcess.time
    calls: Counter[str] = Counter()

    def killing(self: RunnerProcess, *args: object) -> list[float]:
        name = self.artifact.path.name
        calls[name] += 1
        if name == "b.onnx" and calls[name] == 3:
            os.kill(self._pid, signal.SIGKILL)
        return timed(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(RunnerProcess, "time", killing)
    found = run([Subject("a", relu(tmp_path / "a.onnx")), Subject("b", relu(tmp_path / "b.onnx"))], (1,))
    assert len(found["a"].rounds[1]) == 3
    assert found["b"].rounds == {}
    assert "signal 9" in str(found["b"].failure)
    assert calls["b.onnx"] == 3


def test_scarce_memory_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "available_mb", lambda: 500.0)
    heard = Heard()
    assert not harness._all_fit([Subject(n, relu(tmp_path / f"{n}.onnx")) for n in "ab"], heard)
    assert heard.lines == [
        "All 2 models together may need 0.8 GB and 0.5 GB are free, so each is loaded afresh for every turn; measuring "
        "takes longer."
    ]


@pytest.mark.parametrize("subjects", [1, 2, 3, 4, 5, 6])
def test_turns_are_balanced(subjects: int) -> None:
    rounds = subjects * (2 if subjects % 2 else 1)
    orders = turns(subjects, rounds, seed=1)
    assert all(sorted(order) == list(range(subjects)) for order in orders)
    places = Counter((who, place) for order in orders for place, who in enumerate(order))
    assert set(places.values()) == {rounds // subjects}
    follows = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert len(set(follows.values())) <= 1
    assert len(follows) == subjects * (subjects - 1)


def test_turns_depend_on_the_seed_alone() -> None:
    assert turns(4, 7, seed=2) == turns(4, 7, seed=2)
    assert len({tuple(turns(4, 7, seed)) for seed in range(10)}) > 5
    assert turns(2, 4, seed=0) in ([(0, 1), (1, 0)] * 2, [(1, 0), (0, 1)] * 2)
