"""Running ONNX files in onnxruntime."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from onnxruntime.transformers.float16 import convert_float_to_float16

from compress.artifact import Artifact, Form, Signature
from compress.errors import ModelError, UsageError
from compress.runners.base import RunOptions
from compress.runners.onnx_file import read_signature
from compress.runners.onnxruntime import OrtRunner, _sentence
from compress.runners.onnxruntime_graph import count_ops, executed_ops


def artifact(path):
    return Artifact(Form.ONNX, path, Signature(()), "")


def images(count):
    return {"image": np.random.default_rng(count).standard_normal((count, 3, 8, 8)).astype(np.float32)}


def test_outputs_by_name_at_any_batch_size(float_onnx):
    model = onnx.load(float_onnx)
    w, v = (onnx.numpy_helper.to_array(i) for i in model.graph.initializer)
    with OrtRunner(artifact(float_onnx), RunOptions(2)) as runner:
        assert runner.signature == read_signature(float_onnx)
        for count in (1, 3, 8):
            made = runner.infer(images(count))
            windows = np.lib.stride_tricks.sliding_window_view(images(count)["image"], (3, 3), (2, 3))
            features = np.einsum("nchwij,ocij->nohw", windows, w)
            assert list(made) == ["scores", "features"]
            np.testing.assert_allclose(made["features"], features, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(
                made["scores"], np.maximum(features, 0).reshape(count, -1) @ v, rtol=1e-3, atol=1e-4
            )


def test_facts_come_from_the_session(float_onnx):
    with OrtRunner(artifact(float_onnx), RunOptions(2)) as runner:
        facts = runner.facts()
    assert facts["runtime"] == "onnxruntime"
    assert facts["version"] == onnxruntime.__version__
    assert (facts["device"], facts["threads"], facts["providers"]) == ("cpu", 2, ["CPUExecutionProvider"])
    assert set(facts["precisions"]) == {"float32"}
    assert facts["conversions"] == {}


def test_int8_operators_are_counted_after_the_optimizer(int8_onnx):
    with OrtRunner(artifact(int8_onnx), RunOptions(1)) as runner:
        facts = runner.facts()
    assert facts["operators"]["QLinearConv"] == 1
    assert facts["operators"]["QGemm"] == 1
    assert facts["precisions"]["int8"] >= 2
    assert facts["conversions"]["QuantizeLinear"] >= 1


def test_fp16_file_is_seen_to_run_in_fp32(float_onnx, tmp_path):
    path = tmp_path / "half.onnx"
    onnx.save(convert_float_to_float16(onnx.load(float_onnx), keep_io_types=True), path)
    with OrtRunner(artifact(path), RunOptions(1)) as runner:
        facts = runner.facts()
    assert facts["precisions"] == {"float32": 3, "float16": 2}  # Conv and Gemm in FP32, Relu and Flatten in FP16
    assert facts["conversions"] == {"Cast": 5}


def test_left_over_conversions_are_counted_apart():
    graph = parser.parse_graph(
        "g (float[N,4] x, float s, uint8 z, float[4,2] w) => (float[N,2] y) "
        "{ q = QuantizeLinear(x, s, z)  p = Identity(q)  d = DequantizeLinear(p, s, z) "
        "  n = Shape(x)  y = MatMul(d, w) }"
    )
    assert count_ops(graph) == {
        "precisions": {"int8": 1, "float32": 1},
        "conversions": {"DequantizeLinear": 1, "QuantizeLinear": 1},
        "operators": {"QuantizeLinear": 1, "Identity": 1, "DequantizeLinear": 1, "Shape": 1, "MatMul": 1},
    }


def test_unreadable_graph_says_why(tmp_path):
    found = executed_ops(tmp_path / "gone.onnx", ["CPUExecutionProvider"])
    assert found["precisions"] == {}
    assert "the optimized graph could not be read" in found["precisions_reason"]


def test_bound_function_runs_on_its_own_inputs(float_onnx):
    with OrtRunner(artifact(float_onnx), RunOptions(1)) as runner:
        small, large = runner.bind(images(1)), runner.bind(images(5))
        assert (small(), large(), small()) == (None, None, None)


def test_int64_inputs_stay_int64(tmp_path):
    path = tmp_path / "m.onnx"
    text = "g (int64[N,L] ids, float[9,2] table) => (float[N,L,2] y) { y = Gather(table, ids) }"
    onnx.save(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}'), path)
    with OrtRunner(artifact(path), RunOptions(1)) as runner:
        assert [s.dtype for s in runner.signature.inputs] == ["int64", "float32"]
        table = np.arange(18, dtype=np.float32).reshape(9, 2)
        made = runner.infer({"table": table, "ids": np.array([[8, 0]])})["y"]
        np.testing.assert_array_equal(made, [[[16, 17], [0, 1]]])
        with pytest.raises(ModelError, match="Input ids must be int64, not int32"):
            runner.infer({"table": table, "ids": np.array([[8, 0]], np.int32)})


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 4, 8, 8)])
def test_wrong_shape_is_one_sentence(float_onnx, shape):
    with OrtRunner(artifact(float_onnx), RunOptions(1)) as runner:
        for run in (runner.infer, lambda inputs: runner.bind(inputs)()):
            with pytest.raises(ModelError) as caught:
                run({"image": np.zeros(shape, np.float32)})
            assert f"cnn.onnx does not run on image {list(shape)}" in caught.value.message
            assert "ONNXRuntimeError" not in str(caught.value)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 100, 20000])
def test_damaged_file(float_onnx, tmp_path, size):
    path = tmp_path / "cut.onnx"
    path.write_bytes(float_onnx.read_bytes()[:size])
    with pytest.raises(ModelError, match=rf"is no ONNX file, or a damaged or incomplete one \({size} bytes\)"):
        OrtRunner(artifact(path), RunOptions(1))


def test_missing_side_file_is_named(float_onnx, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(onnx.load(float_onnx), path, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    with OrtRunner(artifact(path), RunOptions(1)) as runner:
        assert runner.infer(images(1))["scores"].shape == (1, 32)
    (tmp_path / "m.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"needs the file m\.onnx\.data beside it"):
        OrtRunner(artifact(path), RunOptions(1))


def test_operator_without_a_kernel_is_named(tmp_path):
    path = tmp_path / "m.onnx"
    text = "g (double[N,1,4,4] x, double[1,1,3,3] w) => (double[N,1,2,2] y) { y = Conv(x, w) }"
    onnx.save(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}'), path)
    with pytest.raises(ModelError, match="it has no kernel for an operator Conv with these element types"):
        OrtRunner(artifact(path), RunOptions(1))


@pytest.mark.parametrize("device", ["tensorrt", "gpu", "cuda", "cuda:x"])
def test_unknown_device_is_refused(float_onnx, device):
    with pytest.raises(UsageError, match=f"onnxruntime has no device '{device}'"):
        OrtRunner(artifact(float_onnx), RunOptions(1, device))


def test_close_frees_the_session(float_onnx):
    runner = OrtRunner(artifact(float_onnx), RunOptions(1))
    session = weakref.ref(runner._session)
    runner.close()
    runner.close()
    gc.collect()
    assert session() is None


def test_error_texts_lose_their_source_file():
    text = "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code\nsecond line"
    assert _sentence(RuntimeError(text)) == "Non-zero status code."
    assert _sentence(RuntimeError("/onnxruntime_src/a.cc:12 void f(int&) No device")) == "No device."
