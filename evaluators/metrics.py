"""Scores on labelled data: the table of metrics, each a value per sample and a way to sum them up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from compress.data.base import Array, Batch
from compress.errors import DataError, ModelError, UsageError

Floats = npt.NDArray[np.float64]

TOP5_CLASSES = 10
"""Classes from which on top-5 says something."""


@dataclasses.dataclass(frozen=True)
class Scores:
    """A metric's outcome on a data set.

    Attributes:
        name: The metric's name.
        unit: ``%``, ``points``, or the label's own.
        higher_is_better: Its direction.
        value: The score.
        samples: Samples scored.
        per_sample: Values ``[samples, k]`` that :attr:`summarize` makes the score of; None where a metric has none.
        summarize: Makes the score of the values of any samples; None where ``per_sample`` is.
        extra: Further scores from the same pass.
    """

    name: str
    unit: str
    higher_is_better: bool
    value: float
    samples: int
    per_sample: Floats | None = None
    summarize: Callable[[Floats], float] | None = None
    extra: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Tally(Protocol):
    """Takes in outputs batch by batch."""

    def update(self, outputs: Mapping[str, Array], batch: Batch) -> None:
        """Take in the outputs of one batch, cut to its rows."""

    def finish(self) -> Scores:
        """Return the score over all batches."""


class Metric(Protocol):
    """A metric, as evaluation sees it."""

    @property
    def name(self) -> str:
        """As the user says it."""

    def start(self) -> Tally:
        """Return an empty tally."""


@dataclasses.dataclass(frozen=True)
class SampleMetric:
    """A metric that is summed up from a few numbers a sample, so that it streams and can be resampled.

    Attributes:
        name: As the user says it.
        unit: ``%``, ``points`` or the label's own.
        higher_is_better: Its direction.
        score: Takes outputs and batch, returns float64 ``[count, k]``.
        summarize: Makes the score of ``[n, k]``.
        further: Makes further scores of ``[n, k]``.
    """

    name: str
    unit: str
    higher_is_better: bool
    score: Callable[[Mapping[str, Array], Batch], Floats]
    summarize: Callable[[Floats], float]
    further: Callable[[Floats], Mapping[str, float]] = lambda values: {}

    def start(self) -> Tally:
        """Return an empty tally."""
        return _SampleTally(self)


class _SampleTally:
    def __init__(self, metric: SampleMetric) -> None:
        self._metric = metric
        self._values: list[Floats] = []

    def update(self, outputs: Mapping[str, Array], batch: Batch) -> None:
        self._values.append(self._metric.score(outputs, batch))

    def finish(self) -> Scores:
        m, values = self._metric, np.concatenate(self._values)
        return Scores(
            m.name, m.unit, m.higher_is_better, m.summarize(values), len(values), values, m.summarize, m.further(values)
        )


def _targets(batch: Batch) -> Array:
    if batch.targets is None:
        raise DataError("The data has no labels, so nothing can be scored on it.")
    return np.asarray(batch.targets)


def _hits(outputs: Mapping[str, Array], batch: Batch) -> Floats:
    """Return ``[count, 2]``: whether the label has the largest output, and whether it is among the five largest.

    As NumPy and not torchmetrics: that would load torch into a process that only ever runs ONNX files. A tie counts for
    the class that comes first, as ``argmax`` has it.
    """
    name, logits = next(iter(outputs.items()))
    labels = _targets(batch)
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ModelError(
            f"top1 needs an output of shape [N, classes]; {name} is {list(logits.shape)}.",
            "Choose another --metric, or give your own as FILE.py:function.",
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(f"top1 needs one class index a sample; the labels are {labels.dtype} {list(labels.shape)}.")
    targets, values = labels.astype(np.int64), logits.astype(np.float64)
    outside = targets[(targets < 0) | (targets >= logits.shape[1])]
    if outside.size:
        raise DataError(
            f"There is a label {outside[0]}, but output {name} has only {logits.shape[1]} classes, from 0 on.",
            "The data and the model don't belong together, or labels are in another order.",
        )
    rows = np.arange(len(targets))
    own = values[rows, targets][:, None]
    earlier = np.arange(logits.shape[1])[None] < targets[:, None]
    rank = np.sum((values > own) | ((values == own) & earlier), axis=1)
    # A third column says whether top-5 means anything.
    return np.stack([rank < 1, rank < 5, np.full(len(rank), logits.shape[1] >= TOP5_CLASSES)], axis=1).astype(
        np.float64
    )


def _percent_first(values: Floats) -> float:
    return float(100 * np.mean(values[:, 0]))


def _top5(values: Floats) -> Mapping[str, float]:
    return {"top5": float(100 * np.mean(values[:, 1]))} if values[:, 2].all() else {}


def _errors(outputs: Mapping[str, Array], batch: Batch) -> Floats:
    """Return ``[count, 2]``: mean squared and mean absolute error of each sample."""
    predicted, targets = _same_shape(outputs, _targets(batch))
    error = (predicted - targets).reshape(len(targets), -1)
    return np.stack([np.mean(error * error, axis=1), np.mean(np.abs(error), axis=1)], axis=1)


def _same_shape(outputs: Mapping[str, Array], targets: Array) -> tuple[Floats, Floats]:
    name, output = next(iter(outputs.items()))
    predicted = np.asarray(output, np.float64)
    if predicted.shape != targets.shape and predicted.size == targets.size:
        predicted = predicted.reshape(targets.shape)
    if predicted.shape != targets.shape:
        raise ModelError(
            f"Output {name} has shape {list(output.shape)}, the labels {list(targets.shape)}: they cannot be compared.",
            "Choose another --metric, or give your own as FILE.py:function.",
        )
    return predicted, np.asarray(targets, np.float64)


def _pairs(outputs: Mapping[str, Array], batch: Batch) -> Floats:
    """Return ``[count, 2]``: the model's score and the label.

    With two views a sample the score is the cosine similarity of the two embeddings (first output of shape
    ``[2·count, width]``); with one it is the output itself.
    """
    targets = _targets(batch)
    if batch.views == 1:
        predicted, wanted = _same_shape(outputs, targets)
        return np.stack([predicted.reshape(-1), wanted.reshape(-1)], axis=1)
    found = [o for o in outputs.values() if o.ndim == 2 and o.shape[0] == 2 * batch.count and o.shape[1] > 1]
    if batch.views != 2 or not found:
        shapes = ", ".join(f"{n} {list(o.shape)}" for n, o in outputs.items())
        raise ModelError(
            f"Pairs of texts need an output of shape [N, width], one embedding a text; the model gives {shapes}.",
            "Pool the tokens inside the model.",
        )
    first, second = np.split(np.asarray(found[0], np.float64), 2)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosine = np.sum(first * second, axis=1) / np.where(lengths > 0, lengths, 1)
    return np.stack([cosine, np.asarray(targets, np.float64).reshape(-1)], axis=1)


def _correlation(of: Callable[[Floats, Floats], float]) -> Callable[[Floats], float]:
    def summarize(values: Floats) -> float:
        scores, labels = values[:, 0], values[:, 1]
        if np.ptp(scores) == 0 or np.ptp(labels) == 0:
            return 0.0  # undefined; a model that gives everything the same score says nothing about the labels
        return 100 * of(scores, labels)

    return summarize


def _spearman(scores: Floats, labels: Floats) -> float:
    from scipy import stats

    return float(stats.spearmanr(scores, labels).statistic)


def _pearson(scores: Floats, labels: Floats) -> float:
    from scipy import stats

    return float(stats.pearsonr(scores, labels).statistic)


METRICS: dict[str, SampleMetric] = {
    "top1": SampleMetric("top1", "%", True, _hits, _percent_first, _top5),
    "spearman": SampleMetric("spearman", "points", True, _pairs, _correlation(_spearman)),
    "pearson": SampleMetric("pearson", "points", True, _pairs, _correlation(_pearson)),
    "rmse": SampleMetric("rmse", "label units", False, _errors, lambda v: float(np.sqrt(np.mean(v[:, 0])))),
    "mse": SampleMetric("mse", "label units²", False, _errors, lambda v: float(np.mean(v[:, 0]))),
    "mae": SampleMetric("mae", "label units", False, _errors, lambda v: float(np.mean(v[:, 1]))),
}
"""Every metric by name. ``top1`` also gives ``top5`` where there are ten classes or more."""

_BY_TASK: dict[str, str] = {"classification": "top1", "regression": "rmse", "pairs": "spearman"}


def metric_for(asked: str | None, task: str) -> Metric | None:
    """Return the metric asked for, else the default of the data's task (None where it has none).

    Args:
        asked: A name of :data:`METRICS`, ``FILE.py:function``, or None.
        task: The task of the data set.

    Raises:
        UsageError: There is no such metric, file or function.
    """
    if asked is None:
        return METRICS[_BY_TASK[task]] if task in _BY_TASK else None
    if ".py:" in asked:
        from evaluators.user_metric import load_user_metric

        return load_user_metric(asked)
    if asked not in METRICS:
        raise UsageError(f"There is no metric '{asked}'.", f"Known: {', '.join(METRICS)}, or FILE.py:function.")
    return METRICS[asked]
