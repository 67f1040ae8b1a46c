import numpy as np
import pytest

from compress.data.open import open_dataset
from compress.data.preprocess import PRESETS, Preprocess
from compress.errors import DataError

RANDOM = np.random.default_rng(0)
FLOATS = RANDOM.standard_normal((10, 3, 4, 4)).astype(np.float32)
PIXELS = RANDOM.integers(0, 256, (10, 4, 5, 3), dtype=np.uint8)
LABELS = np.arange(10) % 3


def opened(path, preprocess=None, options=None, **arrays):
    np.savez(path / "d.npz", **arrays)
    return open_dataset(str(path / "d.npz"), preprocess, **(options or {}))


def whole(dataset, key):
    return np.concatenate([b.inputs[key] for b in dataset.batches(3)])


@pytest.mark.parametrize("key", ["x", "images", "inputs", "pixel_values"])
@pytest.mark.parametrize("label_key", ["y", "labels", "targets"])
def test_floats_go_in_as_they_are(tmp_path, key, label_key):
    dataset = opened(tmp_path, **{key: FLOATS, label_key: LABELS.astype(np.uint8)})
    assert (len(dataset), dataset.task, dataset.classes) == (10, "classification", None)
    batches = list(dataset.batches(4))
    assert [b.count for b in batches] == [4, 4, 2]
    np.testing.assert_array_equal(whole(dataset, key), FLOATS)
    np.testing.assert_array_equal(np.concatenate([b.targets for b in batches]), LABELS)
    assert batches[0].targets.dtype == np.int64


@pytest.mark.parametrize("array", [PIXELS, PIXELS.transpose(0, 3, 1, 2)])
def test_images_go_through_the_preprocessing(tmp_path, array):
    dataset = opened(tmp_path, Preprocess(mean=0.5), x=array)
    np.testing.assert_allclose(whole(dataset, "x"), PIXELS.transpose(0, 3, 1, 2) / 255 - 0.5, atol=1e-6)


def test_gray_images_without_a_channel_axis(tmp_path):
    dataset = opened(tmp_path, Preprocess(channels=1), x=PIXELS[..., 0])
    np.testing.assert_allclose(whole(dataset, "x"), PIXELS[:, None, ..., 0] / 255, atol=1e-6)


def test_preprocessed_floats_are_left_alone_and_that_is_said(tmp_path, told):
    dataset = opened(tmp_path, PRESETS["cifar10"], {"progress": told}, x=FLOATS)
    np.testing.assert_array_equal(whole(dataset, "x"), FLOATS)
    assert any("float32[N, 3, 4, 4]" in line and "as it is" in line for line in told.lines)


def test_without_preprocessing_pixels_keep_type_and_layout(tmp_path):
    np.testing.assert_array_equal(whole(opened(tmp_path, x=PIXELS), "x"), PIXELS)


def test_several_inputs_class_names_and_subset(tmp_path):
    ids = np.arange(10)[:, None]
    dataset = opened(tmp_path, ids=ids, pixels=FLOATS, y=LABELS, classes=np.array(["a", "b", "c"]))
    assert dataset.classes == ("a", "b", "c")
    part = dataset.subset(6, seed=0)
    batch = next(part.batches(6))
    np.testing.assert_array_equal(np.bincount(batch.targets), [2, 2, 2])
    np.testing.assert_array_equal(batch.targets, LABELS[batch.inputs["ids"][:, 0]])
    np.testing.assert_array_equal(batch.inputs["pixels"], FLOATS[batch.inputs["ids"][:, 0]])


def test_float_labels_are_values_to_predict(tmp_path):
    dataset = opened(tmp_path, x=FLOATS, y=LABELS.astype(np.float64))
    assert dataset.task == "regression"
    assert next(dataset.batches(2)).targets.dtype == np.float32


def test_positional_arrays_and_npy(tmp_path):
    np.savez(tmp_path / "p.npz", FLOATS, LABELS[:, None])
    assert set(next(open_dataset(str(tmp_path / "p.npz"), None).batches(2)).inputs) == {"0", "1"}
    np.save(tmp_path / "x.npy", FLOATS)
    assert len(open_dataset(str(tmp_path / "x.npy"), None)) == 10


def test_fingerprint_follows_the_content(tmp_path):
    first = opened(tmp_path, x=FLOATS).fingerprint()
    assert opened(tmp_path, x=FLOATS + 1).fingerprint() != first
    assert opened(tmp_path, PRESETS["none"], x=FLOATS).fingerprint() != first
    assert opened(tmp_path, x=FLOATS).fingerprint() == first


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.array([{}, {}], dtype=object)}, "Python objects"),
        ({"x": FLOATS, "y": LABELS[:4]}, "x 10, labels 4"),
        ({"x_train": FLOATS, "x_test": FLOATS[:3]}, "x_train 10, x_test 3"),
        ({"x": FLOATS[:0]}, "0 samples found, at least 1 wanted"),
        ({"y": LABELS}, "no inputs"),
        ({"x": FLOATS, "version": np.array(3)}, "'version' is a single value"),
        ({"x": FLOATS, "y": np.array(["a"] * 10)}, "labels must be numbers"),
        ({"x": FLOATS, "y": LABELS - 1}, "label of sample 0 is -1"),
        ({"x": FLOATS, "y": LABELS, "labels": LABELS}, "labels twice"),
        ({}, "no inputs"),
    ],
)
def test_unusable_files_are_refused(tmp_path, arrays, message):
    with pytest.raises(DataError, match=message):
        opened(tmp_path, **arrays)


@pytest.mark.parametrize("content", [b"", b"no archive", b"half"])
def test_damaged_file_is_named(tmp_path, content):
    np.savez(tmp_path / "d.npz", x=FLOATS)
    data = (tmp_path / "d.npz").read_bytes()
    (tmp_path / "d.npz").write_bytes(data[: len(data) // 2] if content == b"half" else content)
    with pytest.raises(DataError, match=r"d\.npz"):
        open_dataset(str(tmp_path / "d.npz"), None)
