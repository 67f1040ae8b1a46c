"""Inputs to try a model on."""

from __future__ import annotations

import numpy as np

from compress.artifact import Signature, TensorSpec
from compress.load.probe import default_sizes, probe_inputs

TEXT = Signature(
    (TensorSpec("ids", "int64", ("batch", "seq")), TensorSpec("attention_mask", "int64", ("batch", "seq")))
)
IMAGE = Signature((TensorSpec("x", "float32", ("batch", 3, "height", "width")),))


def test_random_inputs_suit_their_dtypes() -> None:
    made = probe_inputs(TEXT, 3, seed=0)
    assert {n: (a.dtype.name, a.shape) for n, a in made.items()} == {
        "ids": ("int64", (3, 16)),
        "attention_mask": ("int64", (3, 16)),
    }
    assert made["ids"].min() >= 0
    assert made["ids"].max() < 10
    assert (made["attention_mask"] == 1).all()
    image = probe_inputs(IMAGE, 2, seed=0, sizes={"height": 8})["x"]
    assert image.shape == (2, 3, 8, 64)
    assert abs(float(image.mean())) < 0.1


def test_the_seed_decides() -> None:
    first, again, other = (probe_inputs(IMAGE, 2, seed=s)["x"] for s in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_real_rows_are_drawn_together_and_repeated() -> None:
    sample = {"0": np.arange(6).reshape(3, 2), "attention_mask": np.arange(6).reshape(3, 2) + 100}
    made = probe_inputs(TEXT, 7, seed=0, sample=sample)
    assert made["ids"].shape == (7, 2)
    assert np.array_equal(made["attention_mask"], made["ids"] + 100)
    assert {tuple(r) for r in made["ids"].tolist()} == {(0, 1), (2, 3), (4, 5)}


def test_sizes_override_the_sample_and_tile_it() -> None:
    sample = {"ids": np.array([[1, 2]]), "attention_mask": np.array([[1, 0]])}
    assert default_sizes(TEXT, sample) == {"seq": 2}
    made = probe_inputs(TEXT, 1, seed=0, sample=sample, sizes={"seq": 5})
    assert made["ids"].tolist() == [[1, 2, 1, 2, 1]]


def test_a_fixed_first_axis_keeps_its_size() -> None:
    fixed = Signature((TensorSpec("x", "float32", (4, 2)),))
    assert probe_inputs(fixed, 2, seed=0)["x"].shape == (4, 2)
