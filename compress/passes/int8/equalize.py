"""Cross-layer equalization: scales moved from one layer's outputs to the next one's inputs, so that ranges even out.

Nagel, van Baalen, Blankevoort, Welling, "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019,
section 4.1. What the float network computes stays the same.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx

from compress.data.base import Array
from compress.passes.int8.graph import Graph, read_graph
from compress.passes.int8.weights import Weights, attributes, output_axis

CARRIERS = frozenset({"Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "Identity", "Dropout"})
"""Operators that work on each channel alone and commute with a positive scale. Clip has an upper bound and doesn't."""
ROUNDS = 20
LEAST = 1e-8
"""Channels whose weights are smaller than this are dead, and aren't scaled."""


@dataclasses.dataclass(frozen=True)
class _Pair:
    first: onnx.NodeProto
    second: onnx.NodeProto


def equalize(model: onnx.ModelProto) -> tuple[str, ...]:
    """Equalize all pairs of layers, in place, and return the names of each pair's first layer.

    A pair is a Conv or Gemm whose only reader, through operators that commute with a positive scale, is another one.
    Each channel's range in the first weight and in the second becomes their geometric mean; pairs in a chain are gone
    through until nothing moves.

    Args:
        model: A float model with BatchNorm fused and every node named.
    """
    graph = read_graph(model)
    weights = Weights(model)
    pairs = [p for p in (_pair(graph, n, weights) for n in graph.nodes) if p is not None]
    for _ in range(ROUNDS):
        moved = max((_equalize(p, weights) for p in pairs), default=0.0)
        if moved < 1e-3:
            break
    return tuple(p.first.name for p in pairs)


def _pair(graph: Graph, first: onnx.NodeProto, weights: Weights) -> _Pair | None:
    if not _is_layer(first, weights):
        return None
    node = first
    while True:
        value = node.output[0]
        readers = graph.consumers.get(value, ())
        if len(readers) != 1 or value in graph.outputs or len([o for o in node.output if o]) > 1:
            return None
        node = readers[0]
        if _is_layer(node, weights) and node.input[0] == value:
            break
        if node.op_type not in CARRIERS:
            return None
    if node.op_type == "Gemm" and first.op_type != "Gemm":
        return None  # what lies between decides which inputs belong to a channel
    same = _channels(first, weights, out=True) == _channels(node, weights, out=False)
    return _Pair(first, node) if same else None


def _is_layer(node: onnx.NodeProto, weights: Weights) -> bool:
    if node.op_type not in ("Conv", "Gemm") or node.input[1] not in weights or weights.shared(node.input[1]):
        return False
    if len(node.input) > 2 and node.input[2]:
        bias = node.input[2]
        if bias not in weights or weights.shared(bias) or len(weights.shape(bias)) != 1:
            return False
    return node.op_type == "Conv" or not attributes(node).get("transA")


def _channels(node: onnx.NodeProto, weights: Weights, *, out: bool) -> int:
    shape = weights.shape(node.input[1])
    if node.op_type == "Gemm":
        return shape[output_axis(node, 2) if out else 1 - output_axis(node, 2)]
    return shape[0] if out else shape[1] * _groups(node)


def _groups(node: onnx.NodeProto) -> int:
    return int(str(attributes(node).get("group", 1)))


def _equalize(pair: _Pair, weights: Weights) -> float:
    """Equalize one pair; return the largest change of a scale, as a logarithm."""
    first, second = weights.get(pair.first.input[1]), weights.get(pair.second.input[1])
    axis = output_axis(pair.first, first.ndim)
    ranges = np.abs(first).max(axis=tuple(i for i in range(first.ndim) if i != axis))
    others = _input_ranges(pair.second, second)
    usable = (ranges > LEAST) & (others > LEAST)
    scale = np.where(usable, np.sqrt(np.maximum(ranges, LEAST) / np.maximum(others, LEAST)), 1.0).astype(np.float32)
    weights.put(pair.first.input[1], first / scale.reshape([-1 if i == axis else 1 for i in range(first.ndim)]))
    if len(pair.first.input) > 2 and pair.first.input[2]:
        weights.put(pair.first.input[2], weights.get(pair.first.input[2]) / scale)
    weights.put(pair.second.input[1], second * _input_scale(pair.second, second, scale))
    return float(np.abs(np.log(scale)).max())


def _input_ranges(node: onnx.NodeProto, weight: Array) -> Array:
    """Return the largest magnitude of the weights that read each input channel."""
    if node.op_type == "Gemm":
        return np.asarray(np.abs(weight).max(axis=output_axis(node, 2)))
    group = _groups(node)
    parts = np.abs(weight).reshape(group, weight.shape[0] // group, weight.shape[1], -1)
    return np.asarray(parts.max(axis=(1, 3)).reshape(-1))


def _input_scale(node: onnx.NodeProto, weight: Array, scale: Array) -> Array:
    """Return a scale of the input channels in the shape in which it multiplies the weight."""
    if node.op_type == "Gemm":
        return scale.reshape((1, -1) if output_axis(node, 2) == 0 else (-1, 1))
    group = _groups(node)
    each = scale.reshape(group, 1, weight.shape[1]).repeat(weight.shape[0] // group, axis=1)
    return each.reshape(weight.shape[0], weight.shape[1], *[1] * (weight.ndim - 2))
