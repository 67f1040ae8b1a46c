import json
import shutil
import threading

import numpy as np
import pytest
from PIL import Image

from compress.data.open import open_dataset
from compress.data.preprocess import PRESETS, Preprocess
from compress.errors import DataError, UsageError


def labels_of(dataset, size=4):
    return np.concatenate([b.targets for b in dataset.batches(size)])


def inputs_of(dataset, size=4):
    return np.concatenate([b.inputs["0"] for b in dataset.batches(size)])


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_every_sample_once_in_order_with_its_label(folder, workers, size):
    dataset = open_dataset(str(folder), PRESETS["none"], workers=workers)
    assert (len(dataset), dataset.classes, dataset.task) == (7, ("cat", "dog"), "classification")
    batches = list(dataset.batches(size))
    assert [b.count for b in batches] == [size] * (7 // size) + ([7 % size] if 7 % size else [])
    np.testing.assert_array_equal(np.concatenate([b.targets for b in batches]), [0] * 4 + [1] * 3)
    expected = [np.asarray(Image.open(f)).transpose(2, 0, 1) for f in sorted(folder.rglob("*.png"))]
    np.testing.assert_array_equal(np.concatenate([b.inputs["0"] for b in batches]), expected)
    np.testing.assert_array_equal(inputs_of(dataset), expected)  # a second pass gives the same


def test_limit_and_early_stop_end_the_threads(folder):
    dataset = open_dataset(str(folder), None, workers=2)
    assert [b.count for b in dataset.batches(2, 5)] == [2, 2, 1]
    stream = dataset.batches(1)
    next(stream)
    stream.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("data")]


@pytest.mark.parametrize(("size", "limit"), [(0, None), (-1, None), (4, 0), (4, -1)])
def test_senseless_sizes_are_refused_at_once(folder, size, limit):
    with pytest.raises(UsageError, match="1 or more"):
        open_dataset(str(folder), None).batches(size, limit)


def test_real_images(cifar):
    dataset = open_dataset(str(cifar), PRESETS["cifar10"])
    assert len(dataset) == 120
    assert dataset.classes[0] == "airplane"
    batch = next(dataset.batches(120))
    assert batch.inputs["0"].shape == (120, 3, 32, 32)
    assert batch.inputs["0"].dtype == np.float32
    np.testing.assert_array_equal(batch.targets, np.repeat(np.arange(10), 12))
    assert 0.5 < batch.inputs["0"].std() < 2


def test_subset_is_balanced_and_repeatable(cifar):
    dataset = open_dataset(str(cifar), PRESETS["cifar10"])
    part = dataset.subset(30, seed=1)
    assert len(part) == 30
    np.testing.assert_array_equal(np.bincount(labels_of(part)), [3] * 10)
    np.testing.assert_array_equal(np.sort(labels_of(part)[:10]), np.arange(10))  # every prefix is balanced, too
    np.testing.assert_array_equal(inputs_of(part), inputs_of(dataset.subset(30, seed=1)))
    assert part.fingerprint() == dataset.subset(30, seed=1).fingerprint()
    assert part.fingerprint() not in (dataset.subset(30, seed=2).fingerprint(), dataset.fingerprint())
    assert len(dataset.subset(1000, seed=0)) == 120
    with pytest.raises(UsageError, match="1 or more"):
        dataset.subset(0, seed=0)


def test_fingerprint_changes_with_files_and_preprocess(folder, make_image):
    first = open_dataset(str(folder), PRESETS["none"]).fingerprint()
    assert open_dataset(str(folder), PRESETS["none"]).fingerprint() == first
    assert open_dataset(str(folder), Preprocess()).fingerprint() != first
    make_image(folder / "cat" / "new.png")
    assert open_dataset(str(folder), PRESETS["none"]).fingerprint() != first


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.txt", "dog\nbird\ncat\n"),
        ("classes.json", json.dumps(["dog", "bird", "cat"])),
        ("classes.json", json.dumps({"cat": 2, "dog": 0, "bird": 1})),
        ("classes.json", json.dumps({"0": "dog", "1": "bird", "2": "cat"})),
        ("classes.json", json.dumps({"2": ["cat", "tomcat"], "0": ["n01", "dog"], "1": ["n02", "bird"]})),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_classes_file_decides_labels(folder, told, name, text, beside):
    ((folder.parent if beside else folder) / name).write_text(text)
    dataset = open_dataset(str(folder), None, progress=told)
    np.testing.assert_array_equal(labels_of(dataset), [2] * 4 + [0] * 3)
    assert len(dataset.classes) == 3
    assert any("2 of its 3 classes" in line for line in told.lines)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("classes.txt", "cat\nhorse\n", r"dog not among the 2 of .*classes\.txt"),
        ("classes.txt", "cat\ndog\ncat\n", "'cat' twice"),
        ("classes.json", json.dumps({"cat": 0, "dog": 2}), "no label 1"),
        ("classes.json", json.dumps({"cat": 0, "dog": 0}), "label 0 to 'cat' and to 'dog'"),
        ("classes.json", "{", "cannot be read"),
        ("classes.txt", "", "no class names"),
    ],
)
def test_wrong_classes_files_are_refused(folder, name, text, message):
    (folder / name).write_text(text)
    with pytest.raises(DataError, match=message):
        open_dataset(str(folder), None)


