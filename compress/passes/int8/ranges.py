"""From a histogram to the range that INT8 shall cover: min-max, percentile, mean squared error."""

from __future__ import annotations

from typing import Literal

import numpy as np

from compress.passes.observe import Histogram

Method = Literal["minmax", "percentile", "mse"]


def choose_range(histogram: Histogram, method: Method, *, symmetric: bool, percentile: float) -> tuple[float, float]:
    """Return (low, high) of what is represented; values outside are clipped.

    Args:
        histogram: What was observed.
        method: ``minmax`` covers everything; ``percentile`` the share ``percentile`` of the values, split evenly over
            both ends; ``mse`` the range with the least expected squared error over clipping and rounding (as in
            Banner et al., 2019, by search over the histogram instead of a fitted distribution).
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


def _least_squared_error(histogram: Histogram, *, symmetric: bool, levels: int = 255) -> tuple[float, float]:
    filled = histogram.counts > 0
    centers, counts = histogram.centers[filled], histogram.counts[filled].astype(np.float64)
    best, best_error = (histogram.low, histogram.high), np.inf
    for shrink in np.linspace(1.0, 0.2, 81):
        low, high = min(0.0, histogram.low * shrink), max(0.0, histogram.high * shrink)
        if symmetric:
            low, high = -max(-low, high), max(-low, high)
        step = (high - low) / levels
        clipped = np.clip(centers, low, high)
        error = float(counts @ ((centers - clipped) ** 2 + np.where(clipped == centers, step**2 / 12, 0.0)))
        if error < best_error:
            best, best_error = (low, high), error
    return best
