"""Reading and changing the weights of an ONNX graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compress.data.base import Array


class Weights:
    """The initializers of a model, by name; changes go into the model.

    Args:
        model: Changed in place by :meth:`put` and :meth:`add`.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self._tensors = {i.name: i for i in model.graph.initializer}
        self._readers: dict[str, int] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers[name] = self._readers.get(name, 0) + 1

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def get(self, name: str) -> Array:
        """Return the values of an initializer."""
        return np.asarray(numpy_helper.to_array(self._tensors[name]))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an initializer."""
        return tuple(self._tensors[name].dims)

    def shared(self, name: str) -> bool:
        """Whether more than one node input reads it."""
        return self._readers.get(name, 0) > 1

    def put(self, name: str, values: Array) -> None:
        """Replace the values of an initializer; its type is kept."""
        kind = helper.tensor_dtype_to_np_dtype(self._tensors[name].data_type)
        self._tensors[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values, kind), name))

    def add(self, name: str, values: Array) -> str:
        """Add an initializer and return its name, which is ``name`` made unique."""
        while name in self._tensors:
            name += "_"
        self._graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        self._tensors[name] = self._graph.initializer[-1]
        return name

    def own(self, node: onnx.NodeProto, index: int) -> str:
        """Give a node its own copy of the initializer it reads at ``index``, if others read it too; return its name."""
        name = str(node.input[index])
        if self.shared(name):
            self._readers[name] -= 1
            node.input[index] = self.add(f"{name}_of_{node.name}", self.get(name))
            self._readers[node.input[index]] = 1
        return str(node.input[index])


def attributes(node: onnx.NodeProto) -> Mapping[str, object]:
    """Return a node's attributes by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def output_axis(node: onnx.NodeProto, rank: int) -> int:
    """Return the axis of a layer's weight that counts output channels.

    Args:
        node: A Conv, ConvTranspose, Gemm or MatMul whose weight is its second input.
        rank: Axes of the weight.
    """
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    return 0 if node.op_type == "Gemm" and attributes(node).get("transB") else rank - 1


def matrix(node: onnx.NodeProto, weight: Array) -> Array:
    """Return the weight of a Gemm or MatMul as ``[inputs, outputs]``."""
    return weight.T if node.op_type == "Gemm" and attributes(node).get("transB") else weight


@dataclasses.dataclass(frozen=True)
class QuantizedWeight:
    """A layer's weight in a Q/DQ file.

    Attributes:
        name: Name of the int8 initializer.
        values: int8, in the weight's shape.
        scale: float64, in a shape that multiplies ``values``. The zero point is 0: weights are symmetric.
    """

    name: str
    values: Array
    scale: Array


def quantized_weights(path: Path) -> dict[str, QuantizedWeight]:
    """Return the constant int8 weights of a Q/DQ file by the layer that reads them."""
    model = onnx.load(path)
    constants = {i.name: i for i in model.graph.initializer}
    made_by = {name: node for node in model.graph.node for name in node.output}
    found = {}
    for node in model.graph.node:
        source = made_by.get(node.input[1]) if len(node.input) > 1 else None
        if source is None or source.op_type != "DequantizeLinear" or source.input[0] not in constants:
            continue
        values = numpy_helper.to_array(constants[source.input[0]])
        scale = numpy_helper.to_array(constants[source.input[1]]).astype(np.float64)
        if scale.size > 1:
            axis = int(str(attributes(source).get("axis", 1))) % values.ndim
            scale = scale.reshape([-1 if i == axis else 1 for i in range(values.ndim)])
        found[node.name] = QuantizedWeight(source.input[0], values, scale)
    return found
