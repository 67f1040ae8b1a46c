import shutil
import zipfile

import fsspec
import numpy as np
import pytest

from compress.data.open import open_dataset
from compress.data.preprocess import PRESETS
from compress.data.remote import shown
from compress.errors import DataError, UsageError


def inputs_of(dataset):
    return np.concatenate([b.inputs["0"] for b in dataset.batches(3)])


@pytest.fixture
def memory(folder):
    """The image folder in fsspec's memory file system, emptied afterwards."""
    filesystem = fsspec.filesystem("memory")
    filesystem.put(str(folder), "/bucket/pets", recursive=True)
    yield "memory://bucket/pets"
    filesystem.rm("/bucket", recursive=True)


def zipped(folder, inner="pets"):
    file = folder.parent / "pets.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for image in folder.rglob("*.png"):
            archive.write(image, f"{inner}/{image.relative_to(folder)}" if inner else image.relative_to(folder))
    return file


def same(folder, url, told, **options):
    local, remote = open_dataset(str(folder), None), open_dataset(url, None, progress=told, **options)
    assert (len(remote), remote.classes) == (7, ("cat", "dog"))
    np.testing.assert_array_equal(inputs_of(remote), inputs_of(local))
    return remote


def test_memory_folder(folder, memory, told):
    remote = same(folder, memory, told)
    assert remote.name == "memory://bucket/pets"
    assert any("Copying 7 file(s) from memory://bucket/pets" in line for line in told.lines)
    assert remote.fingerprint() == open_dataset(memory, None).fingerprint()


@pytest.mark.parametrize("inner", ["pets", ""])
def test_zip_folder(folder, told, inner):
    same(folder, f"zip://{inner}::file://{zipped(folder, inner)}", told, workers=3)


def test_file_url_is_used_in_place(folder, told):
    same(folder, f"file://{folder}", told)
    assert not any("Copying" in line for line in told.lines)


def test_single_file_and_cache_folder(memory, tmp_path):
    array = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "d.npz", x=array)
    fsspec.filesystem("memory").put(str(tmp_path / "d.npz"), "/bucket/d.npz")
    dataset = open_dataset("memory://bucket/d.npz", None, cache=tmp_path / "cache")
    np.testing.assert_array_equal(next(dataset.batches(3)).inputs["x"], array)
    assert [p.name for p in (tmp_path / "cache").rglob("*.npz")] == ["d.npz"]


def test_subset_outlives_the_whole(memory):
    part = open_dataset(memory, PRESETS["none"]).subset(2, 0)
    assert inputs_of(part).shape == (2, 3, 6, 8)


def test_bad_image_is_named_by_its_url(memory):
    with fsspec.open("memory://bucket/pets/cat/1.png", "wb") as file:
        file.write(b"no image")
    with pytest.raises(DataError, match="memory://bucket/pets/cat/1.png cannot be read"):
        inputs_of(open_dataset(memory, None))


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("memory://nothing/here", DataError, "memory://nothing/here.*0 files found|cannot be read"),
        ("nosuch://x", UsageError, "nosuch"),
        ("zip://pets::file:///nowhere.zip", DataError, "nowhere.zip"),
        ("file:///nowhere/at/all", DataError, "No data at /nowhere/at/all"),
    ],
)
def test_wrong_urls_are_named(url, error, message):
    with pytest.raises(error, match=message):
        open_dataset(url, None)


def test_passwords_are_not_shown():
    assert shown("s3://key:secret@bucket/x") == "s3://***@bucket/x"


def test_local_archive_gets_a_hint(folder):
    file = zipped(folder)
    with pytest.raises(UsageError, match=r"archive.*zip://::file://"):
        open_dataset(str(file), None)
    shutil.copy(file, folder.parent / "x.bin")
    with pytest.raises(UsageError, match="no known kind"):
        open_dataset(str(folder.parent / "x.bin"), None)
