"""``inspect``, ``eval`` and ``compare``."""

from __future__ import annotations

import json


def test_eval_any_artifact(cli, finished, small_data, tmp_path):
    for name in ("int8.onnx", "fp16.onnx"):
        done = cli("eval", finished[0] / "artifacts" / name, "--data", small_data, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        entry = json.loads(done.stdout)
        assert entry["metric"]["samples"] == 64
        assert entry["metric"]["value"] >= 90
        assert entry["facts"]["runtime"] == "onnxruntime"


def test_eval_needs_labels(cli, small_model, tmp_path):
    done = cli("eval", small_model, cwd=tmp_path)
    assert done.returncode == 2
    assert "labelled data" in done.stderr


def test_compare_two_files_measures_them_in_turn(cli, finished, small_data, tmp_path):
    folder = finished[0] / "artifacts"
    done = cli(
        "compare", folder / "fp32.onnx", folder / "int8.onnx", "--data", small_data, "--batch", "2", "--rounds", 3,
        "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["a"]["precision"] == "fp32"
    assert found["b"]["precision"] == "int8"
    assert found["b"]["metric"]["drop"] <= 10
    assert [r["batch"] for r in found["speedup_b_over_a"]] == [2]
    assert found["speedup_b_over_a"][0]["low"] <= found["speedup_b_over_a"][0]["ratio"]


def test_compare_two_variants_of_a_run_reads_them(cli, finished):
    done = cli("compare", "run:fp32", "run:int8", cwd=finished[0].parent)
    assert done.returncode == 0, done.stderr
    assert "precision" in done.stdout
    wrong = cli("compare", "run:fp32", "run:nothing", cwd=finished[0].parent)
    assert wrong.returncode == 2
    assert "It has fp32, fp16, int8" in wrong.stderr


def test_inspect(cli, small_model, tmp_path):
    done = cli("inspect", small_model, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kind"] == "onnx"
    assert found["signature"]["inputs"][0]["shape"] == ["batch", 3, 16, 16]
    assert found["parameters"] == 16 * 27 + 32 * 144 + 4 * 32 + 4
    shown = cli("inspect", small_model, cwd=tmp_path)
    assert "x: float32[batch, 3, 16, 16]" in shown.stdout
