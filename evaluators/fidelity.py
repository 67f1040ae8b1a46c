"""How close a variant's outputs are to the baseline's on the same inputs: needs no labels."""

from __future__ import annotations

from collections.abc import Mapping

from compress.artifact import Difference
from compress.data.base import Array
from compress.difference import DifferenceAccumulator, MismatchError
from compress.errors import StageError
from compress.results import Fidelity

LIMIT_BYTES = 256 * 1024 * 1024


class Reference:
    """Outputs of the baseline, kept for comparing; an observer of :func:`evaluators.accuracy.evaluate`.

    Args:
        limit_bytes: Outputs kept at most; what comes after isn't compared.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._batches: list[Mapping[str, Array]] = []
        self._left = limit_bytes

    def __call__(self, outputs: Mapping[str, Array]) -> None:
        """Keep the outputs of the next batch; the first batch is always kept."""
        self._left -= sum(array.nbytes for array in outputs.values())
        if self._left >= 0 or not self._batches:
            self._batches.append(outputs)
        else:
            self._left = -1

    @property
    def constant(self) -> bool:
        """Whether every sample gave the same output, two samples at least: then closeness says nothing."""
        import numpy as np

        first = self._batches[0] if self._batches else {}
        rows = sum(min((a.shape[0] for a in b.values() if a.ndim), default=0) for b in self._batches)
        return rows > 1 and all(
            a.ndim > 0 and np.array_equal(a, np.broadcast_to(first[name][:1], a.shape))
            for b in self._batches
            for name, a in b.items()
        )

    @property
    def batches(self) -> tuple[Mapping[str, Array], ...]:
        """The outputs kept, in order."""
        return tuple(self._batches)


class Comparison:
    """Compares a variant's outputs with a reference, batch by batch; an observer of ``evaluate`` too.

    Args:
        reference: The baseline's outputs on the same samples. A variant may come in other batch sizes (its file may fix
            one): rows are lined up, not batches.
        name: The variant's name, for messages.
    """

    def __init__(self, reference: Reference, name: str) -> None:
        self._rows = _Rows(reference.batches)
        self._accumulator = DifferenceAccumulator()
        self._name = name

    def __call__(self, outputs: Mapping[str, Array]) -> None:
        """Compare the outputs of the next batch, as far as the reference goes.

        Raises:
            StageError: The outputs differ in number or shape.
        """
        rows = min((array.shape[0] for array in outputs.values() if array.ndim), default=1)
        wanted = self._rows.take(rows)
        if wanted is None:
            return
        kept = min((array.shape[0] for array in wanted.values() if array.ndim), default=rows)
        try:
            self._accumulator.add(wanted, {n: a[:kept] if a.ndim else a for n, a in outputs.items()})
        except MismatchError as error:
            raise StageError(f"{self._name} cannot be compared with the baseline: {error}.") from error

    def result(self, *, classes: bool = True) -> Fidelity:
        """Return the closeness over all batches; without ``top1_agreement`` where outputs aren't classes.

        Raises:
            StageError: Nothing was compared.
        """
        try:
            return as_fidelity(self._accumulator.result(), classes=classes)
        except MismatchError as error:
            raise StageError(f"{self._name} cannot be compared with the baseline: {error}.") from error


def compare_outputs(reference: Mapping[str, Array], other: Mapping[str, Array]) -> Difference:
    """Return the difference of two sets of outputs by name. Raises ``MismatchError`` where their shapes differ."""
    accumulator = DifferenceAccumulator()
    accumulator.add(reference, other)
    return accumulator.result()


def as_fidelity(difference: Difference, *, classes: bool = True) -> Fidelity:
    """Return a difference as the results have it."""
    return Fidelity(
        sqnr_db=difference.sqnr_db,
        cosine=difference.cosine,
        max_abs=difference.max_abs,
        top1_agreement=difference.top1_agreement if classes else None,
        samples=difference.samples,
    )


class _Rows:
    """Hands out rows of kept batches, however many are asked for at a time."""

    def __init__(self, batches: tuple[Mapping[str, Array], ...]) -> None:
        self._batches = list(batches)

    def take(self, rows: int) -> Mapping[str, Array] | None:
        import numpy as np

        parts: list[Mapping[str, Array]] = []
        while rows > 0 and self._batches:
            batch = self._batches.pop(0)
            size = min((array.shape[0] for array in batch.values() if array.ndim), default=1)
            if size > rows:
                self._batches.insert(0, {n: a[rows:] if a.ndim else a for n, a in batch.items()})
                batch = {n: a[:rows] if a.ndim else a for n, a in batch.items()}
                size = rows
            parts.append(batch)
            rows -= size
        if not parts:
            return None
        return {n: np.concatenate([p[n] for p in parts]) if a.ndim else a for n, a in parts[0].items()}
