"""The run folder: caching, resuming, locking, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from compress.artifact import Artifact, Form, Signature, TensorSpec, sha256_of
from compress.errors import StageError, UsageError
from compress.store import RunFolder, next_folder

SIGNATURE = Signature((TensorSpec("x", "float32", ("batch", 3)),))


def _make(content: bytes = b"model", calls: list | None = None, side: bytes | None = None):
    def make(work):
        if calls is not None:
            calls.append(work)
        (work / "scratch").mkdir()
        (work / "scratch" / "junk").write_bytes(b"junk")
        files = [work / "model.bin2"]
        files[0].write_bytes(content)
        if side is not None:
            files.append(work / "model.bin2.data")
            files[1].write_bytes(side)
        return Artifact(Form.ONNX, files[0], SIGNATURE, sha256_of(*files), side_files=tuple(files[1:]))

    return make


def test_a_stage_runs_once_and_is_found_again(tmp_path):
    calls: list = []
    with RunFolder(tmp_path / "run", "r") as store:
        first, cached = store.stage({"k": 1}, _make(calls=calls))
        assert not cached
        assert not (first.path.parent / "scratch").exists()
    with RunFolder(tmp_path / "run", "r") as store:
        assert store.resumed
        second, cached = store.stage({"k": 1}, _make(calls=calls))
        assert cached
        store.stage({"k": 2}, _make(b"other", calls=calls))
    assert first == second
    assert len(calls) == 2


def test_a_changed_or_truncated_stage_is_made_again(tmp_path):
    with RunFolder(tmp_path / "run", "r") as store:
        artifact, _ = store.stage({"k": 1}, _make())
        artifact.path.write_bytes(b"mod")
        again, cached = store.stage({"k": 1}, _make())
        assert not cached
        assert again.path.read_bytes() == b"model"


def test_a_failing_stage_leaves_nothing(tmp_path):
    def fail(work):
        (work / "half").write_bytes(b"half")
        raise StageError("no")

    with RunFolder(tmp_path / "run", "r") as store:
        with pytest.raises(StageError):
            store.stage({"k": 1}, fail)
        assert [p for p in (tmp_path / "run" / "stages").rglob("*") if p.is_file()] == []


def test_left_overs_of_a_killed_run_are_cleaned(tmp_path):
    with RunFolder(tmp_path / "run", "r"):
        part = tmp_path / "run" / "stages" / ".part-abc"
        part.mkdir(parents=True)
        (part / "half").write_bytes(b"half")
        (tmp_path / "run" / ".report.html.tmp").write_bytes(b"half")
    with RunFolder(tmp_path / "run", "r"):
        assert not part.exists()
        assert not (tmp_path / "run" / ".report.html.tmp").exists()


def test_steps_are_cached_by_key(tmp_path):
    with RunFolder(tmp_path / "run", "r") as store:
        assert store.step({"a": 1}, lambda: {"v": 2.5}) == ({"v": 2.5}, False)
        assert store.step({"a": 1}, lambda: {"v": 0}) == ({"v": 2.5}, True)


def test_publish_keeps_side_files_with_their_model(tmp_path):
    with RunFolder(tmp_path / "run", "r") as store:
        artifact, _ = store.stage({"k": 1}, _make(side=b"weights"))
        published = store.publish(artifact, "best")
        assert published.path.name == "best.bin2"
        assert published.side_files[0].name == "best.bin2.data"
        assert published.side_files[0].read_bytes() == b"weights"
        assert artifact.path.exists()


def test_a_finished_run_is_not_overwritten_without_force(tmp_path):
    with RunFolder(tmp_path / "run", "r") as store:
        (tmp_path / "run" / "report.md").write_text("x", encoding="utf-8")
        manifest = json.loads(store.finish().read_text(encoding="utf-8"))
    assert manifest["files"]["report.md"]["size_bytes"] == 1
    with pytest.raises(UsageError, match="finished run"):
        RunFolder(tmp_path / "run", "r")
    with RunFolder(tmp_path / "run", "r", force=True) as store:
        assert not store.resumed


def test_an_unfinished_run_of_another_recipe_is_refused(tmp_path):
    RunFolder(tmp_path / "run", "r").close()
    with pytest.raises(UsageError, match="another recipe"):
        RunFolder(tmp_path / "run", "other")


def test_a_folder_of_the_users_is_never_used(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine", encoding="utf-8")
    for force in (False, True):
        with pytest.raises(UsageError, match="holds no run"):
            RunFolder(tmp_path, "r", force=force)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_out_that_is_a_file_is_refused(tmp_path):
    file = tmp_path / "f"
    file.write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match="is a file"):
        RunFolder(file, "r")


def test_two_runs_in_one_folder_are_locked_apart(tmp_path):
    code = (
        "import sys, time, pathlib; from compress.store import RunFolder\n"
        "f = RunFolder(pathlib.Path(sys.argv[1]), 'r'); print('open', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == b"open"
        with pytest.raises(UsageError, match="Another run is using"):
            RunFolder(tmp_path / "run", "r")
        # A default folder skips the one in use.
        (tmp_path / "run").rename(tmp_path / "m-1")
        assert next_folder(tmp_path, "m", "r") == tmp_path / "m-2"
    finally:
        other.kill()
        other.wait()
    deadline = time.monotonic() + 10
    while next_folder(tmp_path, "m", "r") != tmp_path / "m-1":
        assert time.monotonic() < deadline
    RunFolder(tmp_path / "m-1", "r").close()


def test_default_folders_count_up(tmp_path):
    assert next_folder(tmp_path, "r n/é.x", "r").name == "r-n-é.x-1"
    with RunFolder(tmp_path / "m-1", "r") as store:
        store.finish()
    assert next_folder(tmp_path, "m", "r").name == "m-2"
    RunFolder(tmp_path / "m-2", "r").close()
    assert next_folder(tmp_path, "m", "r").name == "m-2"
    assert next_folder(tmp_path, "m", "other").name == "m-3"
