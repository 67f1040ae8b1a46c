"""Runs a data set through a model and scores it; the same batches in the same order for every model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from compress.artifact import BATCH, Signature
from compress.data.base import Array, Batch, Dataset
from compress.errors import DataError, StageError
from compress.progress import Progress
from compress.results import Metric as MetricResult
from compress.runners.batching import fixed_batch, infer_rows
from compress.runners.process import RunnerProcess
from evaluators.metrics import Metric, Scores
from evaluators.statistics import Index, paired_interval

Observer = Callable[[Mapping[str, Array]], None]
"""Gets the outputs of every batch, in order: fidelity needs no second pass."""


def evaluate(
    process: RunnerProcess,
    dataset: Dataset,
    metric: Metric | None,
    progress: Progress,
    *,
    batch_size: int = 32,
    limit: int | None = None,
    observer: Observer | None = None,
    title: str = "",
) -> Scores | None:
    """Run the data set through a model.

    A model whose file fixes the batch size gets batches of that size; the last, short one is filled up and what that
    adds is cut off.

    Args:
        process: Holds the model.
        dataset: Labelled samples, or any samples where ``metric`` is None.
        metric: What to score; None: only run, for ``observer``.
        progress: Gets a task with a step a sample.
        batch_size: Samples at once, where the file leaves that open.
        limit: Samples at most.
        observer: Gets every batch's outputs.
        title: What the task is called.

    Returns:
        The score; None without a metric.

    Raises:
        StageError: The model makes NaN or infinity of data that has none.
        DataError: The data holds no samples, no labels, or labels that don't fit.
        ModelError: The outputs don't fit the metric.
    """
    from compress.data.bind import bind

    tally = metric.start() if metric is not None else None
    name = process.artifact.path.name
    fixed = fixed_batch(process.signature)
    size = fixed or batch_size
    signature = _any_batch(process.signature, fixed)
    total = len(dataset) if limit is None else min(limit, len(dataset))
    samples = 0
    with progress.task(title or f"Scoring {name}", total) as advance:
        for number, batch in enumerate(dataset.batches(size, limit), start=1):
            outputs = infer_rows(process, bind(batch, signature), batch.count * batch.views)
            _check_finite(outputs, batch, number, name)
            if observer is not None:
                observer(outputs)
            if tally is not None:
                tally.update(outputs, batch)
            samples += batch.count
            advance(batch.count)
    if not samples:
        raise DataError(f"{dataset.name} holds no samples.")
    return tally.finish() if tally is not None else None


def metric_result(scores: Scores, baseline: Scores | None, seed: int = 0) -> MetricResult:
    """Return a score for the results, with its drop against the baseline's where that is given.

    The drop's 95 % interval comes from resampling the samples, the same ones on both sides; a user's own metric has
    none.

    Args:
        scores: Of the variant, or the baseline itself.
        baseline: Of the baseline, on the same samples.
        seed: Seeds the bootstrap.

    Raises:
        ValueError: The two scores aren't of the same metric and samples.
    """
    drop = low = high = None
    if baseline is not None:
        if (baseline.name, baseline.samples) != (scores.name, scores.samples):
            raise ValueError(f"{baseline.name} on {baseline.samples} and {scores.name} on {scores.samples} don't pair")
        sign = 1 if scores.higher_is_better else -1
        drop = sign * (baseline.value - scores.value)
        ours, theirs, summarize = scores.per_sample, baseline.per_sample, scores.summarize
        if ours is not None and theirs is not None and summarize is not None:

            def drop_on(index: Index) -> float:
                return sign * (summarize(theirs[index]) - summarize(ours[index]))

            low, high = paired_interval(drop_on, scores.samples, seed)
    return MetricResult(
        name=scores.name,
        unit=scores.unit,
        higher_is_better=scores.higher_is_better,
        value=scores.value,
        drop=drop,
        drop_low=low,
        drop_high=high,
        samples=scores.samples,
        extra=dict(scores.extra),
    )


def _any_batch(signature: Signature, fixed: int | None) -> Signature:
    """Return the signature with a fixed batch size left open: rows are put into pieces of it later."""
    if fixed is None:
        return signature
    inputs = tuple(
        dataclasses.replace(s, shape=(BATCH, *s.shape[1:])) if s.shape and s.shape[0] == fixed else s
        for s in signature.inputs
    )
    return dataclasses.replace(signature, inputs=inputs)


def _check_finite(outputs: Mapping[str, Array], batch: Batch, number: int, name: str) -> None:
    for output, array in outputs.items():
        if not np.issubdtype(array.dtype, np.inexact) or np.isfinite(array).all():
            continue
        bad = [key for key, value in batch.inputs.items() if not np.isfinite(np.asarray(value, np.float64)).all()]
        if bad:
            raise DataError(f"Batch {number} holds NaN or infinity in input {', '.join(bad)}.")
        raise StageError(
            f"{name} makes NaN or infinity in output {output}, first in batch {number}; the data was clean, the model "
            "makes it.",
            "A value leaves the range of its precision; keep the operators it comes from in FP32.",
        )
