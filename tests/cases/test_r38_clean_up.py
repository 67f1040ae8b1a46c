"""R38, microsoft/onnxruntime#17627: a clean-up that fails doesn't fail the run that made a good result."""

from __future__ import annotations

import os

from compress.pipeline.run import run_recipe
from compress.progress import Quiet
from compress.recipe import make_recipe


def test_folders_that_cannot_be_removed_are_left(monkeypatch, small_model, small_data, tmp_path):
    refused = []

    unlink = os.unlink

    def refuse(path, *args, **kwargs):
        if not str(path).endswith(".onnx"):
            return unlink(path, *args, **kwargs)
        refused.append(str(path))
        raise PermissionError(13, "the file is used by another process", str(path))

    monkeypatch.setattr(os, "unlink", refuse)
    recipe = make_recipe(
        {
            "model": str(small_model),
            "data": str(small_data),
            "target": "ort-cpu",
            "variants": ["int8"],
            "batch": [1],
            "rounds": 3,
        }
    )
    results, folder = run_recipe(recipe, out=tmp_path / "r", progress=Quiet())
    assert [v.verdict.status == "failed" for v in results.variants] == [False, False]
    assert (folder / "artifacts" / "int8.onnx").is_file()
    assert refused
