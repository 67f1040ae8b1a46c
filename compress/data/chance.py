"""Is the baseline better than guessing? If not, no comparison with it means anything."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from compress.data.base import Array

_ALPHA = 0.01
"""A score that guessing reaches more often than this counts as no better than guessing."""

_Z = 2.576
"""Two-sided 99 % point of the normal distribution."""

_WEAK = 0.1
"""A correlation below this is near 0, however many samples show it."""

_CAUSE = "The likely cause is preprocessing (scale, mean and std, channel order, size) or the order of the labels."


def near_chance(metric_name: str, value: float, classes: int | None, targets: Array | None, samples: int) -> str | None:
    """Tell whether a baseline's score is no better than guessing, beyond noise.

    Accuracies are compared by a one-sided binomial test (1 %) with the better of two blind guesses: uniform
    (k / classes for top-k) and, for top-1, always the most frequent class. Correlations must exceed 0.1 and the 99 %
    band of uncorrelated samples, 2.576 / √(samples − 1). Squared and absolute errors must be below those of the best
    constant.

    Args:
        metric_name: ``top1``, ``accuracy``, ``top5``, ``spearman``, ``pearson``, ``mse``, ``rmse``, ``mae``; others are
            never near chance.
        value: Accuracy in %, correlation in points (×100), error in the label's unit: as in
            :class:`compress.results.Metric`.
        classes: Number of classes the model tells apart; None where it doesn't classify.
        targets: Labels of the samples; None where they aren't at hand.
        samples: Samples scored.

    Returns:
        Two sentences for the user: what is wrong and the likely cause; None where the score is better than guessing, or
        where even the best score on so few samples could not show it.
    """
    name = metric_name.lower()
    if samples < 1:
        return None
    if name == "accuracy" or (name.startswith("top") and name[3:].lstrip("-_").isdecimal()):
        k = 1 if name == "accuracy" else int(name[3:].lstrip("-_"))
        return _accuracy(metric_name, k, value, classes, targets, samples)
    if name in ("spearman", "pearson"):
        band = _Z / math.sqrt(samples - 1) if samples > 1 else math.inf
        if math.isnan(value):
            return f"{metric_name} of the baseline is undefined: its outputs or the labels are constant. {_CAUSE}"
        if band < 1 and abs(value) / 100 <= max(_WEAK, band):
            return (
                f"The baseline's {metric_name} is {value:.1f} points on {samples} samples, which is near 0: its "
                f"outputs don't follow the labels. {_CAUSE}"
            )
        return None
    if name in ("mse", "rmse", "mae") and targets is not None:
        return _error(metric_name, value, np.asarray(targets, dtype=np.float64))
    return None


def _accuracy(
    metric_name: str, k: int, value: float, classes: int | None, targets: Array | None, samples: int
) -> str | None:
    guesses: list[tuple[float, str]] = []
    if k == 1 and targets is not None and targets.size:
        share = float(np.unique(targets, return_counts=True)[1].max() / targets.size)
        guesses.append((share, "always answering the most frequent class"))
    if classes:
        guesses.append((min(1.0, k / classes), f"guessing among {classes} classes"))
    correct = 0 if math.isnan(value) else round(value / 100 * samples)
    for probability, what in sorted(guesses, reverse=True):
        if _tail(samples, samples, probability) > _ALPHA:
            continue  # even a perfect score would not differ from this guess
        if _tail(correct, samples, probability) > _ALPHA:
            return (
                f"The baseline's {metric_name} is {value:.1f} % on {samples} samples, no better than {what} "
                f"({100 * probability:.1f} %). {_CAUSE}"
            )
        return None
    return None


def _tail(correct: int, samples: int, probability: float) -> float:
    """Return the probability of ``correct`` or more hits by chance."""
    from scipy.special import bdtrc

    if correct <= 0 or probability >= 1:
        return 1.0
    return float(bdtrc(correct - 1, samples, probability))


def _error(metric_name: str, value: float, targets: npt.NDArray[np.float64]) -> str | None:
    spread = targets - targets.mean(axis=0)
    constant = {
        "mse": float(np.mean(spread**2)),
        "rmse": float(np.sqrt(np.mean(spread**2))),
        "mae": float(np.mean(np.abs(targets - np.median(targets, axis=0)))),
    }[metric_name.lower()]
    if constant == 0 or value < constant:
        return None
    return (
        f"The baseline's {metric_name} is {value:.4g}, no better than always answering the same value "
        f"({constant:.4g}). {_CAUSE}"
    )