def test_number_folders_in_alphabetical_order_are_pointed_out(tmp_path, make_image, told):
    for name in ("0", "2", "10"):
        make_image(tmp_path / "set" / name / "x.png")
    assert open_dataset(str(tmp_path / "set"), None, progress=told).classes == ("0", "10", "2")
    assert len(told.warnings) == 1
    assert "classes.txt" in told.warnings[0]


def test_flat_folder_is_unlabelled(tmp_path, make_image, told):
    for i in range(3):
        make_image(tmp_path / f"{i}.jpg", seed=i)
    (tmp_path / "notes.txt").write_text("x")
    dataset = open_dataset(str(tmp_path), None, progress=told)
    assert (len(dataset), dataset.labelled, dataset.classes, dataset.task) == (3, False, None, "unknown")
    assert [b.targets for b in dataset.batches(2)] == [None, None]
    assert any("without labels" in line for line in told.lines)
    assert any("pixels go in as they are" in line for line in told.lines)


def test_hidden_files_are_ignored_and_suffixes_in_capitals_are_not(folder, make_image):
    (folder / ".cache").mkdir()
    make_image(folder / ".cache" / "x.png")
    (folder / "cat" / "._0.png").write_bytes(b"resource fork")
    make_image(folder / "dog" / "Z.PNG")
    assert len(open_dataset(str(folder), None)) == 8


@pytest.mark.parametrize("names", [("train",), ("train", "val"), ("test", "train")])
def test_splits_are_not_taken_for_classes(tmp_path, folder, names):
    for name in names:
        shutil.copytree(folder, tmp_path / "root" / name)
    with pytest.raises(DataError, match="splits of a data set") as caught:
        open_dataset(str(tmp_path / "root"), None)
    likely = next((n for n in names if n != "train"), "train")
    assert f"{tmp_path / 'root'}/{likely}" in str(caught.value)


def test_one_folder_too_high_is_pointed_out(tmp_path, folder):
    shutil.copytree(folder, tmp_path / "root" / "images")
    with pytest.raises(DataError, match=r"root/images if those are the classes"):
        open_dataset(str(tmp_path / "root"), None)


def damage(folder):
    whole = (folder / "cat" / "2.png").read_bytes()
    (folder / "cat" / "2.png").write_bytes(whole[: len(whole) // 2])
    (folder / "dog" / "0.png").write_text("<html>")
    (folder / "dog" / "2.png").write_bytes(b"")


def test_unreadable_image_is_named(folder):
    damage(folder)
    with pytest.raises(DataError, match=r"pets/cat/2\.png cannot be read.*the data itself is bad"):
        list(open_dataset(str(folder), None).batches(3))


def test_unreadable_images_are_left_out_on_request(folder, told):
    damage(folder)
    dataset = open_dataset(str(folder), None, bad_samples="skip", progress=told)
    assert len(dataset) == 7
    batches = list(dataset.batches(2))
    assert [b.count for b in batches] == [2, 2]
    np.testing.assert_array_equal(labels_of(dataset), [0, 0, 0, 1])
    kept = [folder / "cat" / "0.png", folder / "cat" / "1.png", folder / "cat" / "3.png", folder / "dog" / "1.png"]
    expected = [np.asarray(Image.open(f)).transpose(2, 0, 1) for f in kept]
    np.testing.assert_array_equal(inputs_of(dataset), expected)
    assert (len(dataset), dataset.skipped) == (4, 3)
    assert len(told.warnings) == 1  # two passes more say nothing new
    assert "3 sample(s) cannot be read" in told.warnings[0]
    assert "cat/2.png" in told.warnings[0]
    assert dataset.subset(2, 0).skipped == 0


def test_all_bad_is_an_error_even_when_skipping(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_text("no image")
    dataset = open_dataset(str(tmp_path), None, bad_samples="skip")
    for _ in range(2):
        with pytest.raises(DataError, match="all 2 samples are bad"):
            list(dataset.batches(1))


def test_images_of_two_sizes_are_named(folder, make_image):
    make_image(folder / "cat" / "1.png", size=(9, 6))
    with pytest.raises(DataError, match=r"cat/0\.png is \[3, 6, 8\].*cat/1\.png is \[3, 6, 9\].*resize"):
        list(open_dataset(str(folder), None).batches(4))
    assert inputs_of(open_dataset(str(folder), Preprocess(resize=(5, 5)))).shape == (7, 3, 5, 5)


def test_image_smaller_than_the_crop_is_named(folder):
    with pytest.raises(DataError, match=r"cat/0\.png: an image of 6×8 pixels"):
        list(open_dataset(str(folder), Preprocess(crop=7)).batches(4))
