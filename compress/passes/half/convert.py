"""The FP16 file: some operators in FP16, the others in FP32, and a Cast wherever a value goes from one to the other.

onnxruntime's own converter (``onnxruntime.transformers.float16``) isn't used: between two operators kept in FP32 it
sends the value through FP16, where it overflows; a weight that both kinds read is rounded for both; and constants
beyond FP16's range are clipped without a word.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from compress.passes.half.types import Slots, bodies, floats
from compress.passes.onnx_models import copy_of

_HALF, _SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT


def convert(
    model: onnx.ModelProto, slots: Mapping[str, Slots], kept: Collection[str], *, low_io: bool, emulate: bool = False
) -> onnx.ModelProto:
    """Return the model with the operators of ``slots`` in FP16, but for those ``kept``.

    Args:
        model: The float model, its Constant nodes lifted into initializers; not changed.
        slots: What FP16 may replace, by name of node.
        kept: Operators that stay in FP32.
        low_io: Make float32 inputs and outputs of the graph FP16 as well.
        emulate: All types stay float32, and values are rounded to FP16 where they would be FP16. CPU runtimes compute
            FP16 files in FP32 and hide what overflows on a device that doesn't; this shows it.
    """
    return _Converter(model, slots, set(kept), low_io=low_io and not emulate, emulate=emulate).run()


class _Converter:
    def __init__(
        self, model: onnx.ModelProto, slots: Mapping[str, Slots], kept: set[str], *, low_io: bool, emulate: bool
    ) -> None:
        self._source, self._slots, self._kept = model, slots, kept
        self._low_io, self._emulate = low_io, emulate
        self._constants = floats(model)
        self._captured = _captured(model)
        self._halves: set[str] = set()
        """Tensors whose only home is FP16."""
        self._wide = self._captured | (set() if low_io else {o.name for o in model.graph.output})
        """Tensors that must be there in FP32 under their own names."""
        self._in_half: dict[str, str] = {}
        self._in_single: dict[str, str] = {}
        self._nodes: list[NodeProto] = []
        self._new: list[TensorProto] = []
        self._taken = {n for node in model.graph.node for n in (*node.input, *node.output)}

    def run(self) -> onnx.ModelProto:
        graph = self._source.graph
        if self._low_io:
            self._halves |= {i.name for i in graph.input if _is_single(i) and i.name not in self._captured}
        for node in graph.node:
            self._take(node)
        if self._low_io:
            for value in graph.output:
                if _is_single(value) and value.name not in self._halves:
                    self._output_cast(value.name)
        return self._finish()

    def _take(self, node: NodeProto) -> None:
        copy = NodeProto()
        copy.CopyFrom(node)
        low = node.name in self._slots and node.name not in self._kept
        slots = self._slots[node.name] if low else Slots((), ())
        for i, name in enumerate(node.input):
            if i in slots.inputs:
                copy.input[i] = self._half(name)
            elif name in self._halves:
                copy.input[i] = self._single(name)
        self._nodes.append(copy)
        for i in slots.outputs:
            copy.output[i] = self._result(node.output[i])
        if low and not self._emulate:
            _retype(copy)

    def _result(self, name: str) -> str:
        """Return what an operator in FP16 is to call its result, and provide ``name`` for those who read it."""
        if self._emulate:
            exact = self._fresh(f"{name}_exact")
            self._round(exact, name)
            self._in_half[name] = name
            return exact
        if name not in self._wide:
            self._halves.add(name)
            return name
        half = self._fresh(f"{name}_fp16")
        self._cast(half, name, _SINGLE)
        self._in_half[name] = half
        return half

    def _half(self, name: str) -> str:
        """Return the name of a tensor's FP16 form, made where it isn't there yet."""
        if name in self._halves:
            return name
        if name not in self._in_half:
            made = self._in_half[name] = self._fresh(f"{name}_fp16")
            if name in self._constants:
                rounded = np.asarray(numpy_helper.to_array(self._constants[name])).astype(np.float16)
                kept_as = rounded.astype(np.float32) if self._emulate else rounded
                self._new.append(numpy_helper.from_array(kept_as, made))
            elif self._emulate:
                self._round(name, made)
            else:
                self._cast(name, made, _HALF)
        return self._in_half[name]

    def _single(self, name: str) -> str:
        """Return the name of the FP32 form of a tensor that is FP16."""
        if name not in self._in_single:
            self._in_single[name] = self._fresh(f"{name}_fp32")
            self._cast(name, self._in_single[name], _SINGLE)
        return self._in_single[name]

    def _round(self, source: str, result: str) -> None:
        between = self._fresh(f"{result}_rounded")
        self._cast(source, between, _HALF)
        self._cast(between, result, _SINGLE)

    def _output_cast(self, name: str) -> None:
        exact = self._fresh(f"{name}_fp32")
        for node in self._nodes:
            for i, each in enumerate(node.output):
                if each == name:
                    node.output[i] = exact
            for i, each in enumerate(node.input):
                if each == name:
                    node.input[i] = exact
        self._cast(exact, name, _HALF)
        self._halves.add(name)

    def _cast(self, source: str, result: str, kind: int) -> None:
        self._nodes.append(helper.make_node("Cast", [source], [result], name=self._fresh(f"{result}_cast"), to=kind))

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _finish(self) -> onnx.ModelProto:
        result = copy_of(self._source)
        graph = result.graph
        del graph.node[:]
        graph.node.extend(self._nodes)
        graph.initializer.extend(self._new)
        used = {name for node in self._nodes for name in node.input} | self._captured
        used |= {o.name for o in graph.output}
        unused = [i for i, t in enumerate(graph.initializer) if t.name not in used]
        for i in reversed(unused):
            del graph.initializer[i]
        del graph.value_info[:]  # its types are those of the float model
        for value in (*graph.input, *graph.output):
            if self._low_io and value.name in self._halves:
                value.type.tensor_type.elem_type = _HALF
        return result


def _is_single(value: onnx.ValueInfoProto) -> bool:
    return bool(value.type.tensor_type.elem_type == _SINGLE)


def _captured(model: onnx.ModelProto) -> set[str]:
    """Return the names that bodies of If and Loop read; those stay as they are."""
    found: set[str] = set()
    pending = [g for node in model.graph.node for g in bodies(node)]
    while pending:
        graph = pending.pop()
        found.update(o.name for o in graph.output)
        for node in graph.node:
            found.update(node.input)
            pending += bodies(node)
    return found


def _retype(node: NodeProto) -> None:
    """Make an operator that names its own result type make FP16."""
    for attribute in node.attribute:
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == _SINGLE:
            attribute.i = _HALF
        if node.op_type == "ConstantOfShape" and attribute.HasField("t") and attribute.t.data_type == _SINGLE:
            attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float16)))
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1, np.float16))))
