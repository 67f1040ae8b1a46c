"""How much each layer alone costs: its input and its weight quantized, all else in float."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compress.data.base import Array
from compress.passes.int8.heldout import HeldOut
from compress.passes.int8.network import Network
from compress.passes.onnx_models import copy_of

WORK = 2e12
"""Multiply-accumulates spent on all layers together: a minute or so on two cores."""
FEWEST, MOST = 8, 64
"""Samples a layer."""


def samples_for(network: Network) -> int:
    """Return how many samples a layer are affordable, by the network's size alone, so that runs repeat."""
    macs = max(1.0, float(sum(layer_macs(network.model).values())))
    return int(np.clip(WORK / (macs * max(1, len(network.layers))), FEWEST, MOST))


def sensitivities(network: Network, held: HeldOut, samples: int, advance: Callable[[int], None]) -> dict[str, float]:
    """Return the outputs' noise power over signal power with each layer alone quantized.

    The layer's input goes through a Q/DQ pair with its range and its weight is replaced by what INT8 keeps of it, in a
    float graph, so that nothing else is rounded.

    Args:
        network: The float network with its ranges.
        held: Judges on held-out samples.
        samples: Samples to judge each layer by.
        advance: Called with 1 a layer.
    """
    model = copy_of(network.model)
    found = {}
    for name in network.layers:
        with_one = _Quantized(model, network, name)
        found[name] = held.error(model, samples)
        with_one.undo()
        advance(1)
    return found


class _Quantized:
    """One layer of a model quantized in place, until it is undone."""

    def __init__(self, model: onnx.ModelProto, network: Network, layer: str) -> None:
        graph = model.graph
        self._graph = graph
        self._place = next(i for i, n in enumerate(graph.node) if n.name == layer)
        self._node = graph.node[self._place]
        self._inputs = list(self._node.input)
        self._added = 0
        self._constants = len(graph.initializer)
        weights = {i.name: i for i in graph.initializer}
        scheme = network.settings.scheme
        for index, name in enumerate(self._inputs[:2]):
            if name in weights:
                values = numpy_helper.to_array(weights[name])
                axis = _channel_axis(self._node) if scheme.per_channel else None
                bits = 7 if network.settings.reduce_range else 8
                graph.initializer.append(numpy_helper.from_array(fake_quantized(values, axis, bits), f"{name}__alone"))
                self._node.input[index] = f"{name}__alone"
            elif name in network.ranges:
                self._node.input[index] = self._pair(name, network.ranges[name], unsigned=scheme.activation == "uint8")

    def _pair(self, name: str, bounds: tuple[float, float], *, unsigned: bool) -> str:
        low, high = min(0.0, bounds[0]), max(0.0, bounds[1])
        bottom, top = (0, 255) if unsigned else (-128, 127)
        scale = max((high - low) / 255, 1e-12)
        zero = round(bottom - low / scale)
        kind = np.uint8 if unsigned else np.int8
        self._graph.initializer.extend(
            [
                numpy_helper.from_array(np.array(scale, np.float32), f"{name}__scale"),
                numpy_helper.from_array(np.array(np.clip(zero, bottom, top), kind), f"{name}__zero"),
            ]
        )
        settings = [f"{name}__scale", f"{name}__zero"]
        pair = [
            helper.make_node("QuantizeLinear", [name, *settings], [f"{name}__q"], name=f"{name}__q"),
            helper.make_node("DequantizeLinear", [f"{name}__q", *settings], [f"{name}__dq"], name=f"{name}__dq"),
        ]
        for node in pair:
            self._graph.node.insert(self._place + self._added, node)
            self._added += 1
        return f"{name}__dq"

    def undo(self) -> None:
        """Put the layer back as it was."""
        del self._graph.node[self._place : self._place + self._added]
        self._graph.node[self._place].input[:] = self._inputs
        del self._graph.initializer[self._constants :]


def fake_quantized(values: Array, axis: int | None, bits: int = 8) -> Array:
    """Return weights as symmetric INT8 keeps them, one scale a channel of ``axis``; None: one for all."""
    others = None if axis is None else tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    top = 64 if bits == 7 else 2 ** (bits - 1) - 1  # as onnxruntime's quantizer has it: -64 to 64 and -127 to 127
    scale = np.maximum(np.abs(values).max(axis=others, keepdims=True) / top, np.finfo(np.float32).tiny)
    return np.asarray(np.clip(np.round(values / scale), -top, top) * scale, np.float32)


def _channel_axis(node: onnx.NodeProto) -> int:
    """Return the axis of a weight that counts output channels."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    return 0 if node.op_type == "Gemm" and attributes.get("transB") else -1


def layer_macs(model: onnx.ModelProto) -> dict[str, float]:
    """Return multiply-accumulates of one sample for each compute node with constant weights.

    Sizes that the graph leaves open count as 1 for the first axis and 128 for others.
    """
    known = {v.name: v.type.tensor_type.shape for v in (*model.graph.value_info, *model.graph.output)}
    weights = {i.name: list(i.dims) for i in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        weight = next((weights[n] for n in node.input[:2] if n in weights), None)
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul") or weight is None:
            continue
        shape = known.get(node.output[0])
        dims = [d.dim_value or (128 if i else 1) for i, d in enumerate(shape.dim)] if shape is not None else [1]
        outputs = float(np.prod(dims[1:] if node.op_type != "MatMul" else dims))
        if node.op_type == "Conv":
            each = float(np.prod(weight[1:]))
        elif node.op_type == "ConvTranspose":
            each = float(np.prod([weight[0], *weight[2:]]))
        else:
            each = float(weight[-2] if node.op_type == "MatMul" else np.prod(weight) / max(1, dims[-1]))
        found[node.name] = outputs * each
    return found
