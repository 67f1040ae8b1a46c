"""R31, the model's half: clean data in, NaN or infinity out (microsoft/onnxruntime PR 23749)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compress.artifact import Artifact, Form, Signature, sha256_of
from compress.data.base import Array, Batch
from compress.errors import DataError, StageError
from compress.progress import Quiet
from compress.runners.base import RunOptions
from compress.runners.process import RunnerProcess
from evaluators.accuracy import evaluate
from evaluators.metrics import METRICS


class Samples:
    """Six samples of class 1, in batches."""

    name = "six samples"

    def __init__(self, x: Array) -> None:
        self._x = x

    def __len__(self) -> int:
        return len(self._x)

    def batches(self, size: int, limit: int | None = None) -> Iterator[Batch]:
        for start in range(0, len(self._x), size):
            x = self._x[start : start + size]
            yield Batch({"x": x}, np.ones(len(x), np.int64), len(x))


def model(path: Path, op: str) -> Artifact:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in ("x", "logits")]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["logits"])], "g", infos[:1], infos[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return Artifact(Form.ONNX, path, Signature(()), sha256_of(path))


@pytest.mark.parametrize(
    ("op", "bad", "row"), [("Log", -1.0, 0), ("Sqrt", -4.0, 4), ("Exp", 1000.0, 2), ("Reciprocal", 0.0, 5)]
)
def test_the_model_is_named_and_the_first_batch(tmp_path: Path, op: str, bad: float, row: int) -> None:
    x = np.ones((6, 2), np.float32)
    x[row, 1] = bad
    x[5] = bad
    with (
        RunnerProcess(model(tmp_path / "bad.onnx", op), RunOptions(1)) as process,
        pytest.raises(StageError, match=rf"bad\.onnx makes NaN.*output logits, first in batch {row // 2 + 1}.*clean"),
    ):
        evaluate(process, Samples(x), METRICS["top1"], Quiet(), batch_size=2)  # type: ignore[arg-type]


def test_bad_data_isnt_the_models_fault(tmp_path: Path) -> None:
    x = np.ones((6, 2), np.float32)
    x[3, 0] = np.nan
    with (
        RunnerProcess(model(tmp_path / "good.onnx", "Identity"), RunOptions(1)) as process,
        pytest.raises(DataError, match="Batch 2 holds NaN or infinity in input x"),
    ):
        evaluate(process, Samples(x), METRICS["top1"], Quiet(), batch_size=2)  # type: ignore[arg-type]
