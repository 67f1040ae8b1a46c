"""R28: a GPU was asked for and the CPU used (microsoft/onnxruntime#23372). Measurements carry the right label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compress.artifact import Artifact, Form, Signature, sha256_of
from compress.data.base import Array
from compress.errors import UsageError
from compress.progress import Quiet
from compress.runners.base import RunOptions
from compress.runners.process import RunnerProcess
from compress.runners.timing import Timing
from compress.runners.worker import check_device
from evaluators.harness import Subject, measure

NO_SUCH_GPU = RunOptions(1, "cuda:63")


def relu(path: Path) -> Artifact:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return Artifact(Form.ONNX, path, Signature(()), sha256_of(path))


def ones(signature: Signature, batch: int) -> dict[str, Array]:
    return {spec.name: np.ones((batch, 4), np.float32) for spec in signature.inputs}


@pytest.mark.parametrize("target", [None, "openvino"])
def test_a_device_that_isnt_there_is_an_error(tmp_path: Path, target: str | None) -> None:
    with pytest.raises(UsageError, match=r"cuda:63|'cuda:63'"):
        RunnerProcess(relu(tmp_path / "m.onnx"), NO_SUCH_GPU, target=target)


def test_nothing_is_measured_under_a_wrong_label(tmp_path: Path) -> None:
    subject = Subject("gpu", relu(tmp_path / "m.onnx"))
    found = measure([subject], (1,), 2, NO_SUCH_GPU, ones, Quiet(), 0)["gpu"]
    assert found.rounds == {}
    assert found.memory is None
    assert "cuda:63" in str(found.failure)


def test_labels_are_the_runtimes(tmp_path: Path) -> None:
    short = Timing(min_seconds=0, min_runs=2, warmup_seconds=0)
    subject = Subject("cpu", relu(tmp_path / "m.onnx"))
    facts = measure([subject], (1,), 2, RunOptions(1), ones, Quiet(), 0, timing=short)["cpu"].facts
    assert facts["device"] == "cpu"
    assert facts["providers"] == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("asked", "facts", "fine"),
    [
        ("cuda:0", {"device": "cpu", "providers": ["CPUExecutionProvider"]}, False),
        ("cpu", {"device": "cuda:0"}, False),
        ("cuda:0", {}, False),
        ("cpu", {}, False),
        ("cuda:0", {"device": "cuda:0"}, True),
        ("cuda:0", {"device": "NVIDIA H100 (GPU)"}, True),
        ("cpu", {"device": "Intel(R) Xeon(R) CPU"}, True),
    ],
)
def test_what_the_runtime_says_decides(asked: str, facts: dict[str, Any], fine: bool) -> None:
    if fine:
        check_device(asked, facts, "m.onnx")
        return
    with pytest.raises(UsageError, match=rf"{asked} was asked for, but m\.onnx runs on"):
        check_device(asked, facts, "m.onnx")
