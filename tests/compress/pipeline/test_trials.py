"""Candidates tried on the target: their drop, their speed from given times, and their profile."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compress.artifact import Artifact, Form, sha256_of
from compress.data.base import Batch
from compress.errors import StageError, UsageError
from compress.pipeline import trials
from compress.pipeline.inputs import Selected
from compress.pipeline.samples import Bound, TimingInputs
from compress.pipeline.trials import PROFILED, TargetTrials
from compress.progress import Quiet
from compress.recipe import Recipe
from compress.runners.base import RunOptions
from compress.runners.onnx_file import read_signature
from compress.runners.table import open_runner
from compress.runners.targets import TARGETS
from compress.stage import Context
from evaluators.harness import Timings
from evaluators.metrics import metric_for

OPTIONS = RunOptions(1)


@dataclasses.dataclass(frozen=True)
class _Images:
    """Sixty-four images with labels."""

    labels: np.ndarray
    images: np.ndarray
    name = "images"
    labelled = True
    classes = None
    task = "classification"
    dynamic_axes = {}  # noqa: RUF012 - never changed

    def __len__(self):
        return len(self.labels)

    def batches(self, size, limit=None):
        for start in range(0, min(len(self), limit or len(self)), size):
            part = slice(start, min(start + size, limit or len(self)))
            yield Batch({"0": self.images[part]}, self.labels[part], len(self.labels[part]))

    def subset(self, samples, seed):
        return self

    def fingerprint(self):
        return "images-1"


class _Process:
    """A runner in this process: quicker to start, and its answers are the same."""

    def __init__(self, artifact, options, log=None):
        self.artifact = artifact
        self._runner = open_runner(artifact, options)
        self.signature = self._runner.signature

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._runner.close()

    def infer(self, inputs):
        return self._runner.infer(inputs)

    def profile(self, inputs, runs):
        return self._runner.profile(inputs, runs)


@pytest.fixture
def images(small_data):
    held = np.load(small_data)
    return _Images(held["y"], held["x"])


@pytest.fixture
def made(small_model, images, tmp_path, monkeypatch):
    """Make trials; ``metric`` and whether labels may be used decide how drops are measured."""
    monkeypatch.setattr(trials, "RunnerProcess", _Process)

    def make(
        *, target="ort-cpu", metric="top1", labelled=True, selection=True, judged_on=256, batches=(1, 4), data=images
    ):
        artifact = Artifact(Form.ONNX, small_model, read_signature(small_model), sha256_of(small_model))
        bound = Bound(data, artifact.signature)
        (tmp_path / "work").mkdir(exist_ok=True)
        context = Context(TARGETS[target], tmp_path / "work", Quiet(), lambda child, parent: None)
        return TargetTrials(
            context,
            Recipe(model=str(small_model)),
            OPTIONS,
            batches,
            TimingInputs(bound),
            Selected(bound, labelled, "64 samples of images") if selection else None,
            metric_for(metric, "unknown"),
            artifact,
            judged_on,
        )

    return make


@pytest.fixture
def shifted(small_model, tmp_path):
    """The small model with one class preferred, so that some decisions change."""
    model = onnx.load(small_model)
    bias = next(i for i in model.graph.initializer if i.name == "b3")
    values = numpy_helper.to_array(bias) + np.array([0.3, 0, 0, 0], np.float32)
    bias.CopyFrom(numpy_helper.from_array(values, "b3"))
    onnx.save(model, tmp_path / "shifted.onnx")
    return tmp_path / "shifted.onnx"


def _outputs(path, images):
    artifact = Artifact(Form.ONNX, path, read_signature(path), "")
    with _Process(artifact, OPTIONS) as process:
        return process.infer({"x": images.images})["y"].astype(np.float64)


@pytest.mark.parametrize(("metric", "labelled"), [("top1", True), (None, False), ("top1", False)])
def test_the_drop_is_what_the_float_model_s_own_probabilities_expect(
    made, shifted, images, small_model, metric, labelled
):
    found = made(metric=metric, labelled=labelled).drop(shifted)
    logits = _outputs(small_model, images)
    likely = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    rows, before, after = np.arange(64), logits.argmax(1), _outputs(shifted, images).argmax(1)
    assert 2 < (before != after).sum() < 40
    lost = 100 * (likely[rows, before] - likely[rows, after])
    assert found.value == pytest.approx(lost.mean(), rel=1e-4)
    assert found.error == pytest.approx(lost.std() / 8, rel=1e-4)
    # A label says +1, -1 or nothing where the decision changed; 256 of them scatter by this.
    each = np.where(before != after, likely[rows, before] + likely[rows, after], 0).mean() - (lost.mean() / 100) ** 2
    assert found.scatter == pytest.approx(100 * np.sqrt(each / 256), rel=1e-3)
    assert (found.samples, found.what, found.source) == (64, "points of top1 (expected)", "64 samples of images")


def test_the_float_file_itself_loses_nothing(made, small_model):
    found = made().drop(small_model)
    assert (found.value, found.error, found.scatter) == (0.0, 0.0, 0.0)


def test_without_an_evaluation_the_scatter_is_that_of_the_samples_themselves(made, shifted):
    assert made(judged_on=None).drop(shifted).scatter == pytest.approx(2 * made().drop(shifted).scatter)


def test_other_metrics_are_scored_by_the_labels(made, shifted, small_model, images):
    ours = _outputs(small_model, images)
    labels = ours + np.random.default_rng(0).normal(0, 0.5, ours.shape)
    tried = made(metric="mse", data=dataclasses.replace(images, labels=labels.astype(np.float32)))
    found = tried.drop(shifted)
    more = np.square(_outputs(shifted, images) - labels).mean(1) - np.square(ours - labels).mean(1)
    assert found.value == pytest.approx(more.mean(), rel=1e-4)  # lower is better: what is added is lost
    assert found.error == pytest.approx(more.std() / 8, rel=0.15)  # from a bootstrap
    assert found.scatter == pytest.approx(found.error * np.sqrt(64 / 256))
    assert (found.samples, found.what) == (64, "label units² of mse")
    assert tried.drop(shifted) == found


def test_without_samples_no_drop_can_be_asked_for(made, small_model):
    with pytest.raises(UsageError, match="no samples to choose layers by"):
        made(selection=False).drop(small_model)


def test_a_profile_for_each_batch_size_by_the_file_s_own_names(made, small_model):
    found = made(batches=(1, 4)).profile(small_model)
    assert [(p.batch, p.runs) for p in found] == [(1, PROFILED), (4, PROFILED)]
    for profile in found:
        assert [o.layers for o in profile.ops if o.kind == "compute"] == [["stem"], ["body"], ["head"]]


def test_openvino_s_profile_goes_by_the_onnx_file_s_names_too(made, small_model, tmp_path):
    (found,) = made(target="openvino", batches=(2,)).profile(small_model)
    assert [o.layers[0] for o in found.ops if o.kind == "compute"] == ["stem", "body", "head"]
    assert {o.precision for o in found.ops if o.kind == "compute"} == {"fp32"}
    assert [p.name for p in (tmp_path / "work").glob("trial-*")] == []  # nothing of a candidate is kept


def _timed(monkeypatch, base, other, failure=None):
    asked = {}

    def measure(subjects, batches, rounds, options, inputs, progress, seed, *, timing):
        asked.update({s.name: s.artifact for s in subjects})
        times = {"base": base, "other": other}
        return {
            s.name: Timings(
                s.name, {} if failure else times[s.name], 0.1, {}, None, failure if s.name == "other" else None
            )
            for s in subjects
        }

    monkeypatch.setattr(trials, "measure", measure)
    return asked


def test_speed_is_the_mean_ratio_of_the_fastest_rounds(made, small_model, shifted, monkeypatch):
    asked = _timed(
        monkeypatch,
        {1: ((4.0, 4.0, 90.0), (5.0, 5.0, 5.0)), 4: ((30.0,), (12.0,))},
        {1: ((2.0, 8.0, 2.0), (3.0, 3.0, 3.0)), 4: ((6.0,), (50.0,))},
    )
    # Medians of the fastest rounds: 4 against 2 and 12 against 6.
    assert made().speed(small_model, shifted) == pytest.approx(2.0)
    assert (asked["base"].sha256, asked["other"].sha256) == (sha256_of(small_model), sha256_of(shifted))
    _timed(monkeypatch, {1: ((8.0,),), 4: ((1.0,),)}, {1: ((1.0,),), 4: ((2.0,),)})
    assert made().speed(small_model, shifted) == pytest.approx(2.0)  # √(8 · ½): geometric


def test_a_candidate_that_cannot_be_timed_is_said(made, small_model, shifted, monkeypatch):
    _timed(monkeypatch, {}, {}, "It crashed.")
    with pytest.raises(StageError, match="could not be timed on ort-cpu: It crashed"):
        made().speed(small_model, shifted)


def test_what_decides_the_outcome_is_in_the_key(made):
    key = made().key()
    assert json.loads(json.dumps(key)) == key
    assert key[:4] == [["images-1", True], "top1", 256, [1, 4]]
    others = [made(labelled=False), made(selection=False), made(judged_on=None), made(batches=(1,)), made(metric="mse")]
    keys = [json.dumps(t.key()) for t in [made(), *others]]
    assert len(set(keys)) == len(keys)
    assert made().target == "ort-cpu"
