"""The difference of outputs: by hand, streaming, and where it would be infinite."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from compress.difference import DifferenceAccumulator, MismatchError

A = np.array([[3.0, 4.0], [0.0, 5.0]], np.float32)


def difference_of(*pairs: tuple[dict, dict]):
    accumulator = DifferenceAccumulator()
    for reference, other in pairs:
        accumulator.add(reference, other)
    return accumulator.result()


def test_by_hand() -> None:
    found = difference_of(({"y": A}, {"y": A + np.array([[1, 0], [0, 0]], np.float32)}))
    assert found.sqnr_db == pytest.approx(10 * np.log10(50 / 1))
    assert found.cosine == pytest.approx((1 + (4 * 3 + 4 * 4) / (5 * np.sqrt(32))) / 2)
    assert found.max_abs == 1
    assert found.top1_agreement == 0.5  # [3, 4] became [4, 4], whose first is the largest
    assert found.samples == 2


def test_batches_add_up_to_the_whole() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 10, 7))
    whole = difference_of(({"y": x}, {"y": y}))
    parts = difference_of(({"y": x[:3]}, {"y": y[:3]}), ({"y": x[3:]}, {"y": y[3:]}))
    assert dataclasses.astuple(parts) == pytest.approx(dataclasses.astuple(whole))


def test_equal_outputs() -> None:
    found = difference_of(({"y": A}, {"y": A.copy()}))
    assert (found.sqnr_db, found.cosine, found.max_abs, found.top1_agreement) == (200, pytest.approx(1), 0, 1)


def test_a_small_output_isnt_hidden_by_a_large_one() -> None:
    big = np.full((2, 100), 1000.0)
    found = difference_of(({"big": big, "small": A}, {"big": big, "small": -A}))
    assert found.sqnr_db == pytest.approx(10 * np.log10(1 / 4))
    assert found.cosine == pytest.approx(-1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_isnt_finite_is_the_worst_and_fits_into_json(bad: float) -> None:
    other = A.copy()
    other[0, 1] = bad
    accumulator = DifferenceAccumulator()
    accumulator.add({"y": A}, {"y": other})
    found = accumulator.result()
    assert found.sqnr_db == -200
    assert found.max_abs > 1e38
    assert found.cosine == pytest.approx(0.5)
    assert found.top1_agreement == 0.5
    assert accumulator.not_finite == ("y",)
    json.dumps(dataclasses.asdict(found), allow_nan=False)


def test_the_same_infinity_on_both_sides_is_no_difference() -> None:
    masked = np.array([[1.0, -np.inf], [np.nan, 2.0]])
    accumulator = DifferenceAccumulator()
    accumulator.add({"y": masked}, {"y": masked.copy()})
    assert accumulator.result().sqnr_db == 200
    assert accumulator.not_finite == ()


def test_huge_values_stay_finite() -> None:
    x = np.full((1, 3), 3e38, np.float32)
    assert difference_of(({"y": x}, {"y": -x})).max_abs == pytest.approx(float(np.finfo(np.float32).max))


def test_a_zero_reference() -> None:
    zero = np.zeros((2, 3))
    assert difference_of(({"y": zero}, {"y": zero})).cosine == 1
    found = difference_of(({"y": zero}, {"y": zero + 1}))
    assert (found.sqnr_db, found.cosine) == (-200, 0)


def test_whole_numbers_count_in_the_largest_difference_alone() -> None:
    ids = np.array([3, 7])
    found = difference_of(({"logits": A, "id": ids}, {"logits": A, "id": np.array([3, 9])}))
    assert (found.sqnr_db, found.max_abs) == (200, 2)
    assert difference_of(({"id": ids}, {"id": ids + 1})).sqnr_db == pytest.approx(10 * np.log10(58 / 2))


def test_maps_arent_classes() -> None:
    maps = np.ones((2, 3, 4, 4))
    assert difference_of(({"y": maps}, {"y": maps})).top1_agreement is None
    assert difference_of(({"y": np.ones((2, 1))}, {"y": np.ones((2, 1))})).top1_agreement is None


def test_renamed_outputs_pair_by_position() -> None:
    assert difference_of(({"a": A, "b": A[:, :1]}, {"out_0": A, "out_1": A[:, :1]})).sqnr_db == 200


def test_reordered_outputs_pair_by_name() -> None:
    assert difference_of(({"a": A, "b": -A}, {"b": -A, "a": A})).sqnr_db == 200


@pytest.mark.parametrize(
    ("other", "message"),
    [({"y": A[:1]}, r"shape \[1, 2\] instead of \[2, 2\]"), ({"y": A, "z": A}, "2 outputs instead of 1")],
)
def test_what_cannot_be_compared_is_named(other: dict, message: str) -> None:
    with pytest.raises(MismatchError, match=message):
        difference_of(({"y": A}, other))
    with pytest.raises(MismatchError, match="no output"):
        DifferenceAccumulator().result()
