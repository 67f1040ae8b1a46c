"""``compress run`` from end to end on a small model."""

from __future__ import annotations

import hashlib
import json

import jsonschema
import onnxruntime
import pytest

from compress.recipe import load_recipe
from compress.results import Results, json_schema


def test_the_document_on_stdout_is_the_results_file_and_fits_the_schema(finished):
    folder, done = finished
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed == json.loads((folder / "results.json").read_text(encoding="utf-8"))
    jsonschema.validate(printed, json_schema())


def test_what_was_measured(finished):
    results = Results.model_validate_json((finished[0] / "results.json").read_text(encoding="utf-8"))
    assert [v.name for v in results.variants] == ["fp32", "fp16", "int8"]
    assert results.baseline.metric.value == 100.0
    assert results.variants[0].metric.drop == 0.0
    assert results.variants[0].speedup.vs_runtime_fp32.ratio == 1.0
    assert [v.precision for v in results.variants] == ["fp32", "fp16 file, computed in fp32", "int8"]
    for variant in results.variants:
        assert variant.metric.samples == 64
        assert set(variant.latency_ms) == {"1", "4"}
        for latency in variant.latency_ms.values():
            assert len(latency.rounds) == 3
            assert 0 < latency.median <= latency.p90 <= latency.p99
        assert variant.facts["providers"] == ["CPUExecutionProvider"]
        assert variant.memory_mb.peak >= variant.memory_mb.weights or variant.memory_mb.peak > 0
    assert results.variants[2].fidelity.sqnr_db > 20
    assert results.baseline.speedup.vs_torch is None
    assert "not handed over as a torch model" in results.baseline.reasons["speedup.vs_torch"]
    # The int8 file is smaller because its weights are, and the record says which stage made the difference.
    assert results.variants[2].size_bytes < results.variants[0].size_bytes
    assert [s.stage for s in results.variants[2].stages] == ["int8"]


def test_every_null_has_its_reason(finished):
    document = json.loads((finished[0] / "results.json").read_text(encoding="utf-8"))
    for entry in (document["baseline"], *document["variants"]):
        for field in (
            "metric",
            "fidelity",
            "latency_ms",
            "throughput",
            "memory_mb",
            "speedup",
            "artifact",
            "size_bytes",
        ):
            assert entry[field] is not None or entry["reasons"][field]


def test_the_manifest_has_every_file_with_its_digest(finished):
    folder, _ = finished
    files = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
    for name in ("report.html", "report.md", "results.json", "recipe.yaml", "artifacts/int8.onnx"):
        data = (folder / name).read_bytes()
        assert files[name] == {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert any(name.startswith("artifacts/best.") for name in files)


def test_the_best_artifact_opens(finished):
    best = next((finished[0] / "artifacts").glob("best.*"))
    session = onnxruntime.InferenceSession(str(best), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", 3, 16, 16]


def test_the_recipe_in_the_folder_reproduces_the_run(finished, small_model):
    recipe = load_recipe(finished[0] / "recipe.yaml")
    assert recipe.model == str(small_model)
    assert recipe.batch == (1, 4)
    assert recipe.target == "ort-cpu"


def test_progress_goes_to_stderr_only_and_the_log_has_it_all(finished):
    folder, done = finished
    assert all(line.startswith("warning: Other processes") for line in done.stderr.splitlines())
    assert "int8: calibrating on 64 samples" in (folder / "log.txt").read_text(encoding="utf-8")


def test_a_finished_folder_is_refused_then_forced(cli, finished, small_model, small_data):
    """microsoft/winml-cli#185: a second run to the same place is refused before any work."""
    folder, _ = finished
    before = (folder / "results.json").read_bytes()
    arguments = ("run", small_model, "--data", small_data, "--target", "ort-cpu", "--batch", "1,4", "--rounds", 3)
    again = cli(*arguments, "--out", "run", cwd=folder.parent)
    assert again.returncode == 2
    assert "holds a finished run" in again.stderr
    assert "--force" in again.stderr
    assert (folder / "results.json").read_bytes() == before


def test_an_impossible_budget_ends_with_5_and_a_full_report(cli, small_model, small_data, tmp_path):
    done = cli(
        "run", small_model, "--data", small_data, "--target", "ort-cpu", "--variants", "fp32", "--batch", "1",
        "--rounds", 3, "--max-size-mb", "0.000001", "--out", "r", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 5
    assert "Budget not met" in done.stderr
    assert (tmp_path / "r" / "report.html").stat().st_size > 100_000
    assert not list((tmp_path / "r" / "artifacts").glob("best.*"))


def test_without_data_only_closeness_is_measured_and_said(cli, small_model, tmp_path):
    done = cli(
        "run", small_model, "--target", "ort-cpu", "--batch", "2", "--rounds", 3, "--out", "r", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    results = Results.model_validate_json(done.stdout)
    assert [v.name for v in results.variants] == ["fp32", "fp16"]
    assert results.variants[1].metric is None
    assert results.variants[1].reasons["metric"] == "no evaluation data was given"
    assert results.variants[1].fidelity.sqnr_db > 40
    assert any("int8 was left out" in n for n in results.notes)


def test_near_chance_stops(cli, small_model, small_data, tmp_path):
    """pytorch/pytorch#80133: no comparison means anything if the baseline itself guesses."""
    import numpy as np

    part = np.load(small_data)
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, x=part["x"], y=np.roll(part["y"], 16))
    done = cli("run", small_model, "--data", wrong, "--target", "ort-cpu", "--out", "r", cwd=tmp_path)
    assert done.returncode == 3
    assert "the order of the labels" in done.stderr
    assert "--allow-chance" in done.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["run", "--help"], ["compare", "--help"]])
def test_help_and_version(cli, tmp_path, arguments):
    done = cli(*arguments, cwd=tmp_path)
    assert done.returncode == 0
    assert "compress" in done.stdout
