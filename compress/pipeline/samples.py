"""Inputs for comparing and timing: real samples where there is data, else random ones of the model's signature."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from compress.artifact import Signature
from compress.data.base import Array, Batch, Dataset
from compress.data.bind import bind
from compress.load.probe import probe_inputs

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
            yield Batch(probe_inputs(self.signature, count, self.seed + number), None, count)
            left -= count
            number += 1

    def subset(self, samples: int, seed: int) -> Dataset:
        """Return itself: random samples are as good as any others."""
        return self

    def fingerprint(self) -> str:
        """Return what decides the inputs."""
        return f"probes-{self.seed}-{self.signature.to_json()}"


class TimingInputs:
    """Makes the inputs that all models are timed on, the same for each of them.

    Args:
        dataset: Where they come from.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._rows: dict[int, dict[str, Array]] = {}

    def __call__(self, signature: Signature, batch: int) -> dict[str, Array]:
        """Return ``batch`` rows of the first samples (repeated where there are too few) by the model's input names."""
        if batch not in self._rows:
            first = next(iter(self._dataset.batches(batch, batch)))
            self._rows[batch] = {
                name: np.take(array, np.arange(batch), axis=0, mode="wrap") for name, array in first.inputs.items()
            }
        return bind(self._rows[batch], signature)
