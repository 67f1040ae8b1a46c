"""Bad samples at the door: found before any model sees them, named, and stopped at or left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from compress.data.base import Array
from compress.errors import DataError
from compress.progress import Progress

Policy = Literal["stop", "skip"]
Kind = Literal["unreadable", "not finite"]


class BadSample(Exception):  # noqa: N818 - it names a sample; whether it is an error is the policy's to say
    """A sample that cannot be used.

    Args:
        kind: What is wrong with it.
        reason: One clause, naming the sample.
    """

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind: Kind = kind
        self.reason = reason


class Screen:
    """Decides on bad samples and remembers them; shared by a data set and its subsets, so that each is told once."""

    def __init__(self, policy: Policy, progress: Progress) -> None:
        self.bad: dict[int, BadSample] = {}
        self._policy = policy
        self._progress = progress
        self._untold: list[BadSample] = []
        self._warned: set[str] = set()

    def judge(self, index: int, bad: BadSample) -> None:
        """Note a bad sample.

        Raises:
            DataError: The policy is to stop.
        """
        if self._policy == "stop":
            raise DataError(
                f"{bad.reason}; the data itself is bad, no model has touched it yet.",
                "Mend or remove the sample, or leave such samples out with --bad-samples skip.",
            ) from bad
        if index not in self.bad:
            self.bad[index] = bad
            self._untold.append(bad)

    def tell(self) -> None:
        """Warn of the samples left out since the last call, once a kind."""
        for kind in ("unreadable", "not finite"):
            found = [b for b in self._untold if b.kind == kind]
            if found:
                what = "cannot be read" if kind == "unreadable" else "hold NaN or infinity"
                self._progress.warn(
                    f"{len(found)} sample(s) {what} and are left out, inputs and labels alike; first: "
                    f"{found[0].reason}. The data itself is bad, not the model."
                )
        self._untold.clear()

    def warn_once(self, text: str) -> None:
        """Pass a warning on, the first time it is given."""
        if text not in self._warned:
            self._warned.add(text)
            self._progress.warn(text)

    def none_left(self, name: str, total: int) -> DataError:
        """Return the error for a data set of which every sample is bad."""
        first = next(iter(self.bad.values()))
        return DataError(f"{name}: all {total} samples are bad, 0 are left; first: {first.reason}.")


def find_not_finite(arrays: Mapping[str, Array], where: str) -> BadSample | None:
    """Look for NaN and infinity in the floating-point arrays of one sample, labels under ``labels``.

    Returns:
        What was found first, its reason naming the tensor, the place and the number of values; else None.
    """
    for name, array in arrays.items():
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        nans = int(np.isnan(array).sum())
        infinite = int(np.isinf(array).sum())
        what = " and ".join(f"{n} {w}" for n, w in ((nans, "NaN"), (infinite, "infinite")) if n)
        tensor = f"input '{name}'" if name != "labels" else "the label"
        return BadSample("not finite", f"{where}: {tensor} holds {what} of {array.size} values")
    return None
