"""Where the time goes: each variant's operators beside those of the float reference, as tables."""

from __future__ import annotations

import dataclasses

from compress.report import lookup, profiles
from compress.report.cells import Cell
from compress.report.numbers import clean, fixed, milliseconds
from compress.results import Entry, Profile, Results

HEAD = ("Layers", "Before", "After", "Runs in", "Conversions beside it", "Change in all")
TOTALS_HEAD = ("Operators", "Before", "After", "Change")
SHOWN = 15
"""Rows of a table where nothing else is asked; one more holds the rest."""

_KINDS: tuple[tuple[profiles.Kind, str], ...] = (
    ("compute", "Compute"),
    ("conversion", "Conversions"),
    ("other", "Other"),
)


@dataclasses.dataclass(frozen=True)
class Line:
    """One row of the table.

    Attributes:
        cells: Under ``HEAD``, without the first column.
        bar: The time after, conversions included, as a share of the largest, in percent; None for the sum of the rest.
    """

    name: str
    cells: tuple[Cell, ...]
    bar: float | None = None


@dataclasses.dataclass(frozen=True)
class Breakdown:
    """Where the time of one variant goes.

    Attributes:
        totals: Under ``TOTALS_HEAD``.
        absent: Why there is no table; empty where there is one.
    """

    name: str
    lines: tuple[Line, ...] = ()
    totals: tuple[tuple[str, ...], ...] = ()
    absent: str = ""


def breakdowns(results: Results, shown: int = SHOWN) -> list[Breakdown]:
    """Return where the time of each variant goes; nothing where no variant was profiled and none says why.

    Args:
        results: What to read.
        shown: Rows of a table; one more holds the rest.
    """
    reference = lookup.plain(results)
    told = [e for e in results.variants if e.profile is not None or e.reasons.get("profile")]
    return [_breakdown(results, e, shown) for e in told if e is not reference or e.profile is None]


def lead(results: Results) -> str:
    """Return how the times of all tables were taken; empty where there is none."""
    found = [pair for e in results.variants if (pair := lookup.profiles(results, e)) is not None]
    if not found:
        return ""
    before = found[0][0]
    return (
        f"One inference at batch {before.batch}, operator by operator: median of {before.runs} by the runtime's own "
        f"profiler, before ({lookup.float_reference(results)}) and after. Profiling itself costs time, so the totals "
        "aren't the latency. A conversion between two rows counts half in each."
    )


def _breakdown(results: Results, entry: Entry, shown: int) -> Breakdown:
    name = clean(entry.name)
    if entry.profile is None:
        return Breakdown(name, absent=lookup.missing(entry, "profile"))
    pair = lookup.profiles(results, entry)
    if pair is None:
        return Breakdown(name, absent=f"not compared — {_obstacle(results, entry.profile)}")
    rows = profiles.rows(*pair)
    largest = max((r.after.all_ms for r in rows), default=0.0) or 1.0
    lines = [_line(r, largest) for r in rows[:shown]]
    if rest := rows[shown:]:
        lines.append(_rest(rest))
    return Breakdown(name, tuple(lines), _totals(*pair))


def _obstacle(results: Results, after: Profile) -> str:
    reference = lookup.plain(results)
    if reference is None:
        return "the run has no float reference"
    if reference.profile is None:
        return f"the float reference was not profiled: {lookup.reason(reference, 'profile')}"
    return f"profiled at batch {after.batch}, the float reference at batch {reference.profile.batch}"


def _line(row: profiles.Row, largest: float) -> Line:
    before, after = row.before, row.after
    return Line(
        row.title,
        (
            _operators(before),
            _operators(after),
            Cell(", ".join(after.precisions) or "none"),
            _conversions(before, after),
            Cell(_change(after.all_ms - before.all_ms)),
        ),
        round(100 * after.all_ms / largest, 1),
    )


def _operators(part: profiles.Part) -> Cell:
    return Cell(milliseconds(part.ms), (part.types,)) if part.ops else Cell("none")


def _conversions(before: profiles.Part, after: profiles.Part) -> Cell:
    was = (f"before {milliseconds(before.conversion_ms)}",) if before.conversions else ()
    if not after.conversions:
        return Cell("none", was)
    return Cell(milliseconds(after.conversion_ms), (after.conversion_types, *was))


def _rest(rows: list[profiles.Row]) -> Line:
    (before, moved_before), (after, moved) = (
        (sum(p.ms for p in parts), sum(p.conversion_ms for p in parts))
        for parts in ([r.before for r in rows], [r.after for r in rows])
    )
    precisions = dict.fromkeys(p for r in rows for p in r.after.precisions)
    was = (f"before {milliseconds(moved_before)}",) if moved_before else ()
    return Line(
        f"{len(rows)} more row{'s' if len(rows) > 1 else ''}",
        (
            Cell(milliseconds(before)),
            Cell(milliseconds(after)),
            Cell(", ".join(precisions) or "none"),
            Cell(milliseconds(moved) if moved else "none", was),
            Cell(_change(after + moved - before - moved_before)),
        ),
    )


def _totals(before: Profile, after: Profile) -> tuple[tuple[str, ...], ...]:
    rows = []
    for kind, word in _KINDS:
        was, now = profiles.spent(before, kind), profiles.spent(after, kind)
        rows.append((word, _share(was, before.total_ms), _share(now, after.total_ms), _change(now - was)))
    total = (milliseconds(before.total_ms), milliseconds(after.total_ms), _change(after.total_ms - before.total_ms))
    return (*rows, ("Total", *total))


def _share(ms: float, total: float) -> str:
    return f"{milliseconds(ms)} ({fixed(100 * ms / total, 0)} %)" if total else milliseconds(ms)


def _change(ms: float) -> str:
    if abs(ms) < 5e-5:
        return "none"
    return f"{'+' if ms > 0 else ''}{milliseconds(ms)}"
