"""Facts read off an ONNX file: signature, precision, quantized operators, side files. Side files aren't read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from compress.artifact import BATCH, Dim, Signature, TensorSpec
from compress.errors import ModelError
from compress.runners.onnx_types import FLOATS, is_int8, is_int8_op, propagate

COMPUTE = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "FusedConv", "FusedGemm", "FusedMatMul", "NhwcFusedConv"}
)
"""Operators whose precision is the precision of a file."""

RawSpec = tuple[str, str, Sequence[int | str | None]]
"""Name, NumPy's name of the element type, dimensions; None for one without size or symbol."""


def read_proto(path: Path) -> onnx.ModelProto:
    """Read the graph of an ONNX file; weights in side files aren't read.

    Raises:
        ModelError: The file is missing, damaged, or no ONNX file.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError as error:
        raise ModelError(f"There is no file {path}.") from error
    except DecodeError as error:
        raise damaged(path) from error
    if not model.graph.output:
        raise damaged(path)
    return model


def damaged(path: Path) -> ModelError:
    """Return the error for a file that cannot be parsed."""
    size = path.stat().st_size if path.is_file() else 0
    return ModelError(
        f"{path} is no ONNX file, or a damaged or incomplete one ({size} bytes).", "Export or download it again."
    )


def read_signature(path: Path) -> Signature:
    """Return inputs and outputs, in the graph's order, with the batch axis called ``batch``.

    Raises:
        ModelError: The file is missing, damaged, or no ONNX file.
    """
    graph = read_proto(path).graph
    weights = {i.name for i in graph.initializer}
    return named_signature([_raw(i) for i in graph.input if i.name not in weights], [_raw(o) for o in graph.output])


def named_signature(inputs: Sequence[RawSpec], outputs: Sequence[RawSpec]) -> Signature:
    """Give every dimension a size or a symbol.

    The first axis of the first input that has axes is the batch, if it isn't fixed: its symbol becomes ``batch``
    wherever it stands, also inside expressions such as ``2*s77``. First axes without a symbol are the batch as well.
    Other axes without a symbol are called after their tensor.
    """
    first = next((dims[0] for _, _, dims in inputs if dims), 1)
    taken = any(dim == BATCH for _, _, dims in (*inputs, *outputs) for dim in dims)
    rename = {first: BATCH} if isinstance(first, str) and not taken else {}

    def dim(name: str, axis: int, size: int | str | None) -> Dim:
        if isinstance(size, str):
            return replace_symbols(size, rename)
        if size is None:
            return BATCH if axis == 0 and not isinstance(first, int) else f"{name}_axis{axis}"
        return size

    def specs(raw: Sequence[RawSpec]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(n, t, tuple(dim(n, i, d) for i, d in enumerate(dims))) for n, t, dims in raw)

    return Signature(specs(inputs), specs(outputs))


def replace_symbols(dim: str, names: Mapping[str, str]) -> str:
    """Replace whole symbols in a dimension, which may be an expression such as ``2*s77``."""
    return names.get(dim) or re.sub(r"[A-Za-z_]\w*", lambda m: names.get(m[0], m[0]), dim)


def precision_of(path: Path) -> str:
    """Return the precision a file holds: ``fp32``, ``fp16``, ``bf16``, ``int8 (QDQ)``, or a mix such as ``int8+fp16``.

    It is that of the operators that compute (convolutions and matrix products): INT8 where both operands come out of a
    DequantizeLinear or the operator itself is an integer one, else that of the weight. Without such operators it is
    that of the weights, without weights that of the inputs.

    Raises:
        ModelError: The file is missing, damaged, or no ONNX file.
    """
    graph = read_proto(path).graph
    types = propagate(graph)
    made_by = {name: node for node in graph.node for name in node.output}
    found: set[str] = set()
    styles: set[str] = set()
    for node in graph.node:
        if is_int8_op(node):
            found.add("int8")
            styles.add("QOperator")
        elif node.op_type in COMPUTE:
            if _quantized(node, made_by, types):
                found.add("int8")
                styles.add("QDQ")
            else:
                found |= {FLOATS[types[n]] for n in node.input[:2] if types.get(n) in FLOATS}
    found = found or {FLOATS[i.data_type] for i in graph.initializer if i.data_type in FLOATS}
    found = found or {FLOATS[types[i.name]] for i in graph.input if types.get(i.name) in FLOATS}
    if found == {"int8"}:
        return f"int8 ({'+'.join(sorted(styles))})"
    return "+".join(p for p in ("int8", "fp16", "bf16", "fp32", "fp64") if p in found) or "unknown"


def quantized_ops(path: Path) -> dict[str, int]:
    """Count the operators that work on INT8 values, by type: most frequent first.

    An operator counts where its first two operands (or its only one) come out of a DequantizeLinear, or where it is an
    integer operator itself.

    Raises:
        ModelError: The file is missing, damaged, or no ONNX file.
    """
    graph = read_proto(path).graph
    types = propagate(graph)
    made_by = {name: node for node in graph.node for name in node.output}
    counts = Counter(n.op_type for n in graph.node if is_int8_op(n) or _quantized(n, made_by, types))
    return dict(counts.most_common())


def external_files(path: Path) -> tuple[Path, ...]:
    """Return the files beside an ONNX file that hold its weights, in order of first use; they need not exist.

    Raises:
        ModelError: The file is missing, damaged, or no ONNX file.
    """
    names = (
        entry.value
        for tensor in _tensors(read_proto(path).graph)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    )
    return tuple(path.parent / name for name in dict.fromkeys(names))


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)


def _raw(value: onnx.ValueInfoProto) -> RawSpec:
    tensor = value.type.tensor_type
    name = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name if tensor.elem_type else "unknown"
    dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    return value.name, name, dims


def _quantized(node: onnx.NodeProto, made_by: Mapping[str, onnx.NodeProto], types: Mapping[str, int]) -> bool:
    """Whether the first two operands, or the only one, are dequantized from INT8. Q and DQ themselves don't count."""
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        return False
    operands = [n for n in node.input[: 2 if len(node.input) > 1 and node.op_type not in _ONE_OPERAND else 1] if n]
    sources = [made_by.get(name) for name in operands]
    return bool(sources) and all(
        s is not None and s.op_type == "DequantizeLinear" and is_int8(types.get(s.input[0])) for s in sources
    )


_ONE_OPERAND = frozenset({"Clip", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Pad", "Resize", "Split", "ReduceMean",
                          "Gather", "Expand", "Tile"})  # fmt: skip
"""Operators whose further inputs are settings, not operands."""
