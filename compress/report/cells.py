"""The cells of every table of the report: a main text and what stands below it, the same in HTML, Markdown and text."""

from __future__ import annotations

import dataclasses

from compress.report import explain, lookup
from compress.report.numbers import (
    change,
    clean,
    cosine,
    decibels,
    fixed,
    megabytes,
    milliseconds,
    noise_share,
    percent,
    seconds,
    sig,
    span,
    times,
)
from compress.results import Entry, Fidelity, Metric, Results, StageResult


@dataclasses.dataclass(frozen=True)
class Cell:
    """What one cell says.

    Attributes:
        main: The value, or ``not measured``.
        sub: Lines below it: interval, noise, reason.
        measured: False where there is no value.
    """

    main: str
    sub: tuple[str, ...] = ()
    measured: bool = True

    def flat(self) -> str:
        """Return the cell on one line."""
        return self.main + (f" ({'; '.join(self.sub)})" if self.sub else "")


def absent(entry: Entry, *fields: str) -> Cell:
    """Return the cell of a value that wasn't measured, with its reason."""
    return Cell("not measured", (lookup.reason(entry, *fields),), measured=False)


def runs_as(entry: Entry) -> Cell:
    """Return what a variant really is: precision, runtime, target."""
    return Cell(clean(entry.precision), (lookup.runtime(entry), clean(entry.target)))


def score(results: Results, entry: Entry) -> Cell:
    """Return the metric and its drop, or the fidelity where the run has no labels."""
    if entry.metric is not None:
        metric, word = entry.metric, explain.drop_word(entry.metric)
        if entry is results.baseline:
            return Cell(explain.metric_value(metric), ("reference",))
        if metric.drop is None:
            return Cell(explain.metric_value(metric), (f"{word} {lookup.missing(entry, 'metric.drop')}",))
        drop = f"{word} {explain.drop_size(metric, metric.drop)} {explain.drop_unit(metric)}"
        return Cell(explain.metric_value(metric), (drop, *drop_noise(metric)))
    if lookup.any_metric(results) is not None:
        return absent(entry, "metric")
    return closeness(results, entry)


def drop_noise(metric: Metric) -> tuple[str, ...]:
    """Return the interval of a drop and whether it is inside the noise; nothing where none was measured."""
    if metric.drop_low is None or metric.drop_high is None:
        return ()
    interval = explain.drop_span(metric, metric.drop_low, metric.drop_high)
    return (interval, "inside the noise") if explain.inside_noise(metric) else (interval,)


def closeness(results: Results, entry: Entry) -> Cell:
    """Return how close an entry's outputs are to the baseline's."""
    if entry is results.baseline and entry.fidelity is None:
        return Cell("reference")
    if entry.fidelity is None:
        return absent(entry, "fidelity")
    agreement = entry.fidelity.top1_agreement
    below = () if agreement is None else (f"top-1 agreement {percent(agreement)}",)
    return Cell(f"SQNR {decibels(entry.fidelity.sqnr_db)}", below)


def speed(results: Results, entry: Entry, against: lookup.Against, batch: str) -> Cell:
    """Return a speed-up at a batch size, with its interval."""
    if entry is (results.baseline if against == "vs_torch" else lookup.plain(results)):
        return Cell("reference")
    ratio = lookup.ratio(results, entry, against, batch)
    if ratio is None:
        return absent(entry, f"speedup.{against}")
    below = [span(ratio.low, ratio.high)]
    if ratio.low <= 1 <= ratio.high:
        below.append("inside the noise")
    elif ratio.high < 1:
        below.append("slower")
    return Cell(times(ratio.ratio), tuple(below))


def latency(entry: Entry, batch: str) -> Cell:
    """Return median, p90 and p99 at a batch size."""
    value = (entry.latency_ms or {}).get(batch)
    if value is None:
        return absent(entry, "latency_ms")
    return Cell(milliseconds(value.median), (f"p90 {milliseconds(value.p90)}", f"p99 {milliseconds(value.p99)}"))


