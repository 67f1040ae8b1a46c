"""The budget as a row of chips: each limit, what was measured against it, and whether it is met."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from compress.report import explain, lookup
from compress.report.numbers import clean, megabytes, milliseconds, sig, times
from compress.results import Entry, Metric, Results

State = Literal["met", "not met", "open"]


@dataclasses.dataclass(frozen=True)
class Chip:
    """One limit of the budget.

    Attributes:
        limit: What was asked.
        found: What was measured.
        state: ``open`` where some variant keeps this limit, but none keeps all of them.
    """

    limit: str
    found: str
    state: State


def budget_chips(results: Results) -> list[Chip]:
    """Return a chip for each limit that was asked; none without a budget.

    Whether the budget is met was decided with the results; a chip only says how near each limit is. With a best variant
    it shows that variant's number, without one the nearest that any variant came.
    """
    budget, batch = results.budget, lookup.judged_batch(results)
    metric = lookup.any_metric(results)
    unit = explain.drop_unit(metric) if metric else "points"
    worse = f"{lookup.metric_name(metric)} {explain.drop_word(metric)}" if metric else "metric drop"
    chips = [
        _chip(
            results,
            f"{worse} ≤ {_limit(budget.max_drop)} {unit}",
            budget.max_drop,
            _drop,
            lambda v: _points(metric, v),
        ),
        _chip(results, f"speed-up ≥ {_limit(budget.min_speedup)}×", budget.min_speedup, _speed, times, higher=True),
        _chip(
            results,
            f"latency ≤ {_limit(budget.max_latency_ms)} ms (batch {batch})",
            budget.max_latency_ms,
            lambda e: e.latency_ms[batch].median if e.latency_ms and batch in e.latency_ms else None,
            milliseconds,
        ),
        _chip(results, f"size ≤ {_limit(budget.max_size_mb)} MB", budget.max_size_mb, _size, megabytes),
    ]
    return [c for c in chips if c is not None]


def _chip(
    results: Results,
    limit_text: str,
    limit: float | None,
    read: Callable[[Entry], float | None],
    write: Callable[[float], str],
    *,
    higher: bool = False,
) -> Chip | None:
    if limit is None:
        return None
    best = lookup.variant(results, results.best)
    subjects = [best] if best is not None else results.variants
    found = [(value, e) for e in subjects if (value := read(e)) is not None]
    if not found:
        return Chip(limit_text, "not measured", "not met")
    value, entry = (max if higher else min)(found, key=lambda pair: pair[0])
    if best is not None:
        return Chip(limit_text, write(value), "met" if results.budget.met else "not met")
    kept = value >= limit if higher else value <= limit
    found_text = f"{write(value)} ({clean(entry.name)})"
    return Chip(limit_text, found_text, "open") if kept else Chip(limit_text, f"nearest: {found_text}", "not met")


def _points(metric: Metric | None, value: float) -> str:
    return f"{explain.drop_size(metric, value)} {explain.drop_unit(metric)}" if metric else sig(value)


def _limit(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _drop(entry: Entry) -> float | None:
    return entry.metric.drop if entry.metric else None


def _speed(entry: Entry) -> float | None:
    ratio = lookup.runtime_ratio(entry)
    return ratio.ratio if ratio else None


def _size(entry: Entry) -> float | None:
    return entry.size_bytes / 1e6 if entry.size_bytes is not None else None
