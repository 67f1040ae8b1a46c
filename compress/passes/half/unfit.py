"""Which operators FP16 cannot do, found on data: overflow, sums that overflow inside, lost exponents, subnormals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from compress.data.base import Array
from compress.passes.half.types import Slots, floats
from compress.passes.int8.weights import attributes
from compress.passes.observe import watch

HALF_MAX = 65504.0
RANGE = HALF_MAX / 2
"""Values beyond half of FP16's range count as beyond it: other data may reach further than the calibration data."""
CAST_LOSS = 1e-3
"""A tensor that rounding to FP16 changes by more than this share of its size; normal values lose 2e-4."""
EXPONENT_LOSS = 1e-2
"""An error of an exponent's input is the relative error of its result."""
_HALF_ULP = 2.0**-11

_SUMS = frozenset({"ReduceSum", "ReduceMean", "ReduceL1", "GlobalAveragePool"})
_SQUARES = frozenset({"ReduceL2", "ReduceSumSquare", "GlobalLpPool", "LpNormalization"})
_NORMALIZATIONS = frozenset({"LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization",
                             "MeanVarianceNormalization"})  # fmt: skip
_BY_AXIS = frozenset({"LayerNormalization", "RMSNormalization"})
_FIRST_AXIS = {"GlobalAveragePool": 2, "GlobalLpPool": 2, "InstanceNormalization": 2, "MeanVarianceNormalization": 2,
               "LpNormalization": 1}  # fmt: skip
"""From which axis on operators sum that don't say it; the others sum over all."""
_EXPONENTS = frozenset({"Exp", "Softmax", "LogSoftmax", "ReduceLogSumExp"})


@dataclasses.dataclass
class _Seen:
    """What a tensor looked like; infinities, as masks have them, are values that FP16 has too."""

    peak: float = 0.0
    signal: float = 0.0
    noise: float = 0.0

    def add(self, values: Array) -> None:
        known = np.isfinite(values)
        finite = values if known.all() else values[known]
        if not finite.size:
            return
        self.peak = max(self.peak, float(np.abs(finite).max()))
        inside = np.clip(finite, -HALF_MAX, HALF_MAX)
        error = inside.astype(np.float16).astype(np.float32) - inside
        self.signal += float(np.square(inside, dtype=np.float64).sum())
        self.noise += float(np.square(error, dtype=np.float64).sum())

    @property
    def loss(self) -> float:
        return float(np.sqrt(self.noise / self.signal)) if self.signal else 0.0


def unfit_nodes(
    model: onnx.ModelProto,
    slots: Mapping[str, Slots],
    batches: Callable[[], Iterable[Mapping[str, Array]]] | None,
    *,
    work: Path,
    threads: int,
    advance: Callable[[int], None],
) -> dict[str, str]:
    """Return the operators to keep in FP32 by name, each with the reason.

    Args:
        model: The float model.
        slots: Operators that could be FP16.
        batches: Yields inputs, from the start at every call; None: constants alone are looked at.
        work: Folder for intermediate files.
        threads: Threads for the runtime.
        advance: Called with 1 a batch.
    """
    nodes = [n for n in model.graph.node if n.name in slots]
    seen = {name: _constant(tensor) for name, tensor in floats(model).items()}
    constants = {i.name: i for i in model.graph.initializer}
    sums = {n.name: _Sum(n, constants) for n in nodes if n.op_type in _SUMS | _SQUARES | _NORMALIZATIONS}
    if batches is not None:
        inside: dict[str, list[_Sum]] = {}
        for total in sums.values():
            inside.setdefault(total.tensor, []).append(total)
        names = dict.fromkeys(name for n in nodes for name in _values(n, slots[n.name]) if name not in seen)

        def see(name: str, values: Array, batch: int) -> None:
            seen.setdefault(name, _Seen()).add(values)
            for total in inside.get(name, ()):
                total.add(values)

        watch(model, list(names), batches, see, work=work, threads=threads, advance=advance, memory_mb=512.0)
    reasons = {n.name: _reason(n, slots[n.name], seen, sums.get(n.name)) for n in nodes}
    return {name: reason for name, reason in reasons.items() if reason}


def _constant(tensor: onnx.TensorProto) -> _Seen:
    seen = _Seen()
    seen.add(numpy_helper.to_array(tensor))
    return seen


class _Sum:
    """The largest sum that a reduction or a normalization makes inside."""

    def __init__(self, node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> None:
        given: Mapping[str, Any] = attributes(node)
        axes = given.get("axes", ())
        if node.op_type in _SUMS | _SQUARES and len(node.input) > 1 and node.input[1] in constants:
            axes = numpy_helper.to_array(constants[node.input[1]]).reshape(-1)
        self.tensor = node.input[0]
        self.total = 0.0
        self.squares = node.op_type not in _SUMS
        self._axes = tuple(int(a) for a in axes)
        self._first = given.get("axis", -1) if node.op_type in _BY_AXIS else _FIRST_AXIS.get(node.op_type, 0)
        self._groups = given.get("num_groups", 0)

    def add(self, values: Array) -> None:
        array = np.where(np.isfinite(values), values, 0).astype(np.float64)
        axes, first = self._axes, self._first
        if self._groups:
            array, first = array.reshape(array.shape[0], self._groups, -1), 2
        if not axes:
            axes = tuple(range(first % max(array.ndim, 1), array.ndim))
        magnitude = np.square(array) if self.squares else np.abs(array)
        self.total = max(self.total, float(np.max(magnitude.sum(axis=axes), initial=0.0)))


def _values(node: onnx.NodeProto, slots: Slots) -> list[str]:
    return [*(node.input[i] for i in slots.inputs), *(node.output[i] for i in slots.outputs)]


def _reason(node: onnx.NodeProto, slots: Slots, seen: Mapping[str, _Seen], inside: _Sum | None) -> str:
    known = [seen[name] for name in _values(node, slots) if name in seen]
    peak = max((s.peak for s in known), default=0.0)
    if peak > RANGE:
        return f"values near or beyond FP16's range of {HALF_MAX:,.0f}: up to {peak:.2g}"
    if inside is not None and inside.total > RANGE:
        what = "squares" if inside.squares else "values"
        return f"a sum inside goes near or beyond FP16's range: {what} that add up to {inside.total:.2g}"
    if node.op_type in _EXPONENTS and node.input[0] in seen:
        exponent = seen[node.input[0]].peak * _HALF_ULP
        if exponent > EXPONENT_LOSS:
            return f"FP16 rounds its exponents too coarsely: up to {seen[node.input[0]].peak:.3g}"
    loss = max((s.loss for s in known), default=0.0)
    if loss > CAST_LOSS:
        return f"values too small for FP16: rounding changes them by {100 * loss:.2g} %"
    return ""
