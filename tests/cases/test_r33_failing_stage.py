"""R33, microsoft/winml-cli#255: success is only said where every promised file is there and opens."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compress.results import Results


@pytest.fixture
def nothing_to_quantize(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=np.maximum(x, 0).argmax(1))
    return tmp_path


def test_one_failing_variant_leaves_the_others_and_exits_4(cli, nothing_to_quantize):
    done = cli(
        "run", "m.onnx", "--data", "d.npz", "--target", "ort-cpu", "--variants", "fp32,int8", "--rounds", 3, "--batch",
        "1", "--out", "r", "--json", cwd=nothing_to_quantize,
    )  # fmt: skip
    assert done.returncode == 4
    assert "int8 could not be made" in done.stderr
    results = Results.model_validate_json(done.stdout)
    plain, failed = results.variants
    assert (plain.verdict.status, failed.verdict.status) == ("best", "failed")
    assert "found no operator to quantize" in failed.verdict.reasons[0]
    assert failed.artifact is None
    assert failed.reasons["latency_ms"] == failed.verdict.reasons[0]
    folder = nothing_to_quantize / "r"
    assert sorted(p.name for p in (folder / "artifacts").iterdir()) == ["best.onnx", "fp32.onnx"]
    listed = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
    assert all((folder / name).stat().st_size > 0 for name in listed if not name.startswith("logs/"))


def test_an_output_folder_that_cannot_be_made(cli, small_model, tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    done = cli("run", small_model, "--target", "ort-cpu", "--out", "file/run", cwd=tmp_path)
    assert done.returncode == 4
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_package_is_named_before_any_work(monkeypatch):
    from compress.errors import UsageError
    from compress.pipeline.plan import choose_target

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs the package openvino. pip install openvino"):
        choose_target("openvino")
