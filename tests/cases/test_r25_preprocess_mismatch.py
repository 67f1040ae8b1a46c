"""R25 (pytorch/pytorch#80133, openvinotoolkit/openvino#11942): a "conversion loss" that is wrong preprocessing."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from compress.data.chance import near_chance
from compress.data.open import open_dataset
from compress.data.preprocess import PRESETS, Preprocess, load_preprocess

CIFAR = PRESETS["cifar10"]
SAMPLES = 200


@pytest.fixture(scope="module")
def images(shared_data, tmp_path_factory):
    """Twenty real images a class."""
    folder = tmp_path_factory.mktemp("cifar")
    taken: dict[str, int] = {}
    with tarfile.open(shared_data / "cifar10" / "test.tar.gz") as archive:
        for member in archive:
            parts = Path(member.name).parts
            if member.isfile() and len(parts) == 3 and taken.setdefault(parts[1], 0) < SAMPLES // 10:
                taken[parts[1]] += 1
                archive.extract(member, folder, filter="data")
    return folder / "test"


@pytest.fixture(scope="module")
def model(shared_data):
    torch = pytest.importorskip("torch")
    return torch.jit.load(shared_data / "user_models" / "resnet20_torchscript.pt").eval()


def accuracy(model, images, preprocess):
    import torch

    hits, targets = [], []
    with torch.no_grad():
        for batch in open_dataset(str(images), preprocess).batches(50):
            hits.append(model(torch.from_numpy(batch.inputs["0"])).argmax(1).numpy() == batch.targets)
            targets.append(batch.targets)
    return 100 * np.concatenate(hits).mean(), np.concatenate(targets)


def test_right_preprocessing_is_far_above_chance(model, images):
    value, targets = accuracy(model, images, CIFAR)
    assert value > 80
    assert near_chance("top1", value, 10, targets, SAMPLES) is None


@pytest.mark.parametrize(
    "wrong",
    [PRESETS["none"], CIFAR.model_copy(update={"scale": 1.0}), Preprocess(scale=1 / 255**2, mean=CIFAR.mean)],
    ids=["0..255 without normalization", "0..255 normalized", "scaled twice"],
)
def test_a_baseline_near_chance_is_told_with_its_likely_cause(model, images, wrong):
    value, targets = accuracy(model, images, wrong)
    message = near_chance("top1", value, 10, targets, SAMPLES)
    assert message is not None
    assert "preprocessing (scale, mean and std, channel order" in message


def test_channel_order_is_one_setting_and_costs_accuracy(model, images):
    assert accuracy(model, images, CIFAR.model_copy(update={"channel_order": "BGR"}))[0] < 80


def test_all_sides_get_the_same_arrays_from_the_stored_settings(images, tmp_path):
    (tmp_path / "preprocess.yaml").write_text(CIFAR.to_yaml())
    baseline = open_dataset(str(images), CIFAR)
    variant = open_dataset(str(images), load_preprocess(str(tmp_path / "preprocess.yaml")), workers=1)
    calibration = baseline.subset(SAMPLES, 0)
    np.testing.assert_array_equal(next(baseline.batches(64)).inputs["0"], next(variant.batches(64)).inputs["0"])
    assert baseline.fingerprint() == variant.fingerprint()
    everything = sum(b.inputs["0"].sum(dtype=np.float64) for b in baseline.batches(64))
    assert sum(b.inputs["0"].sum(dtype=np.float64) for b in calibration.batches(64)) == pytest.approx(everything)
