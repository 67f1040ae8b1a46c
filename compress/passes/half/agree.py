"""How far FP16 moves the outputs, emulated value by value, and which operators do it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx

from compress.data.base import Array
from compress.passes.half.types import Slots
from compress.passes.onnx_models import open_model, with_outputs

_UNIT = 2.0**-11
_AMPLIFIED = 4.0
_AT_ONCE = 32
"""Tensors compared at once."""


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How FP16 outputs compare with FP32's.

    Attributes:
        error: Size of the difference relative to the outputs', the worst output's; infinite where one isn't finite.
        output: Name of that output.
        worst: Inputs of the batch where they differ most.
    """

    error: float
    output: str
    worst: Mapping[str, Array]


def agreement(
    model: onnx.ModelProto,
    emulated: onnx.ModelProto,
    batches: Iterable[Mapping[str, Array]],
    threads: int,
    work: Path,
) -> Agreement:
    """Compare the emulated model's outputs with the float model's; ``work`` is for models too large for memory."""
    left, right = (open_model(m, threads, work) for m in (model, emulated))
    names = [o.name for o in left.get_outputs() if o.type == "tensor(float)"]
    signal, noise = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    worst: Mapping[str, Array] = {}
    largest = -1.0
    for feeds in batches:
        batch_error = 0.0
        exact, rounded = left.run(names, dict(feeds)), right.run(names, dict(feeds))
        for name, a, b in zip(names, exact, rounded, strict=True):
            power, error = _powers(a, b)
            signal[name] += power
            noise[name] += error
            batch_error = max(batch_error, _ratio(error, power))
        if batch_error > largest:
            largest, worst = batch_error, feeds
    errors = {name: _ratio(noise[name], signal[name]) for name in names}
    output = max(errors, key=lambda n: errors[n], default="")
    return Agreement(errors.get(output, 0.0), output, worst)


def culprits(
    model: onnx.ModelProto,
    emulated: onnx.ModelProto,
    slots: Mapping[str, Slots],
    kept: Collection[str],
    feeds: Mapping[str, Array],
    threads: int,
    work: Path,
) -> dict[str, str]:
    """Return the operators at which the error rises most, with the reason to keep them in FP32.

    Those that make infinities or NaN of finite operands come first, and alone.
    """
    nodes = [n for n in model.graph.node if n.name in slots and n.name not in kept]
    made = {n for node in model.graph.node for n in node.output if n}
    names = list(dict.fromkeys(n for node in nodes for n in (*node.input, *node.output) if n in made))
    errors = _errors(model, emulated, names, feeds, threads, work)
    rises: dict[str, float] = {}
    for node in nodes:
        before = max((errors.get(node.input[i], 0.0) for i in slots[node.name].inputs), default=0.0)
        after = max((errors.get(node.output[i], 0.0) for i in slots[node.name].outputs), default=0.0)
        if np.isfinite(before):
            rises[node.name] = after / max(before, _UNIT)
    broken = [n for n, rise in rises.items() if not np.isfinite(rise)]
    if broken:
        return dict.fromkeys(broken, "makes infinity or NaN in FP16")
    most = sorted((n for n, rise in rises.items() if rise > _AMPLIFIED), key=lambda n: -rises[n])
    few = most[: max(1, len(nodes) // 20)]
    return {n: f"the error rises there in FP16: {rises[n]:.2g} times" for n in few}


def _errors(
    model: onnx.ModelProto,
    emulated: onnx.ModelProto,
    names: list[str],
    feeds: Mapping[str, Array],
    threads: int,
    work: Path,
) -> dict[str, float]:
    left, right = (open_model(with_outputs(m, names), threads, work) for m in (model, emulated))
    shown = [o.name for o in left.get_outputs() if o.type == "tensor(float)"]
    found = {}
    for start in range(0, len(shown), _AT_ONCE):
        some = shown[start : start + _AT_ONCE]
        exact, rounded = left.run(some, dict(feeds)), right.run(some, dict(feeds))
        for name, a, b in zip(some, exact, rounded, strict=True):
            power, error = _powers(a, b)
            found[name] = _ratio(error, power)
    return found


def _powers(exact: Array, rounded: Array) -> tuple[float, float]:
    """Return signal and noise power; what isn't finite in the float model either is left out."""
    usable = np.isfinite(exact)
    a, b = exact[usable].astype(np.float64), rounded[usable].astype(np.float64)
    if not np.isfinite(b).all():
        return float(np.square(a).sum()), float("inf")
    return float(np.square(a).sum()), float(np.square(b - a).sum())


def _ratio(noise: float, signal: float) -> float:
    if noise == 0:
        return 0.0
    return float(np.sqrt(noise / signal)) if signal else float("inf")
