"""Metrics against well-known implementations, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchmetrics.functional as reference
from scipy import stats

from compress.data.base import Batch
from compress.errors import CompressError, DataError, ModelError, UsageError
from evaluators.metrics import METRICS, Scores, metric_for

RNG = np.random.default_rng(0)


def score(name: str, outputs: np.ndarray, targets: np.ndarray, views: int = 1, size: int = 7) -> Scores:
    """Score in batches of ``size``."""
    tally = METRICS[name].start()
    n = len(targets)
    by_view = outputs.reshape(views, n, *outputs.shape[1:])
    for start in range(0, n, size):
        part = np.concatenate([view[start : start + size] for view in by_view])
        count = len(targets[start : start + size])
        tally.update({"out": part}, Batch({}, targets[start : start + size], count, views))
    return tally.finish()


@pytest.mark.parametrize("classes", [3, 12])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_top1_and_top5_are_torchmetrics(classes: int, dtype: type) -> None:
    logits = RNG.standard_normal((100, classes)).astype(dtype)
    targets = RNG.integers(0, classes, 100)
    found = score("top1", logits, targets)

    def accuracy(k: int) -> float:
        wanted = reference.classification.multiclass_accuracy(
            torch.from_numpy(logits.astype(np.float32)), torch.from_numpy(targets), classes, average="micro", top_k=k
        )
        return 100 * float(wanted)

    assert found.value == pytest.approx(accuracy(1))
    assert found.samples == 100
    assert found.extra == ({"top5": pytest.approx(accuracy(5))} if classes >= 10 else {})


def test_a_tie_counts_for_the_class_argmax_names() -> None:
    assert score("top1", np.zeros((4, 3)), np.array([0, 1, 2, 0])).value == 50


@pytest.mark.parametrize(
    ("name", "wanted"), [("mse", reference.mean_squared_error), ("mae", reference.mean_absolute_error)]
)
@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3)])
def test_errors_are_torchmetrics(name: str, wanted: object, shape: tuple[int, ...]) -> None:
    outputs, targets = RNG.standard_normal((2, *shape))
    value = float(wanted(torch.from_numpy(outputs), torch.from_numpy(targets)))  # type: ignore[operator]
    assert score(name, outputs, targets).value == pytest.approx(value)
    assert not METRICS[name].higher_is_better


def test_rmse_is_the_root_and_a_column_compares_with_a_vector() -> None:
    targets = RNG.standard_normal(50)
    assert score("rmse", (targets + 3)[:, None], targets).value == pytest.approx(3)


def test_correlations_of_scores() -> None:
    outputs, targets = RNG.standard_normal(60), RNG.integers(0, 6, 60).astype(float)
    assert score("spearman", outputs, targets).value == pytest.approx(100 * stats.spearmanr(outputs, targets).statistic)
    assert score("pearson", outputs[:, None], targets).value == pytest.approx(
        100 * stats.pearsonr(outputs, targets).statistic
    )


def test_pairs_are_scored_by_cosine_across_batches() -> None:
    first, second = RNG.standard_normal((2, 40, 8))
    cosine = np.sum(first * second, 1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    targets = cosine * 5 + RNG.normal(0, 0.1, 40)
    found = score("spearman", np.concatenate([first, second]), targets, views=2)
    assert found.value == pytest.approx(100 * stats.spearmanr(cosine, targets).statistic)
    assert found.unit == "points"


def test_a_model_that_gives_everything_one_score_says_nothing() -> None:
    assert score("spearman", np.ones(20), np.arange(20.0)).value == 0
    assert score("pearson", np.ones((40, 4)), np.arange(20.0), views=2).value == 0


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "error", "message"),
    [
        ("top1", np.ones((4, 3)), np.array([0, 1, 3, 2]), DataError, "label 3, but output out has only 3 classes"),
        ("top1", np.ones((4, 3)), np.array([0, -1, 1, 2]), DataError, "label -1"),
        ("top1", np.ones((4, 1)), np.array([0, 1, 0, 1]), ModelError, r"out is \[4, 1\]"),
        ("top1", np.ones((4, 3, 2, 2)), np.array([0, 1, 0, 1]), ModelError, r"shape \[N, classes\]"),
        ("top1", np.ones((4, 3)), np.array([0.5, 1, 0, 1]), DataError, "one class index a sample"),
        ("mse", np.ones((4, 3)), np.ones(4), ModelError, r"shape \[4, 3\], the labels \[4\]"),
    ],
)
def test_what_doesnt_fit_is_named(
    name: str, outputs: np.ndarray, targets: np.ndarray, error: type[CompressError], message: str
) -> None:
    with pytest.raises(error, match=message):
        score(name, outputs, targets)


def test_token_embeddings_arent_sentence_embeddings() -> None:
    with pytest.raises(ModelError, match=r"one embedding a text; the model gives out \[8, 5, 3\]"):
        score("spearman", np.ones((8, 5, 3)), np.ones(4), views=2)


def test_no_labels() -> None:
    with pytest.raises(DataError, match="no labels"):
        METRICS["top1"].start().update({"out": np.ones((2, 3))}, Batch({}, None, 2))


def test_defaults_and_unknown_names() -> None:
    names = {task: metric_for(None, task).name for task in ("classification", "regression", "pairs")}  # type: ignore[union-attr]
    assert names == {"classification": "top1", "regression": "rmse", "pairs": "spearman"}
    assert metric_for(None, "unknown") is None
    assert metric_for("mae", "classification") is METRICS["mae"]
    with pytest.raises(UsageError, match="no metric 'banana'") as caught:
        metric_for("banana", "classification")
    assert "top1" in caught.value.hint
