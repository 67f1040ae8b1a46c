"""How far two models' outputs are apart on the same inputs: pure NumPy, streaming, always finite."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from compress.artifact import Difference
from compress.data.base import Array

_Floats = npt.NDArray[np.float64]

LIMIT_DB = 200.0
"""SQNR is kept within ± this: 200 for equal outputs, −200 where one side isn't finite or the reference is all zero."""
NOT_FINITE = float(np.finfo(np.float32).max)
"""Stands for an infinite difference, which JSON cannot hold."""


class MismatchError(ValueError):
    """Two sets of outputs that cannot be compared: their number or shapes differ."""


@dataclasses.dataclass
class _Tally:
    """Running sums over one output."""

    signal: float = 0.0
    noise: float = 0.0
    cosine: float = 0.0
    max_abs: float = 0.0
    agreeing: int = 0
    classes: bool = True
    samples: int = 0
    floating: bool = True
    broken: bool = False

    def sqnr_db(self) -> float:
        if self.broken:
            return -LIMIT_DB
        if self.noise == 0:
            return LIMIT_DB
        if self.signal == 0:
            return -LIMIT_DB
        return float(np.clip(10 * np.log10(self.signal / self.noise), -LIMIT_DB, LIMIT_DB))


class DifferenceAccumulator:
    """Compares outputs batch by batch.

    Every output is weighed on its own and the worst one is reported, so that a large output cannot hide that a small
    one is wrong. Outputs of whole numbers (class indices, counts) have no noise power worth the name: they count in
    ``max_abs``, and in the rest only where a model has no other outputs. Outputs pair by name where both sides have the
    same names, else by position. A position where both sides hold the same infinity, or both NaN, is left out.

    Attributes:
        not_finite: Names of outputs that hold NaN or infinity where the reference is finite.
    """

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}
        self.not_finite: tuple[str, ...] = ()

    def add(self, reference: Mapping[str, Array], other: Mapping[str, Array]) -> None:
        """Take in the outputs of one batch; the first axis of each is samples.

        Raises:
            MismatchError: The two sides have a different number of outputs, or different shapes.
        """
        for name, (left, right) in _paired(reference, other).items():
            if left.shape != right.shape:
                raise MismatchError(f"output {name} has shape {list(right.shape)} instead of {list(left.shape)}")
            if left.size:
                self._add(name, self._tallies.setdefault(name, _Tally()), left, right)

    def result(self) -> Difference:
        """Return the difference over all batches.

        Raises:
            MismatchError: Nothing was compared.
        """
        if not self._tallies:
            raise MismatchError("there is no output to compare")
        weighed = [t for t in self._tallies.values() if t.floating] or list(self._tallies.values())
        agreement = [t.agreeing / t.samples for t in weighed if t.classes]
        return Difference(
            sqnr_db=min(t.sqnr_db() for t in weighed),
            cosine=min(float(np.clip(t.cosine / t.samples, -1, 1)) for t in weighed),
            max_abs=max(t.max_abs for t in self._tallies.values()),
            top1_agreement=min(agreement) if agreement else None,
            samples=max(t.samples for t in self._tallies.values()),
        )

    def _add(self, name: str, tally: _Tally, left: Array, right: Array) -> None:
        tally.floating = bool(np.issubdtype(left.dtype, np.inexact))
        rows = left.shape[0] if left.ndim else 1
        a, b = (np.asarray(x, np.float64).reshape(rows, -1) for x in (left, right))
        finite = np.isfinite(a) & np.isfinite(b)
        same = finite | (a == b) | (np.isnan(a) & np.isnan(b))
        if not same.all():
            tally.broken, tally.max_abs = True, NOT_FINITE
            if (np.isfinite(a) & ~np.isfinite(b)).any() and name not in self.not_finite:
                self.not_finite = (*self.not_finite, name)
        x, y = np.where(finite, a, 0), np.where(finite, b, 0)
        error = y - x
        tally.signal += float(np.sum(x * x))
        tally.noise += float(np.sum(error * error))
        tally.max_abs = max(tally.max_abs, min(float(np.max(np.abs(error))), NOT_FINITE))
        tally.cosine += float(np.sum(np.where(same.all(1), _cosines(x, y), 0)))
        tally.classes = tally.classes and tally.floating and left.ndim == 2 and left.shape[1] >= 2
        if tally.classes:
            tally.agreeing += int(np.sum((np.argmax(x, 1) == np.argmax(y, 1)) & same.all(1)))
        tally.samples += rows


def _cosines(x: _Floats, y: _Floats) -> _Floats:
    """Return the cosine similarity row by row; two zero rows are alike, one zero row is like nothing."""
    left, right = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)
    both = left * right
    cosine = np.sum(x * y, axis=1) / np.where(both > 0, both, 1)
    return np.asarray(np.where(both > 0, cosine, ((left == 0) & (right == 0)).astype(np.float64)))


def _paired(reference: Mapping[str, Array], other: Mapping[str, Array]) -> dict[str, tuple[Array, Array]]:
    if len(reference) != len(other):
        raise MismatchError(f"there are {len(other)} outputs instead of {len(reference)}")
    if set(reference) == set(other):
        return {name: (reference[name], other[name]) for name in reference}
    return {name: (reference[name], array) for name, array in zip(reference, other.values(), strict=True)}
