"""A file that takes one batch size only goes through the whole job: samples are cut and filled to that size."""

from __future__ import annotations

import json

import numpy as np
import onnx

from compress.passes.feeds import feeds
from compress.results import Results


def _fixed(small_model, folder, size):
    model = onnx.load(small_model)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = size
    onnx.save(model, folder / "fixed.onnx")


def test_every_sample_counts_once_and_its_own_size_is_timed(cli, small_model, small_data, tmp_path):
    _fixed(small_model, tmp_path, 5)
    part = np.load(small_data)
    options = ["--target", "ort-cpu", "--variants", "fp32,int8", "--rounds", "3", "--out", "r", "--json"]
    done = cli("run", "fixed.onnx", "--data", small_data, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = Results.model_validate_json(done.stdout)
    assert results.baseline.metric.samples == len(part["x"]) == 64
    assert results.baseline.metric.value == 100.0
    assert [list(v.latency_ms) for v in results.variants] == [["5"], ["5"]]
    assert any("fixes its batch size at 5" in n for n in results.notes)


def test_calibration_fills_the_last_batch_with_its_last_sample(small_data):
    from compress.artifact import Signature, TensorSpec
    from compress.data.open import open_dataset

    data = open_dataset(str(small_data), None)
    signature = Signature((TensorSpec("x", "float32", (5, 3, 16, 16)),))
    found = list(feeds(data, signature, 16, 7))
    assert [f["x"].shape[0] for f in found] == [5, 5]
    assert (found[1]["x"][2:] == found[1]["x"][1]).all()


def test_compare_times_the_size_that_the_files_take(cli, small_model, tmp_path):
    _fixed(small_model, tmp_path, 5)
    done = cli("compare", "fixed.onnx", "fixed.onnx", "--rounds", 3, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [r["batch"] for r in found["speedup_b_over_a"]] == [5]
    assert found["b"]["fidelity"]["sqnr_db"] == 200.0
