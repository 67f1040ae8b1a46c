"""R28 (microsoft/onnxruntime#23372): a GPU was asked for, its provider didn't start, and the CPU ran in silence."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from compress.artifact import Artifact, Form, Signature, sha256_of
from compress.errors import UsageError
from compress.runners.base import RunOptions
from compress.runners.onnxruntime import OrtRunner
from compress.runners.openvino import OpenVinoRunner
from compress.runners.process import RunnerProcess


@pytest.fixture
def artifact(tmp_path):
    path = tmp_path / "relu.onnx"
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }'
    onnx.save(parser.parse_model(text), path)
    return Artifact(Form.ONNX, path, Signature(()), sha256_of(path))


@pytest.fixture
def without_gpu(artifact, capfd):
    """Skips where CUDA works: then there is nothing to fall back from."""
    session = onnxruntime.InferenceSession(str(artifact.path), providers=["CUDAExecutionProvider"])
    capfd.readouterr()
    if session.get_providers()[0] == "CUDAExecutionProvider":
        pytest.skip("CUDA works here")


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_missing_gpu_is_an_error_and_no_cpu_run(artifact, without_gpu, device, capfd):
    with pytest.raises(UsageError) as caught:
        OrtRunner(artifact, RunOptions(1, device))
    assert caught.value.exit_code == 2
    assert caught.value.message.startswith(f"Device {device} cannot be used: CUDAExecutionProvider did not start (")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_missing_gpu_is_an_error_across_processes(artifact, without_gpu):
    with pytest.raises(UsageError, match="Device cuda:0 cannot be used"):
        RunnerProcess(artifact, RunOptions(1, "cuda:0"))


@pytest.mark.parametrize("device", ["tensorrt", "TensorrtExecutionProvider", "gpu:0", "cuda"])
def test_unknown_devices_are_refused(artifact, device):
    with pytest.raises(UsageError, match=f"no device '{device}' here"):
        OrtRunner(artifact, RunOptions(1, device))


def test_openvino_has_no_cuda(artifact):
    with pytest.raises(UsageError, match="no device 'cuda:0' here"):
        OpenVinoRunner(artifact, RunOptions(1, "cuda:0"))


def test_facts_say_what_the_session_uses(artifact):
    with OrtRunner(artifact, RunOptions(1, "cpu")) as runner:
        facts = runner.facts()
        runner.infer({"x": np.zeros((1, 4), np.float32)})
    assert (facts["device"], facts["providers"]) == ("cpu", ["CPUExecutionProvider"])
