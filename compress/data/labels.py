"""What labels say about the task, and a fair choice among labelled samples."""

from __future__ import annotations

import numpy as np

from compress.data.base import Array
from compress.errors import DataError


def tidy_labels(labels: Array, where: str) -> Array:
    """Return labels as int64 [N], or float32 of any shape.

    Integers and booleans are class numbers; ``[N, 1]`` becomes ``[N]``.

    Raises:
        DataError: They are no numbers, or a class number is negative.
    """
    if labels.dtype.kind not in "biuf":
        raise DataError(f"{where}: labels must be numbers, not {labels.dtype}.", "Write class numbers from 0 on.")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind == "f":
        return labels.astype(np.float32)
    whole = labels.astype(np.int64)
    if whole.ndim == 1 and whole.size and whole.min() < 0:
        at = int(np.argmax(whole < 0))
        raise DataError(
            f"{where}: the label of sample {at} is {whole[at]}; class numbers start at 0.",
            "Store floating-point labels where they are values to predict.",
        )
    return whole


def task_of(labels: Array | None) -> str:
    """Return the task that tidy labels speak of; ``unknown`` without labels and for whole numbers in several axes."""
    if labels is None:
        return "unknown"
    if labels.dtype.kind == "f":
        return "regression"
    return "classification" if labels.ndim == 1 else "unknown"


def choose(labels: Array | None, total: int, samples: int, seed: int) -> list[int]:
    """Choose ``samples`` of ``total`` positions, all where there are fewer; the same for the same seed.

    With class labels they come in turn from each class, so that every prefix is spread evenly, too.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(total)
    if labels is None or task_of(labels) != "classification":
        return [int(i) for i in order[:samples]]
    by_class: dict[int, list[int]] = {}
    for position in order:
        by_class.setdefault(int(labels[position]), []).append(int(position))
    queues = [by_class[c] for c in sorted(by_class)]
    turns = [queues[i] for i in random.permutation(len(queues))]
    chosen: list[int] = []
    depth = 0
    while len(chosen) < min(samples, total):
        chosen += [queue[depth] for queue in turns if depth < len(queue)]
        depth += 1
    return chosen[:samples]
