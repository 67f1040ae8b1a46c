"""Calibration samples as a graph takes them."""

from __future__ import annotations

from collections.abc import Iterator

from compress.artifact import Signature
from compress.data.base import Array, Batch, Dataset
from compress.data.bind import bind
from compress.runners.batching import filled, fixed_batch


def feeds(dataset: Dataset, signature: Signature, size: int, limit: int | None = None) -> Iterator[dict[str, Array]]:
    """Yield inputs by name, ``size`` samples at a time, or the batch size that the file is fixed to.

    A fixed batch that samples don't fill is filled by repeating the last one, which changes no range.

    Args:
        dataset: The samples.
        signature: Inputs of the graph.
        size: Samples at once where the file leaves that open.
        limit: Samples at most.
    """
    for batch in dataset.batches(fixed_batch(signature) or size, limit):
        yield from pieces(batch, signature)


def pieces(batch: Batch, signature: Signature) -> Iterator[dict[str, Array]]:
    """Yield one batch's inputs by name: whole, or in pieces of the batch size that the file is fixed to."""
    fixed = fixed_batch(signature)
    inputs = bind(batch, signature)
    if fixed is None:
        yield inputs
    else:
        yield from filled(inputs, batch.count * batch.views, fixed)
