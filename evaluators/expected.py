"""What a change of a classifier's outputs is expected to cost in accuracy, without labels and with little noise.

Where two models decide differently, one label decides which of them was right; counting labels makes a noisy estimate
of a small drop. The float model's own probabilities say what the label would do on average: the drop of one sample is
``p(float's class) - p(the candidate's class)``, which is never negative. A model that is too sure of itself makes the
estimate too high, not too low. (The conditional expectation of an estimate has its mean and less variance: Blackwell,
"Conditional expectation and unbiased sequential estimation", 1947.)
"""

from __future__ import annotations

import dataclasses

import numpy as np

from compress.data.base import Array


@dataclasses.dataclass(frozen=True)
class Expected:
    """An expected drop of top-1 accuracy.

    Attributes:
        points: The drop in points; 0 or more.
        error: Its standard error.
        scatter: Standard deviation, in points, of what counting the labels of one sample gives; divide by the square
            root of a number of samples for that of a measured drop.
        changed: Share of the samples whose class changed, 0–1.
    """

    points: float
    error: float
    scatter: float
    changed: float


def expected_drop(reference: Array, candidate: Array) -> Expected:
    """Compare two models' outputs on the same samples.

    Args:
        reference: The float model's, ``[samples, classes]``: logits, or probabilities.
        candidate: The candidate's.
    """
    likely = probabilities(np.asarray(reference, np.float64))
    rows = np.arange(len(likely))
    before, after = likely.argmax(1), np.asarray(candidate).argmax(1)
    kept, taken = likely[rows, before], likely[rows, after]
    changed = before != after
    drop = np.where(changed, kept - taken, 0.0)
    # A changed decision counts +1 or -1 where either class is the label's, else 0.
    variance = float(np.where(changed, kept + taken, 0.0).mean() - drop.mean() ** 2)
    return Expected(
        points=100 * float(drop.mean()),
        error=100 * float(drop.std()) / np.sqrt(max(1, len(drop))),
        scatter=100 * float(np.sqrt(max(0.0, variance))),
        changed=float(changed.mean()),
    )


def probabilities(outputs: Array) -> Array:
    """Return probabilities ``[samples, classes]``: the softmax, unless the outputs are probabilities already."""
    if (outputs >= 0).all() and np.allclose(outputs.sum(1), 1, atol=1e-3):
        return outputs
    powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
