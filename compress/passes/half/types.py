"""Which inputs and outputs of each operator may be FP16, by the operator's own schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import onnx
from onnx import TensorProto

from compress.passes.onnx_models import copy_of, opset_of
from compress.runners.onnx_types import propagate

_FLOAT16 = "tensor(float16)"
_LARGE = 1 << 12
"""Bytes from which a constant is no shape or axis, and inference needs no values of it."""


@dataclasses.dataclass(frozen=True)
class Slots:
    """Positions of an operator's float32 inputs and outputs that FP16 may replace; all of them change together."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def lift_constants(model: onnx.ModelProto) -> None:
    """Turn Constant nodes that hold a tensor into initializers, in place, so that there is one kind of constant."""
    kept = []
    for node in model.graph.node:
        value = next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)
        if node.op_type == "Constant" and value is not None:
            tensor = onnx.TensorProto()
            tensor.CopyFrom(value)
            tensor.name = node.output[0]
            model.graph.initializer.append(tensor)
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)


def element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Return the element type of every tensor of the top-level graph."""
    bare = copy_of(model)
    for tensor in bare.graph.initializer:
        if len(tensor.raw_data) > _LARGE:  # types and shapes need no values of weights
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="none")
    try:
        inferred = onnx.shape_inference.infer_shapes(bare)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        inferred = model
    return propagate(inferred.graph)


def half_slots(model: onnx.ModelProto, types: Mapping[str, int]) -> dict[str, Slots]:
    """Return, by name of node, what FP16 may replace; operators that have no FP16 form, or need none, are left out.

    An operator with float32 operands qualifies where its schema allows FP16 for one of them. Those with a body of their
    own (If, Loop), those of unknown domains, and those that onnxruntime's converter never converts are left out.
    """
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST

    opset = opset_of(model)
    found = {}
    for node in model.graph.node:
        if node.op_type in DEFAULT_OP_BLOCK_LIST or bodies(node):
            continue
        schema = _schema(node, opset)
        if schema is None:
            continue
        halves = {c.type_param_str for c in schema.type_constraints if _FLOAT16 in c.allowed_type_strs}
        inputs = _positions(node.input, schema.inputs, halves, types)
        outputs = _positions(node.output, schema.outputs, halves, types)
        if inputs or (outputs and node.op_type in _MAKERS):
            found[node.name] = Slots(inputs, outputs)
    return found


_MAKERS = frozenset({"Cast", "ConstantOfShape"})
"""Operators that make float32 of something else, and can make FP16 as well."""


def floats(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return the float32 initializers that hold a value."""
    return {t.name: t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and all(t.dims)}


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs that an operator holds, as If and Loop do."""
    return [g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs)]


def _schema(node: onnx.NodeProto, opset: int) -> onnx.defs.OpSchema | None:
    if node.domain not in ("", "ai.onnx"):
        return None
    try:
        return onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return None


def _positions(
    names: Sequence[str], formal: Sequence[onnx.defs.OpSchema.FormalParameter], halves: set[str],
    types: Mapping[str, int],
) -> tuple[int, ...]:  # fmt: skip
    """Return the positions that are float32 and may be FP16; the last formal parameter may stand for several."""
    return tuple(
        i
        for i, name in enumerate(names)
        if name
        and types.get(name) == TensorProto.FLOAT
        and formal
        and formal[min(i, len(formal) - 1)].type_str in halves
    )
