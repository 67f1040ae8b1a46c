"""Histograms that grow, ranges chosen from them, and activations observed in groups."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.errors import StageError
from compress.passes.int8.ranges import choose_range
from compress.passes.observe import BINS, Histogram, observe


def test_histogram_counts_every_value_once_however_often_it_grows():
    histogram = Histogram()
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(1000).astype(np.float32) * scale for scale in (0.01, 1, 100)]
    for part in parts:
        histogram.add(part)
    everything = np.concatenate(parts)
    assert histogram.counts.sum() == 3000
    assert histogram.low == everything.min()
    assert histogram.high == everything.max()
    edges = (np.arange(2 * BINS + 1) - BINS) * (histogram.limit / BINS)
    once = np.histogram(everything, edges)[0]
    # Merged bins hold the same values as bins of that width from the start, up to float rounding at the edges.
    assert np.abs(np.cumsum(histogram.counts) - np.cumsum(once)).max() <= 3


def test_histogram_is_the_same_for_any_split_of_the_data():
    values = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    whole, split = Histogram(), Histogram()
    whole.add(values)
    for part in np.array_split(values, 7):
        split.add(part)
    assert whole.limit == split.limit
    assert (whole.counts == split.counts).all()


def test_zeros_before_the_first_value_are_kept():
    histogram = Histogram()
    histogram.add(np.zeros(5, np.float32))
    histogram.add(np.array([3.0], np.float32))
    assert histogram.counts.sum() == 6
    assert histogram.counts[BINS] == 5


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_histogram_refuses_what_is_not_finite(bad):
    with pytest.raises(FloatingPointError):
        Histogram().add(np.array([0.0, bad], np.float32))


def _gaussian_with_outlier() -> Histogram:
    histogram = Histogram()
    histogram.add(np.random.default_rng(0).standard_normal(100_000).astype(np.float32))
    histogram.add(np.array([50.0], np.float32))
    return histogram


def test_minmax_covers_the_outlier_and_the_others_cut_it():
    histogram = _gaussian_with_outlier()
    assert choose_range(histogram, "minmax", symmetric=False, percentile=99.99)[1] == 50.0
    low, high = choose_range(histogram, "percentile", symmetric=False, percentile=99.9)
    assert 3.0 < high < 3.6
    assert -3.6 < low < -3.0


def test_mse_ranges_have_the_least_quantization_error():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.standard_normal(100_000), [50.0, -20.0]]).astype(np.float32)
    histogram = Histogram()
    histogram.add(values)

    def error(low: float, high: float) -> float:
        step = (high - low) / 255
        return float(np.mean((values - (np.round((np.clip(values, low, high) - low) / step) * step + low)) ** 2))

    chosen = error(*choose_range(histogram, "mse", symmetric=False, percentile=99.9))
    others = [error(-20.0 * s, 50.0 * s) for s in np.linspace(0.2, 1, 30)]
    assert chosen <= min(others) * 1.02
    assert chosen < error(histogram.low, histogram.high)


def test_symmetric_ranges_are_symmetric():
    low, high = choose_range(_gaussian_with_outlier(), "mse", symmetric=True, percentile=99.9)
    assert low == -high


def test_a_tensor_that_is_always_zero_has_the_range_zero():
    histogram = Histogram()
    histogram.add(np.zeros((2, 3), np.float32))
    for method in ("minmax", "percentile", "mse"):
        assert choose_range(histogram, method, symmetric=False, percentile=99.9) == (0.0, 0.0)


def _chain(scale: float) -> onnx.ModelProto:
    """x → a = scale·x → b = a + 1 → y = b · b."""
    nodes = [
        helper.make_node("Mul", ["x", "s"], ["a"]),
        helper.make_node("Add", ["a", "one"], ["b"]),
        helper.make_node("Mul", ["b", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [
            numpy_helper.from_array(np.array(scale, np.float32), "s"),
            numpy_helper.from_array(np.array(1, np.float32), "one"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("memory_mb", [512, 1e-9])
def test_ranges_are_the_same_in_one_group_and_in_many(tmp_path, memory_mb):
    values = np.random.default_rng(0).uniform(-1, 1, (10, 4)).astype(np.float32)
    calls = []

    def batches():
        calls.append(1)
        return ({"x": values[i : i + 4]} for i in range(0, 10, 4))

    found = observe(
        _chain(3.0), ["x", "a", "b", "y"], batches, work=tmp_path, threads=1, advance=lambda n: None, count=True,
        memory_mb=memory_mb,
    )  # fmt: skip
    assert found["x"].high == values.max()
    assert found["a"].low == pytest.approx(3 * values.min())
    assert found["b"].high == pytest.approx(3 * values.max() + 1)
    assert found["y"].counts.sum() == 40
    # One look at the first batch, then a pass a group.
    assert len(calls) == (2 if memory_mb > 1 else 4)


def test_a_model_that_makes_infinity_from_clean_input_is_named(tmp_path):
    """microsoft/onnxruntime PR 23749: bad data and a bad model are told apart."""
    with pytest.raises(StageError, match="Activation y .*batch 1.*although the input is finite"):
        observe(
            _chain(1e38), ["a", "b", "y"], lambda: [{"x": np.full((2, 4), 2.0, np.float32)}], work=tmp_path, threads=1,
            advance=lambda n: None, count=False,
        )  # fmt: skip
