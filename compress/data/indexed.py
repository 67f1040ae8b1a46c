"""Data sets whose samples can be read one by one: what image folders, arrays and text pairs have in common."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from compress.data.base import Array, Batch
from compress.data.labels import choose
from compress.data.prefetch import read_ahead
from compress.data.screen import BadSample, Screen, find_not_finite
from compress.errors import DataError, UsageError

_CHUNK = 16
"""Most samples a thread reads in one go: enough to hide the cost of handing over, few enough to keep memory flat."""


class Source(Protocol):
    """One kind of data set: finds its samples when it is made, reads one when asked."""

    @property
    def name(self) -> str:
        """Where it comes from, for messages."""

    @property
    def labels(self) -> Array | None:
        """Tidy labels of all samples (see :mod:`compress.data.labels`); None where there are none."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names in label order."""

    @property
    def dynamic_axes(self) -> Mapping[str, tuple[str, ...]]:
        """As :attr:`compress.data.base.Dataset.dynamic_axes`."""

    @property
    def task(self) -> str:
        """As :attr:`compress.data.base.Dataset.task`."""

    @property
    def views(self) -> int:
        """Rows a sample."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def where(self, index: int) -> str:
        """Name a sample, for messages."""

    def read(self, index: int) -> Mapping[str, Array]:
        """Return one preprocessed sample, without a batch axis; called from several threads. Raises ``BadSample``."""

    def collate(self, indices: Sequence[int], samples: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Put samples together to the inputs of a batch. Raises ``DataError`` where they don't fit together."""

    def digest(self) -> str:
        """Return a digest of the data and its preprocessing."""


class IndexedDataset:
    """A :class:`compress.data.base.Dataset` over a source, or over some of its samples.

    Args:
        source: Finds and reads the samples.
        screen: Decides on bad ones.
        workers: Threads that read ahead; 0: none.
        indices: Which samples, in which order; None: all.
        holder: Kept as long as the data set is, such as the temporary folder that its files lie in.
    """

    def __init__(
        self,
        source: Source,
        screen: Screen,
        workers: int,
        indices: Sequence[int] | None = None,
        holder: object | None = None,
    ) -> None:
        self._source = source
        self._holder = holder
        self._screen = screen
        self._workers = workers
        self._selected = indices is not None
        self._indices: Sequence[int] = range(len(source)) if indices is None else indices

    @property
    def name(self) -> str:
        """Where it comes from, for messages."""
        return self._source.name

    @property
    def labelled(self) -> bool:
        """Whether its batches have targets."""
        return self._source.labels is not None

    @property
    def labels(self) -> Array | None:
        """Labels of its samples, in order, without those known to be bad; None where there are none."""
        labels = self._source.labels
        return None if labels is None else labels[np.array(self._good(), dtype=np.int64)]

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names in label order; None where there are none."""
        return self._source.classes

    @property
    def dynamic_axes(self) -> Mapping[str, tuple[str, ...]]:
        """Axes beyond the batch whose size differs from batch to batch."""
        return self._source.dynamic_axes

    @property
    def task(self) -> str:
        """``classification``, ``regression`` or ``pairs``; ``unknown`` without labels."""
        return self._source.task

    @property
    def skipped(self) -> int:
        """Samples found bad so far and left out; they don't count in ``len``."""
        return len(self._indices) - len(self._good())

    def __len__(self) -> int:
        return len(self._indices) - self.skipped

    def batches(self, size: int, limit: int | None = None) -> Iterator[Batch]:
        """Yield batches of ``size`` samples (the last may be short), each sample once, ``limit`` samples at most.

        Raises:
            DataError: A sample is bad and the policy is to stop, or none is left.
            UsageError: ``size`` or ``limit`` is below 1.
        """
        if size < 1 or (limit is not None and limit < 1):
            raise UsageError(
                f"{self.name}: batch size and number of samples must be 1 or more, not {size} and {limit}."
            )
        return self._batches(size, limit)

    def _batches(self, size: int, limit: int | None) -> Iterator[Batch]:
        left = len(self) if limit is None else min(limit, len(self))
        if left == 0 and self._indices:
            raise self._screen.none_left(self.name, len(self._indices))
        indices: list[int] = []
        samples: list[Mapping[str, Array]] = []
        stream = read_ahead(self._read, self._good(), self._workers, min(size, _CHUNK))
        given = 0
        try:
            with contextlib.closing(stream):
                for index, sample in stream:
                    if isinstance(sample, BadSample):
                        self._screen.judge(index, sample)
                        continue
                    indices.append(index)
                    samples.append(sample)
                    if len(samples) == min(size, left - given):
                        yield self._batch(indices, samples)
                        given += len(samples)
                        indices, samples = [], []
                        if given == left:
                            return
                if samples:
                    yield self._batch(indices, samples)
                    given += len(samples)
                if not given:
                    raise self._screen.none_left(self.name, len(self._indices))
        finally:
            self._screen.tell()

    def subset(self, samples: int, seed: int) -> IndexedDataset:
        """Return ``samples`` of it (all where it has fewer), spread evenly over the classes where it has labels.

        The order is mixed, the classes in turn. The same seed gives the same samples.

        Raises:
            UsageError: ``samples`` is below 1.
        """
        if samples < 1:
            raise UsageError(f"{self.name}: the number of samples must be 1 or more, not {samples}.")
        good = self._good()
        chosen = [good[i] for i in choose(self.labels, len(good), samples, seed)]
        return IndexedDataset(self._source, self._screen, self._workers, chosen, self._holder)

    def fingerprint(self) -> str:
        """Return a digest of what the data is and how it is preprocessed; changes when either does."""
        selection = list(self._indices) if self._selected else "all"
        return hashlib.sha256(json.dumps([self._source.digest(), selection]).encode()).hexdigest()

    def _good(self) -> Sequence[int]:
        bad = self._screen.bad
        return [i for i in self._indices if i not in bad] if bad else self._indices

    def _read(self, index: int) -> Mapping[str, Array] | BadSample:
        """Read and look at one sample; a bad one is handed back, so that the order and the other samples are kept."""
        try:
            sample = self._source.read(index)
        except BadSample as bad:
            return bad
        labels = self._source.labels
        arrays = sample if labels is None else {**sample, "labels": np.asarray(labels[index])}
        return find_not_finite(arrays, self._source.where(index)) or sample

    def _batch(self, indices: Sequence[int], samples: Sequence[Mapping[str, Array]]) -> Batch:
        labels = self._source.labels
        return Batch(
            inputs=self._source.collate(indices, samples),
            targets=None if labels is None else labels[np.array(indices, dtype=np.int64)],
            count=len(samples),
            views=self._source.views,
        )


def stack(names: Sequence[str], samples: Sequence[Mapping[str, Array]], name: str) -> dict[str, Array]:
    """Stack samples of equal shapes along a new first axis.

    Raises:
        DataError: Two samples differ in shape; the message names both.
    """
    stacked = {}
    for key in samples[0]:
        shape = samples[0][key].shape
        for sample_name, sample in zip(names, samples, strict=True):
            if sample[key].shape != shape:
                raise DataError(
                    f"{name}: samples differ in shape: {names[0]} is {list(shape)}, "
                    f"{sample_name} is {list(sample[key].shape)}.",
                    "Set resize to [height, width], or resize and crop, in the preprocess settings.",
                )
        stacked[key] = np.stack([s[key] for s in samples])
    return stacked
