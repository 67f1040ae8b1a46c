"""Peak and mean of each channel of an activation, in one streaming pass: what corrections of weights go by."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from compress.data.base import Array
from compress.passes.observe import watch


@dataclasses.dataclass
class Channels:
    """What was seen of each channel of one tensor.

    Attributes:
        peak: Largest magnitude, float32 ``[channels]``.
        mean: Mean over all other axes and samples, float64 ``[channels]``.
        count: Values a channel.
    """

    peak: npt.NDArray[np.float32]
    mean: npt.NDArray[np.float64]
    count: int = 0

    def add(self, values: Array, axis: int) -> None:
        """Take in a float array whose ``axis`` counts channels."""
        flat = np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis]).astype(np.float32, copy=False)
        if not len(flat):
            return
        self.peak = np.maximum(self.peak, np.abs(flat).max(0))
        total = self.count + len(flat)
        self.mean += (flat.mean(0, dtype=np.float64) - self.mean) * (len(flat) / total)
        self.count = total


def observe_channels(
    model: onnx.ModelProto,
    tensors: Sequence[str],
    batches: Callable[[], Iterable[Mapping[str, Array]]],
    *,
    axis: Mapping[str, int],
    work: Path,
    threads: int,
    memory_mb: float = 512.0,
) -> dict[str, Channels]:
    """Run ``model`` over the batches and collect what each channel of each tensor looks like.

    Args:
        model: The float model; not changed.
        tensors: Names of float tensors inside the graph or of its inputs.
        batches: Yields the inputs of each batch, from the start at every call.
        axis: Tensor → the axis that counts its channels.
        work: Folder for the model with the extra outputs.
        threads: Threads for the runtime.
        memory_mb: Bound on the observed values of one batch.
    """
    found: dict[str, Channels] = {}

    def see(name: str, values: Array, batch: int) -> None:
        size = values.shape[axis[name]]
        if name not in found:
            found[name] = Channels(np.zeros(size, np.float32), np.zeros(size, np.float64))
        found[name].add(values, axis[name])

    watch(model, tensors, batches, see, work=work, threads=threads, advance=lambda n: None, memory_mb=memory_mb)
    return found
