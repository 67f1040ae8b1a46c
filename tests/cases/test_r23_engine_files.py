"""R23, NVIDIA/TensorRT#2195: a compiled file that isn't what it says is refused in one sentence, and a cached one that
differs from what was made, or was made by another version, is made again."""

from __future__ import annotations

import shutil

import pytest

from compress.artifact import Artifact, Form, ModelSource, Signature, sha256_of
from compress.errors import ModelError
from compress.load.loader import open_source
from compress.pipeline import build
from compress.pipeline.build import Builder
from compress.store import RunFolder


@pytest.mark.parametrize("content", [b"", b"ptrt\x00\x01\x02\x03" * 64, b"ftrt" + bytes(range(256))])
def test_a_file_that_only_looks_like_an_engine(tmp_path, content):
    path = tmp_path / "model.engine"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        open_source(ModelSource(str(path)))
    assert "model.engine" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_onnx_file_under_another_name_is_known_by_its_content(small_model, tmp_path):
    renamed = shutil.copy(small_model, tmp_path / "model.engine")
    artifact, _ = open_source(ModelSource(str(renamed)))
    assert artifact.form is Form.ONNX
    assert [s.name for s in artifact.signature.inputs] == ["x"]


def test_a_cached_file_with_changed_bytes_is_made_again(tmp_path):
    made = []

    def make(work):
        made.append(work)
        (work / "model.engine").write_bytes(b"engine")
        return Artifact(Form.ONNX, work / "model.engine", Signature(()), sha256_of(work / "model.engine"))

    with RunFolder(tmp_path / "run", "r") as store:
        artifact, _ = store.stage({"k": 1}, make)
        data = bytearray(artifact.path.read_bytes())
        data[1] ^= 0xFF
        artifact.path.write_bytes(bytes(data))
        again, cached = store.stage({"k": 1}, make)
    assert (cached, len(made)) == (False, 2)
    assert again.path.read_bytes() == b"engine"


def test_another_version_of_a_library_never_reuses_a_stage(monkeypatch):
    keys = []

    class Store:
        def stage(self, key, make):
            keys.append(key)
            raise ModelError("seen")

    class Anything:
        kind = "int8"
        sha256, calibration, trials, seed, name = "s", None, None, 0, "ort-cpu"
        execution: tuple = ()
        signature = Signature(())
        target = property(lambda self: self)

        def model_dump(self, mode):
            return {}

    anything = Anything()
    for version in ("1.0", "2.0"):
        monkeypatch.setattr(build, "versions", lambda v=version: {"openvino": v})
        with pytest.raises(ModelError):
            Builder(Store(), None, anything)._stage(anything, anything)
    assert keys[0] != keys[1]
    assert {**keys[0], "versions": None} == {**keys[1], "versions": None}
