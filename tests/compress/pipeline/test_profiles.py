"""Profiles of a run's artifacts: kept in the run folder, and a reason where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from compress.artifact import Artifact, Form, sha256_of
from compress.errors import StageError
from compress.pipeline import profiles
from compress.pipeline.profiles import NO_PROFILER, RUNS, profile_all
from compress.pipeline.samples import Probes, TimingInputs
from compress.progress import Quiet
from compress.results import OpTime, Profile
from compress.runners.base import RunOptions
from compress.runners.onnx_file import read_signature
from compress.store import RunFolder
from evaluators.harness import Subject

FOUND = Profile(
    batch=2,
    runs=RUNS,
    total_ms=1.5,
    ops=[OpTime(name="a", op="Conv", kind="compute", precision="int8", layers=["stem"], ms=1.5)],
)


class _Process:
    """Stands in for a process: what it makes of an artifact goes by the name of its file."""

    asked: list[tuple[str, int, int]] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, artifact, options, log):
        self.artifact, self.signature = artifact, artifact.signature
        if artifact.path.stem == "unloadable":
            raise StageError("It does not load.")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def profile(self, inputs, runs):
        self.asked.append((self.artifact.path.stem, len(inputs["x"]), runs))
        if self.artifact.path.stem == "failing":
            raise StageError("The profiler gave up.", "Nothing to be done.")
        return None if self.artifact.path.stem == "without" else FOUND


@pytest.fixture
def process(monkeypatch):
    monkeypatch.setattr(profiles, "RunnerProcess", _Process)
    _Process.asked = []
    return _Process


@pytest.fixture
def subject(small_model):
    def make(stem, sha="0"):
        return Subject(stem, Artifact(Form.ONNX, small_model.with_stem(stem), read_signature(small_model), sha))

    return make


@pytest.fixture
def store(tmp_path):
    with RunFolder(tmp_path / "run", "recipe") as folder:
        yield folder


def _all(subjects, store, batch=2, options=RunOptions(1)):  # noqa: B008 - a frozen dataclass
    signature = subjects[0].artifact.signature
    return profile_all(subjects, TimingInputs(Probes(signature, 0)), batch, options, store, Quiet())


def test_a_profile_that_fails_has_its_reason_and_the_others_go_on(process, subject, store):
    names = ["failing", "good", "unloadable", "without", "last"]
    found = _all([subject(n) for n in names], store)
    assert list(found) == names
    assert {n: p.found for n, p in found.items() if p.found} == {"good": FOUND, "last": FOUND}
    assert {n: p.reason for n, p in found.items()} == {
        "failing": "The profiler gave up. Nothing to be done.",
        "good": "",
        "unloadable": "It does not load.",
        "without": NO_PROFILER,
        "last": "",
    }
    assert process.asked == [(n, 2, RUNS) for n in ("failing", "good", "without", "last")]


def test_what_was_profiled_once_is_read_from_the_run_folder(process, subject, store):
    first = _all([subject("good"), subject("failing")], store)
    assert len(process.asked) == 2
    assert _all([subject("good"), subject("failing")], store) == first
    assert len(process.asked) == 2
    # Another file, batch size or number of threads is another profile.
    _all([subject("good", "1"), subject("failing")], store)
    _all([subject("good"), subject("failing")], store, 3)
    _all([subject("good"), subject("failing")], store, 2, RunOptions(2))
    assert len(process.asked) == 8


def test_inputs_that_cannot_be_made_are_a_reason_too(process, subject, store, monkeypatch):
    def none(signature, batch):
        raise StageError("There are no samples.")

    found = profile_all([subject("good")], none, 2, RunOptions(1), store, Quiet())
    assert found["good"].found is None
    assert found["good"].reason == "There are no samples."


def test_a_real_file_in_a_process_of_its_own(small_model, store):
    artifact = Artifact(Form.ONNX, small_model, read_signature(small_model), sha256_of(small_model))
    (found,) = _all([Subject("float", artifact)], store).values()
    assert found.reason == ""
    assert (found.found.batch, found.found.runs) == (2, RUNS)
    assert [o.layers for o in found.found.ops if o.kind == "compute"] == [["stem"], ["body"], ["head"]]
    assert found.found.total_ms == pytest.approx(float(np.sum([o.ms for o in found.found.ops])))
    assert (store.path / "logs" / "profile-float.txt").is_file()


def test_a_damaged_file_is_a_reason_and_no_failure(tmp_path, small_model, store):
    (tmp_path / "cut.onnx").write_bytes(small_model.read_bytes()[:200])
    artifact = Artifact(Form.ONNX, tmp_path / "cut.onnx", read_signature(small_model), "0")
    (found,) = _all([Subject("cut", artifact)], store).values()
    assert found.found is None
    assert "cut.onnx is no ONNX file, or a damaged or incomplete one" in found.reason
