"""One streaming pass over the calibration data: the range and the histogram of every activation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from compress.data.base import Array
from compress.errors import StageError
from compress.passes.onnx_models import with_outputs

BINS = 2048
"""Bins on each side of zero. Twice as many as most tools use, since a grown range leaves half of them empty."""

SAMPLED = 1 << 18
"""Values of one tensor and batch that are counted; of larger tensors an even selection."""


@dataclasses.dataclass
class Histogram:
    """Minimum, maximum and a histogram over [-limit, limit] whose limit doubles when a value exceeds it.

    Doubling merges neighbouring bins, so that one pass is enough and memory is the same for any number of samples.

    Attributes:
        low: Smallest value seen.
        high: Largest value seen.
        limit: Half-width of the histogram's range; a power of two; 0 before the first non-zero value.
        counts: int64 ``[2 * BINS]``.
    """

    low: float = np.inf
    high: float = -np.inf
    limit: float = 0.0
    counts: npt.NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros(2 * BINS, np.int64))

    def add(self, values: Array, *, count: bool = True) -> None:
        """Take in a float array of any shape; ``count=False`` keeps minimum and maximum only, ten times faster.

        Raises:
            FloatingPointError: A value is NaN or infinite.
        """
        if values.size == 0:
            return
        flat = values.reshape(-1).astype(np.float32, copy=False)
        low, high = float(flat.min()), float(flat.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            raise FloatingPointError
        self.low, self.high = min(self.low, low), max(self.high, high)
        if not count:
            return
        if flat.size > SAMPLED:
            # An odd step goes through all channels, whose numbers are even; minimum and maximum stay exact.
            flat = flat[:: flat.size // SAMPLED | 1]
        self._grow(max(abs(low), abs(high)))
        if self.limit == 0.0:
            self.counts[BINS] += flat.size
            return
        index = (flat * np.float32(BINS / self.limit)).astype(np.int32) + BINS
        index -= flat < 0  # truncation rounds towards zero; bins must round down
        np.clip(index, 0, 2 * BINS - 1, out=index)
        self.counts += np.bincount(index, minlength=2 * BINS)

    def _grow(self, magnitude: float) -> None:
        if magnitude == 0.0:
            return
        needed = max(2.0 ** np.ceil(np.log2(magnitude)), 2.0**-60)
        if self.limit == 0.0:
            zeros = int(self.counts[BINS])
            self.counts[BINS] = zeros
            self.limit = needed
            return
        while self.limit < needed:
            pairs = self.counts.reshape(BINS, 2).sum(axis=1)
            self.counts[:] = 0
            self.counts[BINS // 2 : BINS // 2 + BINS] = pairs
            self.limit *= 2

    @property
    def centers(self) -> npt.NDArray[np.float64]:
        """Centers of the bins, float64 ``[2 * BINS]``."""
        return np.asarray((np.arange(2 * BINS) - BINS + 0.5) * (self.limit / BINS), np.float64)


def observe(
    model: onnx.ModelProto,
    tensors: Sequence[str],
    batches: Callable[[], Iterable[Mapping[str, Array]]],
    *,
    work: Path,
    threads: int,
    advance: Callable[[int], None],
    count: bool,
    memory_mb: float = 512.0,
    device: str = "cpu",
) -> dict[str, Histogram]:
    """Run ``model`` over the batches and collect a histogram of each float tensor named.

    Tensors are observed in groups whose outputs together stay below ``memory_mb`` for one batch, one pass over the data
    a group; small models need a single pass.

    Args:
        model: The float model; not changed. Weights beyond protobuf's 2 GB limit must lie in ``work`` as external data.
        tensors: Names of tensors inside the graph or of its inputs; those that aren't float are left out.
        batches: Yields the inputs of each batch, from the start at every call.
        work: Folder for the model with the extra outputs.
        threads: Threads for the runtime.
        advance: Called with 1 after each batch of the first group.
        count: Fill the histograms; else they hold minimum and maximum only.
        memory_mb: Bound on the observed outputs of one batch.
        device: ``cpu``, or ``cuda:N`` to run on that GPU.

    Raises:
        StageError: An activation is NaN or infinite although the inputs are finite.
    """
    found: dict[str, Histogram] = {}

    def see(name: str, values: Array, batch: int) -> None:
        _add(found.setdefault(name, Histogram()), values, name, batch, count=count)

    watch(model, tensors, batches, see, work=work, threads=threads, advance=advance, memory_mb=memory_mb, device=device)
    return found


def watch(
    model: onnx.ModelProto,
    tensors: Sequence[str],
    batches: Callable[[], Iterable[Mapping[str, Array]]],
    see: Callable[[str, Array, int], None],
    *,
    work: Path,
    threads: int,
    advance: Callable[[int], None],
    memory_mb: float,
    device: str = "cpu",
) -> None:
    """Run ``model`` over the batches and hand each value of each float tensor named to ``see``.

    ``see`` gets the tensor's name, its value and the number of the batch, from 1 on; see :func:`observe` for the rest.
    """
    inputs = {i.name for i in model.graph.input}
    first = dict(next(iter(batches())))
    session = _session(model, [t for t in tensors if t not in inputs], work, threads, device)
    wanted = set(tensors)
    floats = [o.name for o in session.get_outputs() if o.type in _FLOAT and o.name in wanted]
    given = [t for t in tensors if t in inputs and _is_float(first.get(t))]
    groups = _groups(session, floats, first, memory_mb * 1e6)
    for position, group in enumerate(groups):
        if len(groups) > 1:
            session = _session(model, group, work, threads, device)
        for number, feeds in enumerate(batches(), start=1):
            values = dict(zip(group, session.run(list(group), dict(feeds)), strict=True)) if group else {}
            if position == 0:
                values |= {name: feeds[name] for name in given}
                advance(1)
            for name, value in values.items():
                see(name, value, number)


_FLOAT = frozenset({"tensor(float)", "tensor(float16)", "tensor(double)"})


def _is_float(values: Array | None) -> bool:
    return values is not None and np.issubdtype(values.dtype, np.floating)


def _add(histogram: Histogram, values: Array, name: str, batch: int, *, count: bool) -> None:
    try:
        histogram.add(values, count=count)
    except FloatingPointError as error:
        raise StageError(
            f"Activation {name} is NaN or infinite in calibration batch {batch} although the input is finite.",
            "The model itself makes it; check its float outputs on this data.",
        ) from error


def _groups(session: Any, names: Sequence[str], feeds: Mapping[str, Array], budget: float) -> list[list[str]]:
    """Pack tensors into groups whose values for one batch take ``budget`` bytes at most."""
    rows = min(len(v) for v in feeds.values())
    try:
        one, factor = {k: v[:1] for k, v in feeds.items()}, rows
        values = session.run(list(names), one) if names else []
    except Exception as error:  # a batch axis that isn't dynamic: the whole batch is the smallest that runs
        if "INVALID_ARGUMENT" not in str(error):
            raise
        factor, values = 1, session.run(list(names), dict(feeds))
    groups: list[list[str]] = [[]]
    total = 0.0
    for name, value in zip(names, values, strict=True):
        size = value.nbytes * factor
        if groups[-1] and total + size > budget:
            groups.append([])
            total = 0.0
        groups[-1].append(name)
        total += size
    return groups


def _session(model: onnx.ModelProto, extra: Sequence[str], work: Path, threads: int, device: str) -> Any:
    import onnxruntime

    from compress.runners.onnxruntime import session_options

    path = work / "observed.onnx"
    onnx.save(with_outputs(model, extra), path)
    providers: list[Any] = ["CPUExecutionProvider"]
    if device != "cpu":
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.partition(":")[2]}))
    # Without its arena the runtime gives memory back after each batch, and batches of growing size don't add up.
    options = session_options(threads)
    options.enable_cpu_mem_arena = False
    return onnxruntime.InferenceSession(str(path), options, providers=providers)
