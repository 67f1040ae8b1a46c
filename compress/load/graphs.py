"""Opening ONNX and OpenVINO files: only their description is read here, a runner loads the rest."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.artifact import BATCH, Dim, Signature, TensorSpec
from compress.errors import ModelError
from compress.load.kinds import damaged

if TYPE_CHECKING:
    import onnx


def read_onnx(path: Path) -> onnx.ModelProto:
    """Read an ONNX file without its external data.

    Raises:
        ModelError: The file is no ONNX model, or damaged.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise damaged(path, "it cannot be read as an ONNX model") from error
    if not model.graph.node or not model.graph.output or not model.opset_import:
        raise damaged(path, "as an ONNX model it has no graph")
    return model


def onnx_side_files(path: Path, model: onnx.ModelProto) -> tuple[Path, ...]:
    """Return the files that hold a model's external data, in the order of first use.

    Raises:
        ModelError: One is missing, or lies outside the model's folder.
    """
    from onnx.external_data_helper import uses_external_data

    names: dict[str, None] = {}
    for tensor in _tensors(model.graph):
        if uses_external_data(tensor):
            names |= {e.value: None for e in tensor.external_data if e.key == "location"}
    folder = path.resolve().parent
    files = []
    for name in names:
        file = path.parent / name
        if folder not in file.resolve().parents:
            raise ModelError(
                f"{path} keeps weights in {name}, outside its own folder.", "Save it with its data beside it."
            )
        if not file.is_file():
            raise ModelError(
                f"{path} keeps weights in {name}, which is missing beside it.", f"Put {name} into {folder}."
            )
        files.append(file)
    return tuple(files)


def onnx_signature(model: onnx.ModelProto) -> Signature:
    """Return a model's inputs and outputs; the symbol of the first input's first axis becomes ``"batch"``."""
    stored = {t.name for t in model.graph.initializer}
    inputs = [_onnx_spec(v) for v in model.graph.input if v.name not in stored]
    return _with_batch(inputs, [_onnx_spec(v) for v in model.graph.output])


def openvino_files(path: Path) -> tuple[Path, ...]:
    """Return the side files of an OpenVINO model: its ``.bin``.

    Raises:
        ModelError: There is none beside it.
    """
    weights = path.with_suffix(".bin")
    if not weights.is_file():
        raise ModelError(f"{path} needs its weights {weights.name}, which are missing beside it.")
    return (weights,)


def openvino_signature(path: Path) -> Signature:
    """Return the inputs and outputs of an OpenVINO model.

    Raises:
        ModelError: The file is damaged.
    """
    import openvino

    try:
        ElementTree.parse(path)  # noqa: S314 - the user's own file; openvino parses it next
        model = openvino.Core().read_model(path)
    except (RuntimeError, ElementTree.ParseError) as error:
        raise damaged(path, "it cannot be read as an OpenVINO model") from error
    return _with_batch([_openvino_spec(p) for p in model.inputs], [_openvino_spec(p) for p in model.outputs])


def _tensors(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    found = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                found.append(attribute.t)
            found += attribute.tensors
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                found += _tensors(inner)
    return found


def _onnx_spec(value: onnx.ValueInfoProto) -> TensorSpec:
    import onnx

    kind = value.type.tensor_type
    if not kind.elem_type:
        raise ModelError(f"'{value.name}' of the ONNX model is no tensor; only tensors are supported.")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name
    shape: list[Dim] = [
        int(d.dim_value) if d.HasField("dim_value") else d.dim_param or f"{value.name}_dim{axis}"
        for axis, d in enumerate(kind.shape.dim)
    ]
    return TensorSpec(value.name, dtype, tuple(shape))


def _openvino_spec(port: Any) -> TensorSpec:
    name = port.get_any_name() if port.get_names() else port.get_node().get_friendly_name()
    shape: list[Dim] = [
        int(d.get_length()) if d.is_static else _symbol(d, name, axis)
        for axis, d in enumerate(port.get_partial_shape())
    ]
    dtype = port.get_element_type()
    return TensorSpec(name, "bool" if dtype.get_type_name() == "boolean" else dtype.to_dtype().name, tuple(shape))


def _symbol(dim: Any, name: str, axis: int) -> str:
    """Name a dynamic axis; OpenVINO's files keep no names, so a first axis is taken for the batch."""
    return BATCH if axis == 0 else f"{name}_dim{axis}"


def _with_batch(inputs: list[TensorSpec], outputs: list[TensorSpec]) -> Signature:
    symbol = next((s.shape[0] for s in inputs if s.shape and isinstance(s.shape[0], str)), None)

    def renamed(spec: TensorSpec) -> TensorSpec:
        shape = tuple(BATCH if d == symbol else f"{d}_" if d == BATCH else d for d in spec.shape)
        return TensorSpec(spec.name, spec.dtype, shape)

    return Signature(tuple(map(renamed, inputs)), tuple(map(renamed, outputs)))
