"""Facts read off an ONNX file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnxruntime.transformers.float16 import convert_float_to_float16

from compress.artifact import TensorSpec
from compress.errors import ModelError
from compress.runners.onnx_file import external_files, named_signature, precision_of, quantized_ops, read_signature


def write(path, text):
    onnx.save(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}'), path)
    return path


def matmul(path, element):
    """A file with one MatMul whose weight has the element type given."""
    value = numpy_helper.from_array(np.ones((4, 2), np.float32), "w")
    if element is not TensorProto.FLOAT:
        value = helper.make_tensor("w", element, [4, 2], np.ones(8, np.float32))
    x = helper.make_tensor_value_info("x", element, ["batch", 4])
    y = helper.make_tensor_value_info("y", element, ["batch", 2])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [value])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_first_symbol_is_the_batch_everywhere(tmp_path):
    path = write(tmp_path / "m.onnx", "g (int64[s7,L] ids, float[s7,4] x) => (float[s7,4] y) { y = Relu(x) }")
    signature = read_signature(path)
    assert signature.inputs == (TensorSpec("ids", "int64", ("batch", "L")), TensorSpec("x", "float32", ("batch", 4)))
    assert signature.outputs == (TensorSpec("y", "float32", ("batch", 4)),)


def test_weights_among_the_inputs_are_no_inputs(tmp_path):
    path = write(tmp_path / "m.onnx", "g (float[N,4] x, float[4] w = {1,2,3,4}) => (float[N,4] y) { y = Mul(x, w) }")
    assert [s.name for s in read_signature(path).inputs] == ["x"]


@pytest.mark.parametrize(
    "inputs, outputs, expected",
    [
        ([("x", "float32", [None, 3, None])], [("y", "float32", [None, 2])],
         ["x: float32[batch, 3, x_axis2]", "y: float32[batch, 2]"]),
        ([("x", "float32", ["n", 3])], [("y", "float32", ["2*n", "sn"])],
         ["x: float32[batch, 3]", "y: float32[2*batch, sn]"]),
        ([("x", "float32", [2, 3])], [("y", "float32", [None])], ["x: float32[2, 3]", "y: float32[y_axis0]"]),
        ([("s", "float32", []), ("x", "int64", ["b", 3])], [], ["s: float32[]", "x: int64[batch, 3]"]),
        ([("x", "float32", ["n", "batch"])], [], ["x: float32[n, batch]"]),
    ],
)  # fmt: skip
def test_dimensions_get_names(inputs, outputs, expected):
    signature = named_signature(inputs, outputs)
    assert [str(s) for s in (*signature.inputs, *signature.outputs)] == expected


@pytest.mark.parametrize(
    "element, label", [(TensorProto.FLOAT, "fp32"), (TensorProto.FLOAT16, "fp16"), (TensorProto.BFLOAT16, "bf16")]
)
def test_precision_is_that_of_the_weights(tmp_path, element, label):
    assert precision_of(matmul(tmp_path / "m.onnx", element)) == label
    assert quantized_ops(tmp_path / "m.onnx") == {}


def test_int8_file(int8_onnx):
    assert precision_of(int8_onnx) == "int8 (QDQ)"
    counted = quantized_ops(int8_onnx)
    assert (counted["Conv"], counted["Gemm"]) == (1, 1)


def test_int8_with_the_rest_in_fp16(int8_onnx, tmp_path):
    model = onnx.load(int8_onnx)
    gemm = next(n for n in model.graph.node if n.op_type == "Gemm")
    weights = numpy_helper.from_array(np.ones((1152, 32), np.float16), "half")
    model.graph.initializer.append(weights)
    cast = helper.make_node("Cast", [gemm.input[0]], ["flat_half"], to=TensorProto.FLOAT16)
    gemm.input[:] = ["flat_half", "half"]
    model.graph.node.insert(list(model.graph.node).index(gemm), cast)
    onnx.save(model, tmp_path / "m.onnx")
    assert precision_of(tmp_path / "m.onnx") == "int8+fp16"


def test_int8_file_with_one_operator_left_in_fp32(int8_onnx, tmp_path):
    model = onnx.load(int8_onnx)
    gemm = next(n for n in model.graph.node if n.op_type == "Gemm")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1152, 32), np.float32), "plain"))
    gemm.input[:] = [gemm.input[0], "plain"]
    onnx.save(model, tmp_path / "m.onnx")
    assert precision_of(tmp_path / "m.onnx") == "int8+fp32"
    assert "Gemm" not in quantized_ops(tmp_path / "m.onnx")


def test_integer_operators_are_int8(tmp_path):
    path = write(
        tmp_path / "m.onnx",
        "g (uint8[N,1,4,4] x, int8[1,1,3,3] w) => (int32[N,1,2,2] y) { y = ConvInteger(x, w) }",
    )
    assert precision_of(path) == "int8 (QOperator)"
    assert quantized_ops(path) == {"ConvInteger": 1}


def test_fp16_conversion_with_float_inputs_is_fp16(float_onnx, tmp_path):
    onnx.save(convert_float_to_float16(onnx.load(float_onnx), keep_io_types=True), tmp_path / "m.onnx")
    assert precision_of(tmp_path / "m.onnx") == "fp16"


def test_file_without_weights_has_the_precision_of_its_inputs(tmp_path):
    path = write(tmp_path / "m.onnx", "g (float16[N,4] x) => (float16[N,4] y) { y = Relu(x) }")
    assert precision_of(path) == "fp16"


def test_side_files_are_listed_though_absent(float_onnx, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(onnx.load(float_onnx), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    assert external_files(path) == (tmp_path / "weights.bin",)
    assert precision_of(path) == "fp32"
    assert external_files(float_onnx) == ()


@pytest.mark.parametrize("content", [b"", b"<!DOCTYPE html><html></html>", None])
def test_damaged_file_is_one_sentence(float_onnx, tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(float_onnx.read_bytes()[:9000] if content is None else content)
    with pytest.raises(
        ModelError, match=rf"m\.onnx is no ONNX file, or a damaged or .* \({path.stat().st_size} bytes\)"
    ):
        read_signature(path)


def test_missing_file(tmp_path):
    with pytest.raises(ModelError, match=r"There is no file .*gone\.onnx"):
        precision_of(tmp_path / "gone.onnx")
