"""R35, microsoft/winml-cli#185: a run folder of its own, nothing overwritten, side files that belong together."""

from __future__ import annotations

import hashlib
import json
import shutil

import onnx
import onnxruntime


def _run(cli, model, cwd, *more):
    return cli("run", model, "--target", "ort-cpu", "--variants", "fp32", "--batch", "1", "--rounds", 3, *more, cwd=cwd)


def test_the_same_command_twice_makes_two_folders(cli, small_model, tmp_path):
    for _ in range(2):
        assert _run(cli, small_model, tmp_path).returncode == 0
    folders = sorted(p.name for p in (tmp_path / "compress-runs").iterdir())
    assert folders == ["small-1", "small-2"]


def test_the_users_model_in_the_output_folder_is_safe(cli, small_model, tmp_path):
    shutil.copy(small_model, tmp_path / "model.onnx")
    before = hashlib.sha256((tmp_path / "model.onnx").read_bytes()).hexdigest()
    done = _run(cli, "model.onnx", tmp_path, "--out", ".")
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    assert hashlib.sha256((tmp_path / "model.onnx").read_bytes()).hexdigest() == before


def test_weights_beside_the_model_keep_their_own_names(cli, small_model, tmp_path):
    """External data: `fp32.onnx` and `best.onnx` each have a side file of their own, and open from there."""
    model = onnx.load(small_model)
    (tmp_path / "in").mkdir()
    onnx.save(model, tmp_path / "in" / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    done = _run(cli, "in/m.onnx", tmp_path, "--out", "r")
    assert done.returncode == 0, done.stderr
    artifacts = tmp_path / "r" / "artifacts"
    for name in ("fp32", "best"):
        side = [p.name for p in artifacts.glob(f"{name}*") if p.suffix != ".onnx"]
        assert len(side) == 1
        alone = tmp_path / f"alone-{name}"
        alone.mkdir()
        for file in (f"{name}.onnx", side[0]):
            shutil.copy(artifacts / file, alone / file)
        onnxruntime.InferenceSession(str(alone / f"{name}.onnx"), providers=["CPUExecutionProvider"])
    files = json.loads((tmp_path / "r" / "manifest.json").read_text(encoding="utf-8"))["files"]
    assert {f"artifacts/{p.name}" for p in artifacts.iterdir()} <= set(files)
