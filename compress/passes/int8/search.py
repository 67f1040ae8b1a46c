"""The fewest layers in float that bring the drop within a limit, by evaluations logarithmic in their number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from compress.results import Search
from compress.stage import Drop

ONE_SIDED = 1.645
"""Standard errors that a value stays below 95 times in 100."""


SPARE = 0.25
"""Share of the layers that may go into float for the evaluation's own scatter."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What the search chose.

    Attributes:
        left: Layers left in float, most sensitive first.
        search: Its record for the report.
    """

    left: tuple[str, ...]
    search: Search


def search_layers(order: Sequence[str], limit: float, measure: Callable[[Sequence[str]], Drop]) -> Found:
    """Find the shortest head of ``order`` whose layers in float keep the drop within ``limit``.

    The drop itself has to be within the limit with one-sided 95 % certainty. Where `SPARE` of the layers in float are
    enough for it, the evaluation has to find it within the limit too, five times in six: what it finds scatters around
    the drop, less so the fewer decisions change.

    A head's length doubles until the limit holds, then the last step is bisected: at most 2·log2(layers) + 2
    evaluations for either. It takes a longer head to be no worse, which holds up to noise; what is returned was
    measured in any case.

    Args:
        order: Layers that may be put back into float, most sensitive first; one at least stays quantized.
        limit: Points of the metric.
        measure: Takes the layers in float and returns the drop on selection samples.
    """
    known: dict[int, Drop] = {}

    def drop(count: int) -> Drop:
        if count not in known:
            known[count] = measure(order[:count])
        return known[count]

    most = len(order) - 1
    count = _shortest(most, lambda c: bound(drop(c)) <= limit)
    met = count is not None
    if count is None:
        count = min(known, key=lambda c: (bound(known[c]), c))
    elif shown(known[count]) > limit:
        more = _shortest(int(SPARE * len(order)), lambda c: c >= (count or 0) and shown(drop(c)) <= limit)
        count = count if more is None else more
    found = known[count]
    return Found(tuple(order[:count]), _record(limit, found, len(known), count, len(order), met=met))


def _shortest(most: int, holds: Callable[[int], bool]) -> int | None:
    """Return the smallest number up to ``most`` that ``holds``, if larger ones do too; None where ``most`` doesn't."""
    failing, count = -1, 0
    while not holds(count):
        if count >= most:
            return None
        failing, count = count, min(most, max(1, 2 * count))
    while count - failing > 1:
        middle = (failing + count) // 2
        if holds(middle):
            count = middle
        else:
            failing = middle
    return count


def bound(drop: Drop) -> float:
    """Return the upper end of a drop's one-sided 95 % interval; a gain counts as none: rounding improves no network."""
    return max(0.0, drop.value) + ONE_SIDED * drop.error


def shown(drop: Drop) -> float:
    """Return what the evaluation will find at most, five times in six."""
    return max(0.0, drop.value) + drop.scatter


def _record(limit: float, drop: Drop, evaluations: int, count: int, total: int, *, met: bool) -> Search:
    measured = f"{drop.value:.2f} ± {drop.error:.2f} {drop.what} on {drop.samples} {drop.source}"
    if not met:
        explanation = (
            f"No choice of layers was sure to keep the drop within {limit:g} by the selection samples; the best left "
            f"{count} of {total} in float: {measured}."
        )
    else:
        explanation = f"{count} of {total} layers in float keep the drop within {limit:g}: {measured}."
        if shown(drop) > limit:
            explanation += f" By chance alone the evaluation may find {drop.scatter:.2f} more or less."
    return Search(limit=limit, samples=drop.samples, evaluations=evaluations, drop=drop.value, met=met,
                  explanation=explanation)  # fmt: skip
