"""Inputs for comparing and timing: real samples where there is data, else random ones of the model's signature."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from compress.artifact import Signature
from compress.data.base import Array, Batch, Dataset
from compress.data.bind import bind
from compress.load.probe import probe_inputs
from compress.runners.batching import fixed_batch

PROBES = 32
"""Random samples that outputs are compared on where there is no data."""


@dataclasses.dataclass(frozen=True)
class Probes:
    """Random inputs in the shape of a data set. For comparing outputs and timing only."""

    signature: Signature
    seed: int
    name: str = "random inputs"
    labelled: bool = False
    classes: tuple[str, ...] | None = None
    task: str = "unknown"

    @property
    def dynamic_axes(self) -> Mapping[str, tuple[str, ...]]:
        """None: every batch has the same sizes."""
        return {}

    def __len__(self) -> int:
        return PROBES

    def batches(self, size: int, limit: int | None = None) -> Iterator[Batch]:
        """Yield batches of random inputs, the same at every call."""
        left = len(self) if limit is None else min(limit, len(self))
        number = 0
        while left > 0:
            count = min(size, left)
            yield Batch(probe_inputs(self.signature, count, self.seed + number), None, count, bound=True)
            left -= count
            number += 1

    def subset(self, samples: int, seed: int) -> Dataset:
        """Return itself: random samples are as good as any others."""
        return self

    def fingerprint(self) -> str:
        """Return what decides the inputs."""
        return f"probes-{self.seed}-{self.signature.to_json()}"


@dataclasses.dataclass(frozen=True)
class Bound:
    """A data set whose batches go by the input names of the model that was handed over.

    Attributes:
        inner: The data set.
        model: The model's signature.
    """

    inner: Dataset
    model: Signature

    @property
    def name(self) -> str:
        """As the data set's."""
        return self.inner.name

    @property
    def labelled(self) -> bool:
        """As the data set's."""
        return self.inner.labelled

    @property
    def classes(self) -> tuple[str, ...] | None:
        """As the data set's."""
        return self.inner.classes

    @property
    def task(self) -> str:
        """As the data set's."""
        return self.inner.task

    @property
    def dynamic_axes(self) -> Mapping[str, tuple[str, ...]]:
        """As the data set's."""
        return self.inner.dynamic_axes

    def __len__(self) -> int:
        return len(self.inner)

    def batches(self, size: int, limit: int | None = None) -> Iterator[Batch]:
        """Yield the data set's batches, bound."""
        for batch in self.inner.batches(size, limit):
            yield dataclasses.replace(batch, inputs=bind(batch, self.model), bound=True)

    def subset(self, samples: int, seed: int) -> Dataset:
        """Return a subset of the data set, bound."""
        return Bound(self.inner.subset(samples, seed), self.model)

    def fingerprint(self) -> str:
        """As the data set's: the model's own digest is part of every key anyway."""
        return self.inner.fingerprint()


def samples_for(data: Dataset | None, model: Signature, seed: int) -> Dataset:
    """Return what a model and all files made of it run on: the data bound to its inputs, else random probes."""
    return Bound(data, model) if data is not None else Probes(model, seed)


def batch_sizes(asked: tuple[int, ...], model: Signature) -> tuple[int, ...]:
    """Return the batch sizes to time: those asked for, or the only one that the model takes."""
    fixed = fixed_batch(model)
    return asked if fixed is None else (fixed,)


class TimingInputs:
    """Makes the inputs that all models are timed on, the same for each of them.

    Args:
        dataset: Where they come from.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._rows: dict[int, Batch] = {}

    def __call__(self, signature: Signature, batch: int) -> dict[str, Array]:
        """Return ``batch`` rows of the first samples (repeated where there are too few) by the model's input names."""
        if batch not in self._rows:
            first = next(iter(self._dataset.batches(batch, batch)))
            rows = {n: np.take(a, np.arange(batch), axis=0, mode="wrap") for n, a in first.inputs.items()}
            self._rows[batch] = Batch(rows, None, batch, bound=first.bound)
        return bind(self._rows[batch], signature)
