"""R27: speed comes from time alone, never from zeros, operations or file size (microsoft/onnxruntime#20052)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn.utils import prune

from compress.artifact import Artifact, Form, Signature, sha256_of
from compress.data.base import Array
from compress.progress import Quiet
from compress.runners.base import RunOptions
from compress.runners.process import RunnerProcess
from evaluators.harness import Subject, measure
from evaluators.statistics import inside_noise, latency, outcome, paired_ratio


def rounds_at(milliseconds: float, seed: int, spread: float = 0.03) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [list(milliseconds * np.exp(rng.normal(0, spread, 20) + rng.normal(0, spread))) for _ in range(7)]


def conv(path: Path, weight: np.ndarray) -> Artifact:
    shapes = [("x", ["batch", 8, 6, 6]), ("y", ["batch", 8, 4, 4])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes]
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return Artifact(Form.ONNX, path, Signature(()), sha256_of(path))


def test_masks_that_change_no_shape_show_no_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.nn.Conv2d(8, 8, 3)
    dense = layer.weight.detach().numpy().copy()
    prune.random_unstructured(layer, "weight", amount=0.8)
    masked = layer.weight.detach().numpy()
    assert np.mean(masked == 0) == pytest.approx(0.8, abs=0.01)
    clock = iter(range(1000))
    monkeypatch.setattr(RunnerProcess, "time", lambda *_: rounds_at(2.0, next(clock))[0])
    subjects = [
        Subject("dense", conv(tmp_path / "d.onnx", dense)),
        Subject("masked", conv(tmp_path / "m.onnx", masked)),
    ]

    def ones(signature: Signature, batch: int) -> dict[str, Array]:
        return {"x": np.ones((batch, 8, 6, 6), np.float32)}

    found = measure(subjects, (1,), 7, RunOptions(1), ones, Quiet(), 0)
    ratio = paired_ratio(found["dense"].rounds[1], found["masked"].rounds[1], batch=1)
    assert inside_noise(ratio)
    assert outcome(ratio) == "no difference shown"
    sizes = [found[name].memory.file for name in ("dense", "masked")]  # type: ignore[union-attr]
    assert sizes[0] == pytest.approx(sizes[1])


@pytest.mark.parametrize(
    ("base", "variant", "wanted"),
    [(1.0, 1.4, "slower"), (1.0, 4.0, "slower"), (1.0, 1.005, "no difference shown"), (3.0, 1.0, "faster")],
)
def test_a_slow_down_is_called_one_with_its_spread(base: float, variant: float, wanted: str) -> None:
    ratio = paired_ratio(rounds_at(base, 2), rounds_at(variant, 3), batch=1)
    assert outcome(ratio) == wanted
    assert ratio.low < ratio.ratio < ratio.high
    assert ratio.ratio == pytest.approx(base / variant, rel=0.06)
    found = latency(rounds_at(variant, 3))
    assert found.p99 > found.median
    assert len(found.rounds) == 7
