"""From a histogram to the range that INT8 shall cover: min-max, percentile, entropy, mean squared error."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from compress.passes.observe import Histogram

Method = Literal["minmax", "percentile", "entropy", "mse"]
METHODS: tuple[Method, ...] = ("minmax", "percentile", "entropy", "mse")

_SHRINKS = np.linspace(1.0, 0.2, 81)
"""Shares of the observed range that are tried."""
_LEVELS = 256

Floats = npt.NDArray[np.float64]


def choose_range(histogram: Histogram, method: Method, *, symmetric: bool, percentile: float) -> tuple[float, float]:
    """Return (low, high) of what is represented; values outside are clipped.

    Args:
        histogram: What was observed.
        method: ``minmax`` covers everything; ``percentile`` the share ``percentile`` of the values, split evenly over
            both ends; ``entropy`` the range whose quantized distribution has the least Kullback-Leibler divergence from
            the observed one (Migacz, "8-bit inference with TensorRT", 2017); ``mse`` the range with the least expected
            squared error over clipping and rounding (as in Banner et al., 2019, by search over the histogram instead of
            a fitted distribution).
        symmetric: Search ranges around zero only.
        percentile: In percent, used by ``percentile``.
    """
    low, high = histogram.low, histogram.high
    if not np.isfinite(low):
        return 0.0, 0.0
    if method != "minmax" and histogram.limit == 0.0:
        return low, high
    if method == "percentile":
        low, high = _percentile(histogram, percentile)
    elif method == "entropy":
        low, high = _least_divergence(histogram, symmetric=symmetric)
    elif method == "mse":
        low, high = _least_squared_error(histogram, symmetric=symmetric)
    if symmetric:
        high = max(abs(low), abs(high))
        low = -high
    return low, high


def _percentile(histogram: Histogram, percentile: float) -> tuple[float, float]:
    share = np.cumsum(histogram.counts) / histogram.counts.sum()
    tail = (1 - percentile / 100) / 2
    width = histogram.centers[1] - histogram.centers[0]
    low = histogram.centers[np.searchsorted(share, tail, side="right")] - width / 2
    high = histogram.centers[min(int(np.searchsorted(share, 1 - tail)), len(share) - 1)] + width / 2
    return max(low, histogram.low), min(high, histogram.high)


def _least_divergence(histogram: Histogram, *, symmetric: bool) -> tuple[float, float]:
    """Try shrunken ranges: all that a range cuts off counts at its ends, and each level is spread over its bins.

    Bins at zero are left out: what a ReLU cuts off is exact in every range, and its mass would drown all else.
    """
    counts = histogram.counts.astype(np.float64)
    width = 2 * histogram.limit / len(counts)
    middle = len(counts) // 2
    counts[middle] = 0
    if not counts.any():
        return histogram.low, histogram.high
    best, least = (histogram.low, histogram.high), np.inf
    for shrink in _SHRINKS:
        low, high = _bounds(histogram, shrink, symmetric=symmetric)
        first = int(np.clip(np.floor((low + histogram.limit) / width), 0, len(counts) - 1))
        last = int(np.clip(np.ceil((high + histogram.limit) / width), first + 1, len(counts)))
        if last - first <= _LEVELS:  # fewer bins than levels: nothing would be rounded, so nothing can be judged
            break
        inside = counts[first:last]
        reference = inside.copy()
        reference[0] += counts[:first].sum()
        reference[-1] += counts[last:].sum()
        divergence = _divergence(reference, inside)
        if divergence < least:
            best, least = (low, high), divergence
    return best


def _divergence(reference: Floats, inside: Floats) -> float:
    """Return KL(reference ‖ inside quantized to the levels and spread again over the bins that aren't empty)."""
    level = np.arange(len(inside)) * _LEVELS // len(inside)
    filled = inside > 0
    mass = np.bincount(level, inside, _LEVELS)
    share = np.bincount(level, filled.astype(np.float64), _LEVELS)
    spread = np.where(filled, (mass / np.maximum(share, 1))[level], 0.0)
    # A thousandth of a sample where the reference has mass and the quantized one has none keeps the logarithm finite.
    p = reference / reference.sum()
    q = np.maximum(spread, 1e-3) / np.maximum(spread, 1e-3).sum()
    used = p > 0
    return float((p[used] * np.log(p[used] / q[used])).sum())


def _bounds(histogram: Histogram, shrink: float, *, symmetric: bool) -> tuple[float, float]:
    low, high = min(0.0, histogram.low * shrink), max(0.0, histogram.high * shrink)
    return (-max(-low, high), max(-low, high)) if symmetric else (low, high)


def _least_squared_error(histogram: Histogram, *, symmetric: bool, levels: int = 255) -> tuple[float, float]:
    filled = histogram.counts > 0
    centers, counts = histogram.centers[filled], histogram.counts[filled].astype(np.float64)
    best, best_error = (histogram.low, histogram.high), np.inf
    for shrink in _SHRINKS:
        low, high = _bounds(histogram, shrink, symmetric=symmetric)
        step = (high - low) / levels
        clipped = np.clip(centers, low, high)
        error = float(counts @ ((centers - clipped) ** 2 + np.where(clipped == centers, step**2 / 12, 0.0)))
        if error < best_error:
            best, best_error = (low, high), error
    return best
