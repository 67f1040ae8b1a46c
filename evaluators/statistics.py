"""From samples to numbers with a spread: percentiles, ratios pair by pair, bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from compress.results import Latency, Ratio, Throughput

Rounds = Sequence[Sequence[float]]
"""Milliseconds of every timed run, by round."""

Index = npt.NDArray[np.int64]

RESAMPLES = 10_000
_CONFIDENCE = 0.95


def latency(rounds: Rounds) -> Latency:
    """Return percentiles over all timed runs, and the median of each round.

    Raises:
        ValueError: There is no run.
    """
    samples = np.concatenate([np.asarray(r, np.float64) for r in rounds])
    median, p90, p99 = (float(v) for v in np.percentile(samples, (50, 90, 99)))
    return Latency(
        median=median, p90=p90, p99=p99, rounds=[float(np.median(r)) for r in rounds], runs=int(samples.size)
    )


def throughput(rounds: Rounds, batch: int, seed: int = 0) -> Throughput:
    """Return samples a second, back to back, with a 95 % bootstrap interval over rounds."""
    seconds = np.array([sum(r) / 1000 for r in rounds])
    samples = np.array([batch * len(r) for r in rounds], np.float64)
    index = _resampled(len(rounds), seed)
    low, high = _interval(samples[index].sum(1) / seconds[index].sum(1), len(rounds))
    return Throughput(value=float(samples.sum() / seconds.sum()), low=low, high=high)


def paired_ratio(base: Rounds, variant: Rounds, batch: int, seed: int = 0) -> Ratio:
    """Return how many times faster ``variant`` is than ``base``: above 1 is faster.

    Each round gives the ratio of the two medians, taken within seconds of one another; the result is the geometric mean
    over rounds with its 95 % bootstrap interval.

    Args:
        base: The baseline's runs.
        variant: The variant's runs, in the same rounds.
        batch: The batch size both were timed at.
        seed: Seeds the bootstrap.

    Raises:
        ValueError: The rounds don't pair, or there are fewer than two.
    """
    if len(base) != len(variant) or len(base) < 2:
        raise ValueError(f"{len(base)} and {len(variant)} rounds: two or more, the same on both sides, are needed")
    logs = np.log([np.median(b) / np.median(v) for b, v in zip(base, variant, strict=True)])
    low, high = _interval(logs[_resampled(len(logs), seed)].mean(1), len(logs))
    return Ratio(ratio=float(np.exp(logs.mean())), low=float(np.exp(low)), high=float(np.exp(high)), batch=batch)


def inside_noise(ratio: Ratio) -> bool:
    """Return whether the interval includes 1: then no difference in speed was shown."""
    return ratio.low <= 1 <= ratio.high


def outcome(ratio: Ratio) -> Literal["faster", "slower", "no difference shown"]:
    """Return what the measurement shows, in words. It looks at time alone: not at zeros, operations or file size."""
    if inside_noise(ratio):
        return "no difference shown"
    return "faster" if ratio.low > 1 else "slower"


def paired_interval(
    statistic: Callable[[Index], float], samples: int, seed: int, resamples: int = 1000
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a statistic of two models on the same samples.

    Args:
        statistic: Takes the indices of a resample (int64, ``[samples]``) and returns the statistic on it; it uses the
            same indices for both models, so that what is hard for both doesn't count as noise.
        samples: Samples there are.
        seed: Seeds the bootstrap.
        resamples: Resamples to draw.
    """
    random = np.random.default_rng(seed)
    values = np.array([statistic(random.integers(0, samples, samples)) for _ in range(resamples)])
    return _interval(values, samples)


def _resampled(size: int, seed: int) -> Index:
    return np.random.default_rng(seed).integers(0, size, (RESAMPLES, size))


def _interval(values: npt.NDArray[np.float64], size: int) -> tuple[float, float]:
    """Return the expanded percentile interval of bootstrap values from ``size`` observations.

    The plain percentile interval is too narrow for a handful of rounds; this one moves the percentiles outward so that
    it has the width of a t interval where that is right (Hesterberg, "What Teachers Should Know About the Bootstrap",
    The American Statistician 69, 2015, section 4.3). For many observations both are the same.
    """
    from scipy import stats

    if size < 2:
        value = float(np.mean(values))
        return value, value
    outward = np.sqrt(size / (size - 1)) * stats.t.ppf((1 - _CONFIDENCE) / 2, size - 1)
    tail = 100 * float(stats.norm.cdf(outward))
    low, high = np.percentile(values, (tail, 100 - tail))
    return float(low), float(high)
