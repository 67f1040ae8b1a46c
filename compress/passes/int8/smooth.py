"""SmoothQuant: outliers in some channels of an activation are moved into the weight that reads them.

Xiao, Lin, Seznec, Wu, Demouth, Han, "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
Models", 2022. What the float network computes stays the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from compress.data.base import Array
from compress.passes.int8.graph import Graph
from compress.passes.int8.weights import Weights, attributes, output_axis

LARGEST = 1e4
"""Scales are kept within this and its reciprocal."""


@dataclasses.dataclass(frozen=True)
class SmoothPoint:
    """An activation and the layers that read it.

    Attributes:
        tensor: Name of the activation; its last axis counts channels.
        layers: Names of the MatMul and Gemm nodes that read it and are quantized.
        maker: Name of the node that takes up the reciprocal scale; empty where a Mul has to be inserted.
    """

    tensor: str
    layers: tuple[str, ...]
    maker: str

    @property
    def inserted(self) -> bool:
        """Whether a Mul is inserted."""
        return not self.maker


def smooth_points(graph: Graph, layers: Collection[str], *, insert: bool) -> list[SmoothPoint]:
    """Find the activations whose channels can be scaled.

    The reciprocal scale goes into a LayerNormalization, or into the constant Mul and Add at the end of one that was
    written out, where nothing else reads the activation. With ``insert`` it else becomes a Mul of its own (behind a
    gelu, or where a residual connection reads the activation too).

    Args:
        graph: Of the float model.
        layers: Names of the layers that will be quantized.
        insert: Whether to return points that need a Mul.
    """
    wanted = set(layers)
    groups: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.nodes:
        if node.name in wanted and node.op_type in ("MatMul", "Gemm") and node.input[1] in graph.constants:
            if node.op_type == "Gemm" and attributes(node).get("transA"):
                continue
            groups.setdefault(str(node.input[0]), []).append(node)
    points = []
    for tensor, nodes in groups.items():
        alone = len(graph.consumers[tensor]) == len(nodes) and tensor not in graph.outputs
        maker = graph.producer.get(tensor)
        takes = alone and maker is not None and maker.op_type == "LayerNormalization" and _ends_in_channels(maker)
        if takes or insert:
            points.append(SmoothPoint(tensor, tuple(n.name for n in nodes), maker.name if takes and maker else ""))
    return points


def _ends_in_channels(node: onnx.NodeProto) -> bool:
    return attributes(node).get("axis", -1) == -1 and len([o for o in node.output if o]) == 1


def smooth(
    model: onnx.ModelProto, points: Sequence[SmoothPoint], peaks: Mapping[str, Array], alpha: float
) -> tuple[str, ...]:
    """Scale the channels of activations down and the weights that read them up, in place.

    Channel j is divided by ``peak_j^alpha / max|W_j|^(1 - alpha)``.

    Args:
        model: A float model with every node named.
        points: Where to.
        peaks: Activation → largest magnitude of each channel, ``[channels]``.
        alpha: How much of the difficulty moves into the weights, 0–1.

    Returns:
        Names of the layers whose weights were changed.
    """
    weights = Weights(model)
    nodes = {n.name: n for n in model.graph.node}
    changed: list[str] = []
    for point in points:
        readers = [nodes[name] for name in point.layers]
        peak = peaks.get(point.tensor)
        if peak is None or any(n.input[1] not in weights for n in readers):
            continue
        scale = _scale(np.asarray(peak, np.float64), [_rows(n, weights) for n in readers], alpha)
        if np.allclose(scale, 1.0):
            continue
        for node in readers:
            name = weights.own(node, 1)
            axis = 1 - output_axis(node, 2)
            weights.put(name, weights.get(name) * scale.reshape((-1, 1) if axis == 0 else (1, -1)))
        if point.maker:
            maker = nodes[point.maker]
            for index in range(1, len(maker.input)):
                name = weights.own(maker, index)
                weights.put(name, weights.get(name) / scale)
        else:
            _insert(model, point.tensor, readers, weights.add(f"{point.tensor}_smooth", (1 / scale).astype(np.float32)))
        changed += point.layers
    return tuple(changed)


def _rows(node: onnx.NodeProto, weights: Weights) -> Array:
    """Return the largest magnitude of the weights that read each input channel."""
    return np.asarray(np.abs(weights.get(node.input[1])).max(axis=output_axis(node, 2)), np.float64)


def _scale(peak: Array, rows: Sequence[Array], alpha: float) -> Array:
    weight = np.maximum.reduce([np.asarray(r) for r in rows])
    usable = (peak > 0) & (weight > 0)
    scale = np.where(usable, np.where(usable, peak, 1) ** alpha / np.where(usable, weight, 1) ** (1 - alpha), 1.0)
    return np.clip(scale, 1 / LARGEST, LARGEST)


def _insert(model: onnx.ModelProto, tensor: str, readers: Sequence[onnx.NodeProto], factor: str) -> None:
    """Put a Mul between an activation and the layers."""
    names = {n.name for n in readers}
    place = next(i for i, n in enumerate(model.graph.node) if n.name in names)
    scaled = f"{factor}_out"
    for node in readers:
        node.input[0] = scaled
    model.graph.node.insert(place, helper.make_node("Mul", [tensor, factor], [scaled], name=f"{factor}_mul"))
    known = next((v for v in (*model.graph.value_info, *model.graph.input) if v.name == tensor), None)
    if known is not None:  # the quantizer wants to know the type of what it quantizes
        model.graph.value_info.append(onnx.ValueInfoProto(name=scaled, type=known.type))
