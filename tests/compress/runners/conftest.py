"""ONNX files to run."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static


@pytest.fixture(scope="session")
def float_onnx(tmp_path_factory) -> Path:
    """A CNN in FP32: ``image`` float32 [N, 3, 8, 8] to ``scores`` [N, 32] and ``features`` [N, 32, 6, 6]."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((32, 3, 3, 3)) / 5, "v": rng.standard_normal((1152, 32)) / 30}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "w"], ["features"], "conv"),
            helper.make_node("Relu", ["features"], ["positive"], "relu"),
            helper.make_node("Flatten", ["positive"], ["flat"], "flatten"),
            helper.make_node("Gemm", ["flat", "v"], ["scores"], "gemm"),
        ],
        "cnn",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["N", 3, 8, 8])],
        [
            helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["N", 32]),
            helper.make_tensor_value_info("features", onnx.TensorProto.FLOAT, ["N", 32, 6, 6]),
        ],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    path = tmp_path_factory.mktemp("float") / "cnn.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.fixture(scope="session")
def int8_onnx(float_onnx, tmp_path_factory) -> Path:
    """The same in INT8, in Q/DQ form, by the scheme of the CPU targets."""

    class Images(CalibrationDataReader):
        def __init__(self):
            rng = np.random.default_rng(1)
            self.images = iter([{"image": rng.standard_normal((8, 3, 8, 8)).astype(np.float32)} for _ in range(2)])

        def get_next(self):
            return next(self.images, None)

    path = tmp_path_factory.mktemp("int8") / "cnn.onnx"
    logging.disable(logging.WARNING)
    quantize_static(
        float_onnx,
        path,
        Images(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    logging.disable(logging.NOTSET)
    return path
