"""Bias correction: rounding a weight shifts the mean of its layer's output, and the bias can take the shift back.

Nagel, van Baalen, Blankevoort, Welling, "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019,
section 4.2, with the mean of each layer's input taken from calibration data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import onnx

from compress.data.base import Array
from compress.passes.int8.weights import Weights, attributes, matrix, quantized_weights


def bias_shifts(
    model: onnx.ModelProto, quantized: Path, layers: Collection[str], means: Mapping[str, Array]
) -> dict[str, Array]:
    """Return what rounding its weight takes from each layer's mean output.

    Args:
        model: The float model.
        quantized: Its Q/DQ file.
        layers: Names of quantized layers; those whose weight isn't their second input, a constant, are left out.
        means: Tensor → mean of each channel (axis 1 for convolutions, else the last axis).

    Returns:
        Layer → float64 ``[output channels]``: the mean with the float weight less that with the rounded one.
    """
    rounded = quantized_weights(quantized)
    weights = Weights(model)
    wanted = set(layers)
    shifts = {}
    for node in model.graph.node:
        if node.name not in wanted or len(node.input) < 2 or node.input[1] not in weights:
            continue
        if node.name not in rounded or node.input[0] not in means:
            continue
        kept = rounded[node.name]
        error = weights.get(node.input[1]).astype(np.float64) - kept.values * kept.scale
        mean = np.asarray(means[node.input[0]], np.float64)
        shift = _mean_output(node, error, mean)
        if shift is not None:
            shifts[node.name] = shift
    return shifts


def _mean_output(node: onnx.NodeProto, weight: Array, mean: Array) -> Array | None:
    """Return the mean output of a layer for the mean input; padding, which pulls borders to zero, is left out.

    None for other layers, and where the mean is along another axis than the layer's inputs, as for a tensor that a
    convolution and a MatMul both read.
    """
    group = int(str(attributes(node).get("group", 1)))
    if node.op_type == "Conv":
        if len(mean) != group * weight.shape[1]:
            return None
        taps = weight.sum(axis=tuple(range(2, weight.ndim)))  # [out, in / group]
        inputs = mean.reshape(group, -1).repeat(len(taps) // group, axis=0)
        return np.asarray((taps * inputs).sum(axis=1))
    if node.op_type not in ("Gemm", "MatMul") or weight.ndim != 2 or len(mean) != len(matrix(node, weight)):
        return None
    return np.asarray(mean @ matrix(node, weight)) * float(str(attributes(node).get("alpha", 1.0)))


def add_biases(model: onnx.ModelProto, shifts: Mapping[str, Array]) -> int:
    """Add shifts to the layers' biases, in place, and return how many layers were changed.

    A convolution or Gemm without a bias gets one. That of a MatMul is the constant of the Add behind it; one without is
    left as it is.
    """
    weights = Weights(model)
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    changed = 0
    for node in model.graph.node:
        if node.name not in shifts:
            continue
        shift = shifts[node.name]
        if node.op_type == "MatMul":
            place = _added(readers.get(node.output[0], []), node.output[0], weights, len(shift))
        elif len(node.input) < 3 or not node.input[2]:
            bias = weights.add(f"{node.name}_bias", np.zeros(len(shift), np.float32))
            node.input[:] = [*node.input[:2], bias]
            place = (node, 2)
        else:
            place = (node, 2) if node.input[2] in weights and weights.shape(node.input[2]) == shift.shape else None
        if place is None:
            continue
        name = weights.own(*place)
        scale = float(str(attributes(node).get("beta", 1.0))) if node.op_type == "Gemm" else 1.0
        values = weights.get(name)
        weights.put(name, values + (shift / scale).reshape(values.shape))
        changed += 1
    return changed


def _added(readers: list[onnx.NodeProto], value: str, weights: Weights, size: int) -> tuple[onnx.NodeProto, int] | None:
    """Return the Add behind a MatMul and the place of its constant."""
    if len(readers) != 1 or readers[0].op_type != "Add":
        return None
    index = 1 - list(readers[0].input).index(value)
    name = readers[0].input[index]
    fits = name in weights and int(np.prod(weights.shape(name))) == size and weights.shape(name)[-1:] == (size,)
    return (readers[0], index) if fits else None
