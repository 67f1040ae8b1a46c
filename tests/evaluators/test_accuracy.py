"""Scoring a data set in a real process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.artifact import Artifact, Form, Signature, sha256_of
from compress.data.base import Array, Batch
from compress.errors import DataError
from compress.progress import Quiet
from compress.runners.base import RunOptions
from compress.runners.process import RunnerProcess
from evaluators.accuracy import evaluate, metric_result
from evaluators.metrics import METRICS, Scores

RNG = np.random.default_rng(0)
X = RNG.standard_normal((23, 4)).astype(np.float32)
WEIGHT = RNG.standard_normal((4, 3)).astype(np.float32)
LABELS = np.argmax(X @ WEIGHT, 1)
LABELS[:5] = (LABELS[:5] + 1) % 3


@dataclasses.dataclass
class Samples:
    """Samples in memory; with two views all first, then all second ones."""

    x: Array
    targets: Array | None
    views: int = 1
    name: str = "samples"
    task: str = "classification"
    labelled: bool = True
    classes: tuple[str, ...] | None = None
    dynamic_axes: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.x) // self.views

    def batches(self, size: int, limit: int | None = None) -> Iterator[Batch]:
        n = min(len(self), limit or len(self))
        by_view = self.x.reshape(self.views, len(self), 4)
        for start in range(0, n, size):
            stop = min(n, start + size)
            rows = np.concatenate([view[start:stop] for view in by_view])
            targets = None if self.targets is None else self.targets[start:stop]
            yield Batch({"0": rows}, targets, stop - start, self.views)


def linear(path: Path, batch: int | str = "batch", weight: np.ndarray = WEIGHT) -> Artifact:
    """Write ``y = x @ weight``."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, weight.shape[1]])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return Artifact(Form.ONNX, path, Signature(()), sha256_of(path))


@pytest.mark.parametrize("batch", ["batch", 1, 4, 64])
def test_the_score_doesnt_depend_on_the_batch(tmp_path: Path, batch: int | str) -> None:
    seen: list[int] = []
    with RunnerProcess(linear(tmp_path / "m.onnx", batch), RunOptions(1)) as process:
        found = evaluate(
            process,
            Samples(X, LABELS),
            METRICS["top1"],
            Quiet(),
            batch_size=10,
            observer=lambda outputs: seen.append(len(outputs["y"])),
        )
    assert found is not None
    assert found.value == pytest.approx(100 * 18 / 23)
    assert found.samples == sum(seen) == 23
    assert found.per_sample is not None
    np.testing.assert_array_equal(found.per_sample[:, 0], [0] * 5 + [1] * 18)


@pytest.mark.parametrize("batch", ["batch", 3])
def test_pairs_through_a_fixed_batch(tmp_path: Path, batch: int | str) -> None:
    with RunnerProcess(linear(tmp_path / "m.onnx", batch), RunOptions(1)) as process:
        pairs = Samples(X[:22], np.arange(11.0), views=2, task="pairs")
        found = evaluate(process, pairs, METRICS["spearman"], Quiet(), batch_size=5)
    first, second = (X[:22] @ WEIGHT).reshape(2, 11, 3)
    cosine = np.sum(first * second, 1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    assert found is not None and found.per_sample is not None
    np.testing.assert_allclose(found.per_sample[:, 0], cosine, rtol=1e-5)


def test_limits_and_empty_sets(tmp_path: Path) -> None:
    with RunnerProcess(linear(tmp_path / "m.onnx"), RunOptions(1)) as process:
        found = evaluate(process, Samples(X, LABELS), METRICS["top1"], Quiet(), batch_size=4, limit=6)
        assert found is not None
        assert (found.samples, found.value) == (6, pytest.approx(100 / 6))
        assert evaluate(process, Samples(X, None), None, Quiet()) is None
        with pytest.raises(DataError, match="samples holds no samples"):
            evaluate(process, Samples(X[:0], LABELS[:0]), METRICS["top1"], Quiet())


def scores(correct: np.ndarray) -> Scores:
    """Top-1 scores of a model that is right where ``correct``."""
    values = np.stack([correct, correct, np.zeros(len(correct))], 1).astype(np.float64)
    summarize = METRICS["top1"].summarize
    return Scores("top1", "%", True, summarize(values), len(values), values, summarize)


def test_a_drop_and_its_interval() -> None:
    base = np.arange(1000) % 10 != 0
    variant = base.copy()
    variant[1:201:10] = False
    found = metric_result(scores(variant), scores(base))
    assert (found.value, found.drop, found.samples) == (pytest.approx(88), pytest.approx(2), 1000)
    # 20 of 1000 changed: a standard error of √(0.02·0.98/1000) = 0.44 points.
    assert found.drop_low == pytest.approx(2 - 1.96 * 0.443, abs=0.15)
    assert found.drop_high == pytest.approx(2 + 1.96 * 0.443, abs=0.15)


def test_the_baseline_itself_and_an_equal_variant() -> None:
    base = scores(np.arange(50) % 3 == 0)
    assert metric_result(base, None).drop is None
    found = metric_result(base, base)
    assert (found.drop, found.drop_low, found.drop_high) == (0, 0, 0)


def test_where_lower_is_better_a_rise_is_a_drop() -> None:
    def errors(scale: float) -> Scores:
        values = np.full((20, 2), scale)
        return Scores("mae", "label units", False, scale, 20, values, METRICS["mae"].summarize)

    found = metric_result(errors(3.0), errors(2.0))
    assert (found.drop, found.drop_low, found.drop_high) == (1, 1, 1)


def test_a_users_metric_has_a_drop_without_an_interval() -> None:
    found = metric_result(Scores("own", "", False, 4.0, 9), Scores("own", "", False, 3.0, 9))
    assert (found.drop, found.drop_low) == (1, None)


def test_scores_of_other_samples_dont_pair() -> None:
    with pytest.raises(ValueError, match="don't pair"):
        metric_result(scores(np.ones(5)), scores(np.ones(6)))
