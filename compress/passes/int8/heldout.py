"""How far a candidate's outputs are from the float network's, on calibration samples that nothing was chosen by."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from compress.artifact import Signature
from compress.data.base import Array, Dataset
from compress.passes.feeds import pieces
from compress.passes.onnx_models import open_model
from compress.runners.batching import fixed_batch

EVERY = 5
"""One batch in so many is held out."""
MOST = 64
"""Samples held out at most: outputs of all of them are kept."""


class Split:
    """Calibration samples in two parts: one that ranges and corrections come from, one that they are judged on.

    Args:
        dataset: All calibration samples.
        signature: Inputs of the graph.
        batch: Samples at once.
    """

    def __init__(self, dataset: Dataset, signature: Signature, batch: int) -> None:
        self._dataset = dataset
        self._signature = signature
        self._size = fixed_batch(signature) or max(1, min(batch, len(dataset) // (2 * EVERY)))
        total = math.ceil(len(dataset) / self._size)
        # Fewer batches than this leave nothing to hold out.
        self._held = set(range(EVERY - 1, total, EVERY)[: max(1, MOST // self._size)]) if total >= EVERY else set()
        self.batches = total - len(self._held)

    @property
    def held_out(self) -> bool:
        """Whether there were samples enough to hold some out."""
        return bool(self._held)

    def fit(self) -> Iterator[dict[str, Array]]:
        """Yield the batches that ranges and corrections come from."""
        return self._part(held=False)

    def held(self) -> Iterator[dict[str, Array]]:
        """Yield the batches held out."""
        return self._part(held=True)

    def _part(self, *, held: bool) -> Iterator[dict[str, Array]]:
        for number, batch in enumerate(self._dataset.batches(self._size)):
            if (number in self._held) == held:
                # What a fixed batch size cuts up stays together: both texts of a pair belong to one sample.
                yield from pieces(batch, self._signature)


class HeldOut:
    """Judges candidates by the error of their outputs on held-out samples.

    Args:
        model: The float model.
        split: Its ``held`` batches are kept, and what the float model makes of them.
        threads: Threads for the runtime.
        work: Folder for models that are too large to be handed over in memory.
    """

    def __init__(self, model: onnx.ModelProto, split: Split, threads: int, work: Path) -> None:
        self._threads = threads
        self._work = work
        self._inputs: Sequence[Mapping[str, Array]] = list(split.held())
        session = open_model(model, threads, work)
        self._names = [o.name for o in session.get_outputs()]
        self._wanted = [session.run(self._names, dict(i)) for i in self._inputs]

    @property
    def samples(self) -> int:
        """Rows held out."""
        return sum(min(len(a) for a in i.values()) for i in self._inputs)

    def error(self, candidate: Path | onnx.ModelProto, samples: int | None = None) -> float:
        """Return noise power over signal power of the candidate's outputs, averaged over the float outputs.

        Args:
            candidate: A file, or a model in memory.
            samples: Rows to judge by, at most (whole batches); None: all.
        """
        session = open_model(candidate, self._threads, self._work)
        noise, signal = np.zeros(len(self._names)), np.zeros(len(self._names))
        seen = 0
        for inputs, wanted in zip(self._inputs, self._wanted, strict=True):
            for index, (output, value) in enumerate(zip(session.run(self._names, dict(inputs)), wanted, strict=True)):
                if np.issubdtype(value.dtype, np.floating):
                    noise[index] += np.square(output.astype(np.float64) - value).sum()
                    signal[index] += np.square(value.astype(np.float64)).sum()
            seen += min(len(a) for a in inputs.values())
            if samples is not None and seen >= samples:
                break
        counted = signal > 0
        return float((noise[counted] / signal[counted]).mean()) if counted.any() else 0.0


def decibels(error: float) -> float:
    """Return an error as a signal to quantization noise ratio in dB, capped at 200."""
    return min(200.0, -10 * math.log10(max(error, 1e-20)))
