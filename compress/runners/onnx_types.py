"""Element types inside an ONNX graph, without running shape inference: enough to tell what an operator works in."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

FLOATS = {
    TensorProto.FLOAT: "fp32",
    TensorProto.FLOAT16: "fp16",
    TensorProto.BFLOAT16: "bf16",
    TensorProto.DOUBLE: "fp64",
}
"""Floating-point element types by the name a report uses."""

_INT8 = frozenset({TensorProto.INT8, TensorProto.UINT8})
_TO_INT64 = frozenset({"Shape", "Size", "NonZero", "ArgMax", "ArgMin"})
_TO_BOOL = frozenset(
    {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or", "Xor", "IsNaN", "IsInf"}
)
_INTEGER = frozenset({"ConvInteger", "MatMulInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm",
                      "QAttention", "QMoE"})  # fmt: skip
_SECOND_OPERAND = frozenset({"Where"})


def is_int8(element_type: int | None) -> bool:
    """Whether an element type is int8 or uint8."""
    return element_type in _INT8


def is_int8_op(node: NodeProto) -> bool:
    """Whether an operator takes 8-bit integers by its definition (``QLinearConv``, ``ConvInteger``, ``QGemm``, …)."""
    return node.op_type in _INTEGER or node.op_type.startswith("QLinear")


def propagate(graph: GraphProto) -> dict[str, int]:
    """Return the element type of every tensor of the top-level graph.

    What the file says (inputs, initializers, value info) comes first. Elsewhere an operator's result is taken to have
    the type of its first operand, but for operators known to change it.
    """
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    types |= {i.name: i.data_type for i in graph.initializer}
    for node in graph.node:
        result = _result(node, types)
        for name in node.output:
            if name and not types.get(name):
                types[name] = result
    return types


def _result(node: NodeProto, types: dict[str, int]) -> int:
    given = [types.get(name, 0) for name in node.input]
    kind = node.op_type
    if kind in _TO_INT64:
        return int(TensorProto.INT64)
    if kind in _TO_BOOL:
        return int(TensorProto.BOOL)
    if kind == "Cast":
        return _integer(node.attribute, "to")
    if kind in ("Constant", "ConstantOfShape"):
        value = next((a.t for a in node.attribute if a.HasField("t")), None)
        return value.data_type if value is not None else int(TensorProto.FLOAT)
    if kind == "QuantizeLinear":
        return given[2] if len(given) > 2 else _integer(node.attribute, "output_dtype") or int(TensorProto.UINT8)
    if kind == "DequantizeLinear":
        return given[1] if len(given) > 1 else 0
    if kind in ("ConvInteger", "MatMulInteger"):
        return int(TensorProto.INT32)
    if kind in _SECOND_OPERAND:
        return given[1]
    return given[0] if given else 0


def _integer(attributes: Iterable[AttributeProto], name: str) -> int:
    return next((int(a.i) for a in attributes if a.name == name), 0)
