"""Two entries side by side, of one run or of two."""

from __future__ import annotations

import dataclasses

from compress.report import cells, explain, lookup
from compress.report.numbers import clean, fixed, sig, times
from compress.results import Entry, Metric

TWO_RUNS = (
    "A and B were not measured in turn with each other: their difference holds the drift of the machine too, "
    "and has no interval."
)
ONE_RUN = "A and B were measured in turn in one run; intervals against both baselines stand in its report."


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One line of a comparison; ``change`` is B against A in words."""

    what: str
    a: str
    b: str
    change: str


def compare_entries(a: Entry, b: Entry) -> list[Comparison]:
    """Return what two entries have in common to compare, the metric first.

    The change is that of the two values. It has no interval: only pairs measured in turn have one, and those stand in
    each entry's own speed-up.
    """
    rows = [
        Comparison("precision", clean(a.precision), clean(b.precision), _same(a.precision, b.precision)),
        Comparison("runtime", lookup.runtime(a), lookup.runtime(b), _same(a.form, b.form)),
        _metric(a, b),
        _fidelity(a, b),
    ]
    for batch in dict.fromkeys((*(a.latency_ms or {}), *(b.latency_ms or {}))):
        one, two = ((e.latency_ms or {}).get(batch) for e in (a, b))
        left, right = cells.latency(a, batch), cells.latency(b, batch)
        faster = _factor(one.median if one else None, two.median if two else None, "faster", "slower")
        rows.append(Comparison(f"latency, batch {batch}", _text(left), _text(right), faster))
        one_rate, two_rate = ((e.throughput or {}).get(batch) for e in (a, b))
        more = _factor(two_rate.value if two_rate else None, one_rate.value if one_rate else None, "more", "less")
        rate = (cells.throughput(a, batch), cells.throughput(b, batch))
        rows.append(Comparison(f"throughput, batch {batch}", _text(rate[0]), _text(rate[1]), more))
    smaller = _factor(a.size_bytes, b.size_bytes, "smaller", "larger")
    rows.append(Comparison("file", cells.size(a).flat(), cells.size(b).flat(), smaller))
    before, after = (e.memory_mb.peak if e.memory_mb else None for e in (a, b))
    less = _factor(before, after, "smaller", "larger")
    rows.append(Comparison("memory", cells.memory(a).flat(), cells.memory(b).flat(), less))
    return rows


def _text(cell: cells.Cell) -> str:
    return cell.main if cell.measured else cell.flat()


def _same(a: str, b: str) -> str:
    return "same" if a == b else "differs"


def _metric(a: Entry, b: Entry) -> Comparison:
    name = lookup.metric_name(a.metric or b.metric) if (a.metric or b.metric) else "metric"  # type: ignore[arg-type]
    texts = [explain.metric_value(e.metric) if e.metric else lookup.missing(e, "metric") for e in (a, b)]
    change = "not comparable"
    if a.metric and b.metric and (a.metric.name, a.metric.unit) == (b.metric.name, b.metric.unit):
        change = _difference(a.metric, b.metric)
    return Comparison(name, texts[0], texts[1], change)


def _difference(a: Metric, b: Metric) -> str:
    gap = b.value - a.value
    size = f"{explain.drop_size(a, abs(gap))} {explain.drop_unit(a)}"
    if float(explain.drop_size(a, abs(gap)).replace(",", "").partition("×")[0]) == 0:
        change = "same"
    else:
        change = f"{size} {'better' if (gap > 0) == a.higher_is_better else 'worse'}"
    return change if a.samples == b.samples else f"{change} (on {a.samples:,} and {b.samples:,} samples)"


def _fidelity(a: Entry, b: Entry) -> Comparison:
    texts = [cells.closeness_row(e)[0] for e in (a, b)]
    if a.fidelity is None or b.fidelity is None:
        return Comparison("closeness (SQNR)", texts[0], texts[1], "not comparable")
    gap = b.fidelity.sqnr_db - a.fidelity.sqnr_db
    change = "same" if abs(gap) < 0.05 else f"{fixed(abs(gap), 1)} dB {'closer' if gap > 0 else 'further'}"
    return Comparison("closeness (SQNR)", texts[0], texts[1], change)


def _factor(a: float | None, b: float | None, less: str, more: str) -> str:
    """Say how much less ``b`` is than ``a``."""
    if not a or not b:
        return "not comparable"
    if sig(a) == sig(b):
        return "same"
    return f"{times(a / b)} {less}" if a > b else f"{times(b / a)} {more}"
