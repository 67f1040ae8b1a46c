"""ONNX and OpenVINO files as models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.artifact import Form, ModelSource, TensorSpec, sha256_of
from compress.errors import ModelError
from compress.load.inspect import inspect_file
from compress.load.loader import open_source


def model(first: str | int = "N") -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.arange(8, dtype=np.float32).reshape(4, 2), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [first, 2])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_onnx_signature_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"  # the name doesn't count
    onnx.save(model(), path)
    artifact, loaded = open_source(ModelSource(str(path)))
    assert loaded is None
    assert artifact.form is Form.ONNX
    assert artifact.source is None
    assert artifact.signature.inputs == (TensorSpec("x", "float32", ("batch", 4)),)
    assert artifact.signature.outputs == (TensorSpec("y", "float32", ("batch", 2)),)
    assert artifact.sha256 == sha256_of(path)


def test_a_fixed_batch_stays_a_number(tmp_path: Path) -> None:
    onnx.save(model(1), tmp_path / "m.onnx")
    artifact, _ = open_source(ModelSource(str(tmp_path / "m.onnx")))
    assert artifact.signature.inputs[0].shape == (1, 4)


def test_external_data_belongs_to_the_model(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path, save_as_external_data=True, location="m.data", size_threshold=0)
    artifact, _ = open_source(ModelSource(str(path)))
    assert artifact.side_files == (tmp_path / "m.data",)
    assert artifact.size_bytes == path.stat().st_size + 32
    (tmp_path / "m.data").unlink()
    with pytest.raises(ModelError, match=r"m\.data, which is missing"):
        open_source(ModelSource(str(path)))


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    changed = model()
    (tmp_path / "secret").write_bytes(b"x" * 32)
    tensor = changed.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "m.onnx").write_bytes(changed.SerializeToString())
    with pytest.raises(ModelError, match="outside its own folder"):
        open_source(ModelSource(str(tmp_path / "inner" / "m.onnx")))


@pytest.mark.parametrize("content", [b"\x08", b"\x08\x0a" + b"\xff" * 50, b"not a model at all"])
def test_damaged_onnx(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=f"damaged or incomplete file of {len(content)} bytes"):
        open_source(ModelSource(str(path)))


def test_cut_onnx(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    content = model().SerializeToString()
    path.write_bytes(content[: len(content) * 6 // 10])
    with pytest.raises(ModelError, match="damaged or incomplete"):
        open_source(ModelSource(str(path)))


def test_inspect_onnx(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    seen = inspect_file(ModelSource(str(tmp_path / "m.onnx")))
    assert (seen.kind, seen.parameters, dict(seen.dtypes)) == ("onnx", 8, {"float32": 8})
    assert [(layer.name, layer.type, layer.shape) for layer in seen.layers] == [("product", "MatMul", (4, 2))]
    assert seen.notes == ("opset ai.onnx 18",)


def test_openvino(tmp_path: Path) -> None:
    import openvino

    onnx.save(model(), tmp_path / "m.onnx")
    openvino.save_model(openvino.convert_model(tmp_path / "m.onnx"), tmp_path / "m.xml", compress_to_fp16=False)
    artifact, loaded = open_source(ModelSource(str(tmp_path / "m.xml")))
    assert loaded is None
    assert artifact.form is Form.OPENVINO
    assert artifact.signature.inputs == (TensorSpec("x", "float32", ("batch", 4)),)
    assert artifact.signature.outputs == (TensorSpec("y", "float32", ("batch", 2)),)
    assert artifact.side_files == (tmp_path / "m.bin",)
    seen = inspect_file(ModelSource(str(tmp_path / "m.xml")))
    assert seen.kind == "openvino"
    assert seen.parameters == 8
    (tmp_path / "m.bin").unlink()
    with pytest.raises(ModelError, match=r"m\.bin"):
        open_source(ModelSource(str(tmp_path / "m.xml")))
