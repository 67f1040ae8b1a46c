"""What data looks like to everything that uses it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Batch:
    """Preprocessed inputs of some samples, ready for a model.

    Attributes:
        inputs: Arrays by name. A data set that knows no names uses ``"0"``, ``"1"``, …: they bind by position.
            The first axis of each array has ``count * views`` rows.
        targets: Labels, first axis ``count``; None where there are none.
        count: Samples in this batch; the last batch may be short.
        views: Rows a sample: 2 for text pairs (all first texts, then all second texts), else 1.
        bound: Whether ``inputs`` go by the names of the model that was handed over. A file made of it may lack some.
    """

    inputs: Mapping[str, Array]
    targets: Array | None
    count: int
    views: int = 1
    bound: bool = False


class Dataset(Protocol):
    """A set of samples that can be gone through any number of times, always in the same order."""

    @property
    def name(self) -> str:
        """Where it comes from, for messages."""

    @property
    def labelled(self) -> bool:
        """Whether its batches have targets."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names in label order; None where there are none."""

    @property
    def dynamic_axes(self) -> Mapping[str, tuple[str, ...]]:
        """Axes beyond the batch whose size differs from batch to batch: input name → symbols by axis from 1 on."""

    @property
    def task(self) -> str:
        """``classification``, ``regression`` or ``pairs``; decides the default metric. ``unknown`` without labels."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def batches(self, size: int, limit: int | None = None) -> Iterator[Batch]:
        """Yield batches of ``size`` samples (the last may be short), each sample once, ``limit`` samples at most.

        Raises:
            DataError: A sample cannot be read, or holds NaN or infinity.
        """

    def subset(self, samples: int, seed: int) -> Dataset:
        """Return ``samples`` of it (all where it has fewer), spread evenly over the classes where it has labels."""

    def fingerprint(self) -> str:
        """Return a digest of what the data is and how it is preprocessed; changes when either does."""
