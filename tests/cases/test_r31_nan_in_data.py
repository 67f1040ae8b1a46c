"""R31 (microsoft/onnxruntime PR 23749, qualcomm/aimet#3520): NaN and infinity are found at the door, and named.

What a model makes of clean data is another matter and another message: see the stages' own checks.
"""

import numpy as np
import pytest

from compress.data.open import open_dataset
from compress.errors import DataError
from compress.progress import Quiet

BATCH, BATCHES = 4, 10
CLEAN = np.random.default_rng(0).standard_normal((BATCH * BATCHES, 3, 8, 8)).astype(np.float32)
LABELS = np.arange(BATCH * BATCHES)


class Told(Quiet):
    def __init__(self):
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)


def poisoned():
    """One NaN pixel in sample 13; all of batch 6 (samples 24 to 27) infinite."""
    x = CLEAN.copy()
    x[13, 1, 2, 3] = np.nan
    x[24:28] = -np.inf
    return x


def npz(path, x, y=LABELS):
    np.savez(path / "d.npz", image=x, labels=y)
    return str(path / "d.npz")


def factory(path, x, y=LABELS):
    npz(path, x, y)
    (path / "mine.py").write_text(
        f"import numpy as np\nd = np.load({str(path / 'd.npz')!r})\n"
        f"def make():\n    for i in range(0, {len(x)}, {BATCH}):\n"
        f"        yield {{'image': d['image'][i:i+{BATCH}], 'labels': d['labels'][i:i+{BATCH}]}}\n"
    )
    return f"{path / 'mine.py'}:make"


@pytest.mark.parametrize("kind", [npz, factory])
def test_stop_names_sample_tensor_and_count(tmp_path, kind):
    with pytest.raises(DataError, match="sample 13 .*input 'image' holds 1 NaN of 192 values") as caught:
        list(open_dataset(kind(tmp_path, poisoned()), None).batches(BATCH))
    assert "the data itself is bad" in str(caught.value)
    assert caught.value.exit_code == 3


def test_stop_names_the_batch_of_a_loader(tmp_path):
    with pytest.raises(DataError, match=r"batch 3\b"):
        list(open_dataset(factory(tmp_path, poisoned()), None).batches(BATCH))


@pytest.mark.parametrize("kind", [npz, factory])
def test_skip_leaves_out_inputs_and_labels_alike_and_says_so(tmp_path, kind):
    told = Told()
    dataset = open_dataset(kind(tmp_path, poisoned()), None, bad_samples="skip", progress=told)
    kept = np.setdiff1d(LABELS, [13, 24, 25, 26, 27])
    for _ in range(2):
        batches = list(dataset.batches(BATCH))
        np.testing.assert_array_equal(np.concatenate([b.inputs["image"] for b in batches]), CLEAN[kept])
        np.testing.assert_array_equal(np.concatenate([b.targets for b in batches]), kept)
        assert [b.count for b in batches] == [4] * 8 + [3]
    assert (len(dataset), dataset.skipped) == (35, 5)
    assert len(told.warnings) == 1
    assert "5 sample(s) hold NaN or infinity" in told.warnings[0]
    assert "sample 13" in told.warnings[0]
    assert "The data itself is bad, not the model" in told.warnings[0]


@pytest.mark.parametrize("kind", [npz, factory])
def test_nan_in_a_label_counts_too(tmp_path, kind):
    y = LABELS.astype(np.float32)
    y[2] = np.nan
    with pytest.raises(DataError, match="sample 2 .*the label holds 1 NaN"):
        list(open_dataset(kind(tmp_path, CLEAN, y), None).batches(BATCH))


@pytest.mark.parametrize("kind", [npz, factory])
def test_nothing_but_bad_samples_is_an_error(tmp_path, kind):
    dataset = open_dataset(kind(tmp_path, np.full_like(CLEAN, np.inf)), None, bad_samples="skip")
    with pytest.raises(DataError, match="all 40 samples are bad, 0 are left"):
        list(dataset.batches(BATCH))


@pytest.mark.parametrize("kind", [npz, factory])
def test_clean_data_passes_in_silence(tmp_path, kind):
    told = Told()
    dataset = open_dataset(kind(tmp_path, CLEAN), None, bad_samples="skip", progress=told)
    assert sum(b.count for b in dataset.batches(7)) == 40
    assert told.warnings == []


@pytest.mark.parametrize("limit", [10, 14, 30])
def test_limit_counts_good_samples(tmp_path, limit):
    dataset = open_dataset(npz(tmp_path, poisoned()), None, bad_samples="skip")
    assert sum(b.count for b in dataset.batches(BATCH, limit)) == limit
