"""R19 (microsoft/onnxruntime#15888): a quantizer writes a file without complaint, and no session can be made of it.

Whether the CPU has the integer convolution depends on onnxruntime's version, so the file must either run, and be called
what it is, or be refused by an error that names the operator.
"""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from onnxruntime.quantization import QuantType, quantize_dynamic

from compress.artifact import Artifact, Form, Signature, sha256_of
from compress.errors import ModelError, StageError
from compress.progress import Quiet
from compress.runners.base import RunOptions
from compress.runners.onnx_file import precision_of, quantized_ops, read_signature
from compress.runners.onnxruntime import OrtRunner
from compress.runners.verify import make_verifier

IMAGE = {"image": np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)}


def artifact(path, signature=None):
    return Artifact(Form.ONNX, path, signature or read_signature(path), sha256_of(path))


@pytest.fixture
def cnn(tmp_path):
    weight = numpy_helper.from_array(np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "w"], ["y"], "conv")],
        "cnn",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4, 6, 6])],
        [weight],
    )
    path = tmp_path / "cnn.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.mark.parametrize("weights", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_file_runs_as_what_it_is_or_is_refused_by_name(cnn, tmp_path, weights, per_channel):
    path = tmp_path / "dynamic.onnx"
    logging.disable(logging.WARNING)
    quantize_dynamic(cnn, path, weight_type=weights, per_channel=per_channel)
    logging.disable(logging.NOTSET)
    assert precision_of(path) == "int8 (QOperator)"
    assert quantized_ops(path) == {"ConvInteger": 1}
    try:
        with OrtRunner(artifact(path), RunOptions(1)) as runner:
            made, facts = runner.infer(IMAGE)["y"], runner.facts()
    except ModelError as error:
        assert "ConvInteger" in error.message
        assert error.exit_code == 3
        return
    assert facts["precisions"]["int8"] == 1
    assert facts["conversions"]["DynamicQuantizeLinear"] == 1
    with OrtRunner(artifact(cnn), RunOptions(1)) as runner:
        wanted = runner.infer(IMAGE)["y"]
    assert np.sum((made - wanted) ** 2) < 0.01 * np.sum(wanted**2)


@pytest.mark.parametrize(
    "operator, text",
    [
        ("Conv", "g (double[N,1,4,4] x, double[1,1,3,3] w) => (double[N,1,2,2] y) { y = Conv(x, w) }"),
        ("AveragePool", "g (double[N,1,4,4] x) => (double[N,1,2,2] y) { y = AveragePool<kernel_shape = [3, 3]>(x) }"),
    ],
)
def test_operator_without_a_kernel_is_named_and_stops_the_stage(cnn, tmp_path, operator, text):
    path = tmp_path / "none.onnx"
    onnx.save(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}'), path)
    with pytest.raises(ModelError, match=f"has no kernel for an operator {operator}") as caught:
        OrtRunner(artifact(path), RunOptions(1))
    assert "ONNXRuntimeError" not in str(caught.value)
    verify = make_verifier(RunOptions(1), tmp_path, None, 0, Quiet())
    with pytest.raises((ModelError, StageError), match=operator):
        verify(artifact(path, Signature(())), artifact(cnn))
