"""Fixtures that many tests share."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Listen to Ctrl-C even where the tests were started in the background, which makes shells have it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real inputs beside the checkout (CIFAR-10, user models, STS-B); tests that need them are skipped without."""
    folder = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data beside the checkout ({folder})")
    return folder


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional classifier as an ONNX file: quick to start, since no process needs torch for it.

    Its last bias is such that all four classes come up.
    """
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        return numpy_helper.from_array((rng.standard_normal(shape) * scale).astype(np.float32), name)

    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w1"], ["a"], name="stem", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"], name="relu1"),
            helper.make_node("Conv", ["b", "w2"], ["c"], name="body", pads=[1, 1, 1, 1], strides=[2, 2]),
            helper.make_node("Relu", ["c"], ["d"], name="relu2"),
            helper.make_node("GlobalAveragePool", ["d"], ["e"], name="pool"),
            helper.make_node("Flatten", ["e"], ["f"], name="flatten"),
            helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], name="head", transB=1),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [weight("w1", 16, 3, 3, 3), weight("w2", 32, 16, 3, 3), weight("w3", 4, 32), weight("b3", 4)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    bias = numpy_helper.to_array(graph.initializer[3]) - session.run(None, {"x": _small_inputs()})[0].mean(0)
    model.graph.initializer[3].CopyFrom(numpy_helper.from_array(bias, "b3"))
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="session")
def small_data(small_model: Path) -> Path:
    """64 samples labelled by the small model itself, so that its accuracy is 100 %; every class is there."""
    import onnxruntime

    x = _small_inputs()
    session = onnxruntime.InferenceSession(str(small_model), providers=["CPUExecutionProvider"])
    labels = session.run(None, {"x": x})[0].argmax(1)
    rows = np.concatenate([np.flatnonzero(labels == label)[:16] for label in np.unique(labels)])
    path = small_model.parent / "small.npz"
    np.savez(path, x=x[rows], y=labels[rows])
    return path


def _small_inputs() -> np.ndarray:
    rng = np.random.default_rng(1)
    return (rng.standard_normal((512, 3, 1, 1)) + 0.5 * rng.standard_normal((512, 3, 16, 16))).astype(np.float32)


@pytest.fixture(scope="session")
def cli() -> Cli:
    """Call ``compress`` with arguments; ``cwd`` is where it runs."""

    def call(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from compress.cli import main; main()", *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", check=False)

    return call


@pytest.fixture(scope="session")
def finished(cli: Cli, small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory):
    """One finished run with three variants: its folder and what the command printed."""
    folder = tmp_path_factory.mktemp("finished")
    # What INT8 slows down is left in float by the clock, and a test must not depend on it.
    options = ["--target", "ort-cpu", "--batch", "1,4", "--rounds", "3", "--out", "run", "--json"]
    options += ["--variants", "fp32,fp16,int8=int8:measure=false"]
    done = cli("run", small_model, "--data", small_data, *options, cwd=folder)
    return folder / "run", done


@pytest.fixture(scope="session")
def float_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CNN in FP32: ``image`` float32 [N, 3, 8, 8] to ``scores`` [N, 32] and ``features`` [N, 32, 6, 6]."""
    import onnx
    from onnx import helper, numpy_helper

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
def int8_onnx(float_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in INT8, in Q/DQ form, by the scheme of the CPU targets."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

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
