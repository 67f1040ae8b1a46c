"""Samples held out from choosing, and the error measured on them."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.passes.int8.heldout import MOST, HeldOut, Split, decibels


def _numbers(batches):
    """Return the samples in batches whose rows hold the sample's number."""
    return [row for inputs in batches for row in inputs["x"][:, 0].astype(int).tolist()]


def _samples(count):
    return np.repeat(np.arange(count, dtype=np.float32)[:, None], 2, axis=1)


@pytest.mark.parametrize("count", [5, 6, 9, 10, 23, 50, 64, 333, 1000])
@pytest.mark.parametrize("batch", [1, 16, 64])
def test_every_sample_is_in_one_part_and_none_in_both(rows, signature, count, batch):
    split = Split(rows(_samples(count)), signature("batch", 2), batch)
    fit, held = _numbers(split.fit()), _numbers(split.held())
    assert split.held_out
    assert sorted(fit + held) == list(range(count))
    assert not set(fit) & set(held)
    assert 1 <= len(held) <= min(MOST, count / 4)
    assert _numbers(split.fit()) == fit  # the same at every call
    assert split.batches == sum(1 for _ in split.fit())


def test_one_batch_of_five_is_held_out(rows, signature):
    split = Split(rows(_samples(20)), signature("batch", 2), 16)
    # Batches of two: a tenth of the samples.
    assert _numbers(split.held()) == [8, 9, 18, 19]


@pytest.mark.parametrize("count", [1, 4])
def test_too_few_samples_hold_nothing_out(rows, signature, count):
    split = Split(rows(_samples(count)), signature("batch", 2), 16)
    assert not split.held_out
    assert split.batches == count
    assert _numbers(split.fit()) == list(range(count))
    assert list(split.held()) == []


def test_a_fixed_batch_size_is_kept_to_and_what_fills_it_up_is_not_held_out(rows, signature):
    split = Split(rows(_samples(22)), signature(4, 2), 16)
    assert all(len(inputs["x"]) == 4 for inputs in [*split.fit(), *split.held()])
    assert _numbers(split.held()) == [16, 17, 18, 19]
    assert _numbers(split.fit()) == [*range(16), 20, 21, 21, 21]
    assert not Split(rows(_samples(16)), signature(4, 2), 16).held_out


@pytest.mark.parametrize("size", ["batch", 4])
def test_both_texts_of_a_pair_are_in_the_same_part(rows, signature, size):
    pairs = np.concatenate([_samples(40), _samples(40)])
    split = Split(rows(pairs, views=2), signature(size, 2), 4)
    fit, held = _numbers(split.fit()), _numbers(split.held())
    assert held
    assert not set(fit) & set(held)
    assert sorted(fit + held) == sorted([*range(40), *range(40)])


def _scaled(**factors):
    """Return a model with one output, ``x`` times the factor, for each name."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", f"{n}_factor"], [n]) for n in factors]
        + [helper.make_node("Cast", ["x"], ["whole"], to=TensorProto.INT64)],
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [
            *(helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 2]) for n in factors),
            helper.make_tensor_value_info("whole", TensorProto.INT64, ["batch", 2]),
        ],
        [numpy_helper.from_array(np.array(f, np.float32), f"{n}_factor") for n, f in factors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def held(rows, signature, tmp_path):
    """Judge of a model with an output twice its input and one that is zero, and one of integers."""
    split = Split(rows(_samples(100)), signature("batch", 2), 10)
    return HeldOut(_scaled(a=2.0, b=1.0, nothing=0.0), split, 1, tmp_path)


def test_the_error_is_noise_over_signal_averaged_over_outputs_with_a_signal(held, tmp_path):
    assert held.samples == 20
    assert held.error(_scaled(a=2.0, b=1.0, nothing=0.0)) == 0.0
    # A tenth off is a hundredth of the power, a half off a quarter; what is zero has no power to compare with.
    expected = (0.01 + 0.25) / 2
    candidate = _scaled(a=1.8, b=1.5, nothing=9.0)
    assert held.error(candidate) == pytest.approx(expected, rel=1e-5)
    onnx.save(candidate, tmp_path / "candidate.onnx")
    assert held.error(tmp_path / "candidate.onnx") == pytest.approx(expected, rel=1e-5)


def test_fewer_samples_are_whole_batches_from_the_start(rows, signature, tmp_path):
    values = _samples(100)
    held = HeldOut(_scaled(a=1.0), Split(rows(values), signature("batch", 2), 10), 1, tmp_path)
    shifted = _scaled(a=1.0)
    shifted.graph.node[0].op_type = "Add"  # an error of 1 wherever the sample is
    one, two = np.arange(40, 50.0), np.arange(90, 100.0)
    first = 10 / (one**2).sum()
    both = 20 / ((one**2).sum() + (two**2).sum())
    assert held.error(shifted, 1) == pytest.approx(first, rel=1e-5)
    assert held.error(shifted, 10) == pytest.approx(first, rel=1e-5)
    assert held.error(shifted, 11) == pytest.approx(both, rel=1e-5)
    assert held.error(shifted) == pytest.approx(both, rel=1e-5)


def test_outputs_without_any_signal_have_no_error(rows, signature, tmp_path):
    held = HeldOut(_scaled(a=0.0), Split(rows(_samples(50)), signature("batch", 2), 10), 1, tmp_path)
    assert held.error(_scaled(a=3.0)) == 0.0


@pytest.mark.parametrize(("error", "expected"), [(1.0, 0.0), (0.01, 20.0), (2.0, -10 * math.log10(2)), (0.0, 200.0)])
def test_decibels(error, expected):
    assert decibels(error) == pytest.approx(expected)
