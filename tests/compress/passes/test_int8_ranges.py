"""Ranges chosen from histograms whose right answer is known: by hand, or by trying all there is to try."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compress.passes.int8.ranges import choose_range
from compress.passes.observe import BINS, Histogram


def _histogram(counts: dict[int, int], low: float, high: float) -> Histogram:
    """Return a histogram whose bins are one wide: bin ``i`` counts what lies from ``i`` to ``i + 1``."""
    made = Histogram(low, high, float(BINS))
    for place, count in counts.items():
        made.counts[BINS + place] = count
    return made


@pytest.mark.parametrize(("symmetric", "expected"), [(False, (-3.0, 7.5)), (True, (-7.5, 7.5))])
def test_minmax_is_what_was_seen(symmetric, expected):
    histogram = Histogram()
    histogram.add(np.array([-3.0, 0.0, 7.5], np.float32))
    assert choose_range(histogram, "minmax", symmetric=symmetric, percentile=50.1) == expected


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_nothing_seen_is_the_range_zero(method):
    assert choose_range(Histogram(), method, symmetric=False, percentile=99.9) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("percentile", "symmetric", "expected"),
    [
        # Of a thousand values, one a bin, an eighth is cut off at each end: 125 values.
        (75.0, False, (126.0, 876.0)),
        (75.0, True, (-876.0, 876.0)),
        (100.0, False, (1.25, 1000.75)),
    ],
)
def test_a_percentile_cuts_half_of_the_rest_off_each_end(percentile, symmetric, expected):
    histogram = _histogram(dict.fromkeys(range(1, 1001), 1), 1.25, 1000.75)
    assert choose_range(histogram, "percentile", symmetric=symmetric, percentile=percentile) == expected


@pytest.mark.parametrize(("symmetric", "many"), [(False, 260_100), (True, 65_025)])
def test_mse_weighs_one_clipped_value_against_the_rounding_of_many(symmetric, many):
    """The share s of the range costs (1 - s)² in clipping and many·s²/(12·255²) in rounding, four times as much where
    the range reaches to both sides; either is least at s = 3/4."""
    histogram = _histogram({10: many, 1000: 1}, 0.0, 1000.5)
    low, high = choose_range(histogram, "mse", symmetric=symmetric, percentile=99.9)
    assert high == pytest.approx(0.75 * 1000.5, rel=1e-12)
    assert low == (-high if symmetric else 0.0)


@pytest.mark.parametrize("method", ["entropy", "mse"])
def test_values_spread_evenly_are_covered_to_their_ends(method):
    """No bin says less than another, so cutting any off only adds error."""
    histogram = _histogram(dict.fromkeys(range(-BINS, BINS), 10), -BINS + 0.5, BINS - 0.5)
    assert choose_range(histogram, method, symmetric=False, percentile=99.9) == (-BINS + 0.5, BINS - 0.5)


def _divergence(counts: list[float], first: int, last: int) -> float:
    """Kullback-Leibler divergence of the bins from first to last, quantized to 256 levels, from all of them."""
    inside = counts[first:last]
    reference = list(inside)
    reference[0] += sum(counts[:first])
    reference[-1] += sum(counts[last:])
    spread = [0.0] * len(inside)
    for level in range(256):
        bins = [i for i in range(len(inside)) if i * 256 // len(inside) == level and inside[i] > 0]
        for i in bins:
            spread[i] = sum(inside[b] for b in bins) / len(bins)
    floor = [max(value, 1e-3) for value in spread]
    pairs = zip(reference, floor, strict=True)
    return sum(p / sum(reference) * math.log(p / sum(reference) * sum(floor) / q) for p, q in pairs if p > 0)


@pytest.mark.parametrize("zeros", [0, 1000, 1_000_000])
def test_entropy_takes_the_range_of_least_divergence(zeros):
    """What a ReLU cuts off, however much it is, changes nothing."""
    rng = np.random.default_rng(0)
    histogram = Histogram()
    histogram.add(rng.exponential(1.0, 2000).astype(np.float32))
    histogram.counts[BINS] += zeros
    top = histogram.high
    counts = histogram.counts.astype(float).tolist()
    counts[BINS] = 0.0
    width = histogram.limit / BINS
    tried = {}
    # Every fourth of the shares that are tried: each takes a while without NumPy.
    for share in np.linspace(1.0, 0.28, 19):
        tried[share] = _divergence(counts, BINS, BINS + math.ceil(top * share / width))
    low, high = choose_range(histogram, "entropy", symmetric=False, percentile=99.9)
    assert low == 0.0
    assert high < top
    found = _divergence(counts, BINS, BINS + math.ceil(high / width))
    assert found <= min(tried.values()) + 1e-12
    assert found < tried[1.0]