def percentiles(entry: Entry, batch: str) -> tuple[Cell, Cell, Cell]:
    """Return median (with the spread over rounds), p90 and p99 as cells of their own."""
    value = (entry.latency_ms or {}).get(batch)
    if value is None:
        cell = absent(entry, "latency_ms")
        return cell, cell, cell
    rounds = f"rounds {sig(min(value.rounds))}–{sig(max(value.rounds))} ms" if value.rounds else ""
    return (
        Cell(milliseconds(value.median), tuple(filter(None, (rounds,)))),
        Cell(milliseconds(value.p90)),
        Cell(milliseconds(value.p99)),
    )


def throughput(entry: Entry, batch: str) -> Cell:
    """Return the throughput at a batch size."""
    value = (entry.throughput or {}).get(batch)
    if value is None:
        return absent(entry, "throughput")
    return Cell(f"{sig(value.value)} {value.unit}", (f"{sig(value.low)}–{sig(value.high)}",))


def size(entry: Entry) -> Cell:
    """Return the size of the files on disk."""
    if entry.memory_mb is not None and entry.memory_mb.file is not None:
        return Cell(megabytes(entry.memory_mb.file))
    if entry.size_bytes is not None:
        return Cell(megabytes(entry.size_bytes / 1e6))
    return absent(entry, "size_bytes", "memory_mb")


def memory(entry: Entry) -> Cell:
    """Return peak memory during inference, and below it what the weights take."""
    if entry.memory_mb is None:
        return absent(entry, "memory_mb")
    peak, weights = entry.memory_mb.peak, entry.memory_mb.weights
    below = f"weights {megabytes(weights)}" if weights is not None else (
        f"weights {lookup.missing(entry, 'memory_mb.weights')}"
    )  # fmt: skip
    if peak is None:
        return Cell("not measured", (lookup.reason(entry, "memory_mb.peak"), below), measured=False)
    return Cell(f"peak {megabytes(peak)}", (below,))


@dataclasses.dataclass(frozen=True)
class StageRow:
    """One stage of a variant, as text.

    Attributes:
        share: Size of the change relative to the signal, 0–1; None where not compared.
    """

    name: str
    share: float | None
    change: str
    sqnr: str
    cosine: str
    max_abs: str
    agreement: str
    seconds: str
    notes: tuple[str, ...]
    settings: tuple[str, ...]


def stage(result: StageResult) -> StageRow:
    """Return a stage's row; the first stage of a lineage has no parent to be compared with."""
    took = seconds(result.seconds) + (" (from the cache)" if result.cached else "")
    notes = tuple(explain.sentence(n) for n in result.notes)
    settings = tuple(f"{clean(k)} = {clean(v)}" for k, v in result.config.items())
    name = clean(result.stage)
    if result.difference is None:
        none = "not measured — the first stage has no parent to be compared with"
        return StageRow(name, None, none, "", "", "", "", took, notes, settings)
    d = result.difference
    share = noise_share(d.sqnr_db)
    return StageRow(
        name=name,
        share=share,
        change=change(share),
        sqnr=decibels(d.sqnr_db),
        cosine=cosine(d.cosine),
        max_abs=sig(d.max_abs),
        agreement=agreement(d),
        seconds=took,
        notes=notes,
        settings=settings,
    )


def closeness_row(entry: Entry) -> tuple[str, ...]:
    """Return SQNR, cosine, largest error, top-1 agreement and inputs compared; the reason alone where not measured."""
    f = entry.fidelity
    if f is None:
        return (lookup.missing(entry, "fidelity"),)
    return decibels(f.sqnr_db), cosine(f.cosine), sig(f.max_abs), agreement(f), f"{f.samples:,}"


def agreement(value: Fidelity) -> str:
    """Return the top-1 agreement, or why there is none."""
    return (
        "not measured — the outputs aren't classes" if value.top1_agreement is None else percent(value.top1_agreement)
    )


def shrinkage(entry: Entry, reference: Entry) -> str:
    """Return how an entry's files compare in size with another's; empty where either is unknown."""
    if not entry.size_bytes or not reference.size_bytes:
        return ""
    factor = reference.size_bytes / entry.size_bytes
    return f"{fixed(factor, 2)}× smaller" if factor >= 1.005 else f"{fixed(1 / factor, 2)}× the size"
