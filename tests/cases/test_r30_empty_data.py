"""R30 (openvinotoolkit/nncf PR 2230, vllm-project/llm-compressor#1510): empty data is found before any work."""

import numpy as np
import pytest

from compress.data.open import open_dataset, require
from compress.errors import DataError, UsageError


def refused(spec, *fragments):
    with pytest.raises(DataError) as caught:
        open_dataset(str(spec), None)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_absent_folder(tmp_path):
    refused(tmp_path / "nowhere", str(tmp_path / "nowhere"), "no such file or folder")


def test_empty_folder(tmp_path):
    refused(tmp_path, str(tmp_path), "0 found", "at least 1 wanted", "it is empty")


def test_folder_of_text_files_only(tmp_path):
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    refused(tmp_path, str(tmp_path), "0 found", "3 file(s) with .txt", ".jpg")


def test_empty_class_folders(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "dog").mkdir()
    refused(tmp_path, "0 found")


def test_arrays_without_samples(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((0, 3)))
    refused(tmp_path / "d.npz", "d.npz", "0 samples found", "at least 1 wanted")


@pytest.mark.parametrize(
    "body",
    [
        "def make(): return []",
        "def make(): return iter(())",
        "USED = (X for _ in range(3)); list(USED)\ndef make(): return USED",
        "ONCE = (X for _ in range(3))\ndef make(): return ONCE",
        "ONCE = iter([X])\ndef make():\n    for x in ONCE: yield x",
    ],
    ids=["empty list", "empty iterator", "used up before", "the same generator", "wrapped iterator"],
)
def test_used_up_and_empty_loaders(tmp_path, body):
    (tmp_path / "mine.py").write_text("import numpy as np\nX = np.zeros((2, 3), np.float32)\n" + body)
    with pytest.raises(DataError, match=r"mine\.py:make.*(0 found|used up after one pass)") as caught:
        list(open_dataset(f"{tmp_path / 'mine.py'}:make", None).batches(2))
    assert "inside the factory" in str(caught.value)


@pytest.mark.parametrize("wanted", [0, -1])
def test_no_samples_wanted(tmp_path, wanted):
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 3)))
    dataset = open_dataset(str(tmp_path / "d.npz"), None)
    for call in (
        lambda: require(dataset, wanted, "calibration"),
        lambda: dataset.subset(wanted, 0),
        lambda: dataset.batches(2, wanted),
    ):
        with pytest.raises(UsageError, match=str(wanted)):
            call()


def test_fewer_than_wanted_is_said_and_goes_on(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 3)))
    dataset = open_dataset(str(tmp_path / "d.npz"), None)
    line = require(dataset, 300, "calibration")
    assert "4 samples" in line
    assert "300" in line
    assert len(dataset.subset(300, 0)) == 4
