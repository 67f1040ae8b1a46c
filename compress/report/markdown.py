"""The report in short, as GitHub-flavored Markdown: made to be read in a comment of a review."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from compress.report import breakdown, cells, chips, corrections, explain, lookup, numbers, sections, sensitivity
from compress.results import Entry, Results

_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")
_MENTION = re.compile(r"@(?=\w)")
_SAME = "not measured — same reason"
_ROWS = 8
"""Rows of the tables of layers."""
_TONES = {"good": "✅", "warn": "⚠️", "bad": "❌"}
_STATUS = {
    "best": "★ best",
    "pass": "✓ keeps the limits",
    "fail": "✗ breaks a limit",
    "failed": "! could not be made",
    "not judged": "– baseline",
}
_MARKS = {"met": "✓ met", "not met": "✗ not met", "open": "– kept, but not with the rest"}


def render_markdown(results: Results) -> str:
    """Return the text of ``report.md``; text from files and users is escaped."""
    tone, headline = explain.headline(results)
    parts = [
        f"## {_TONES[tone]} {escape(headline)}",
        *map(escape, explain.details(results)),
        _bullets(explain.obstacles(results)),
        _budget(results),
        *([_bullets(map(explain.sentence, results.notes))] if results.notes else []),
        f"### Variants (batch {escape(lookup.judged_batch(results))})",
        _variants(results),
        _why(results),
        _folded("Speed at each batch size", _batches(results)),
        _folded("Where the time goes", _time(results)),
        _folded("Where the difference arose", _stages(results)),
        _folded("What the low-precision passes chose", _choices(results)),
        _folded("Closeness to the baseline", _closeness(results)),
        _folded("What really ran", _facts(results)),
        _folded("How it was measured", _how(results)),
        "### Reproduce it",
        "```\ncompress run --recipe recipe.yaml\n```",
        _folded("Files in the run folder", _table(("File", "What it is"), sections.files(results))),
        f"<sub>{escape(results.model.name)} · run {escape(results.run)} · {escape(numbers.moment(results.created))} · "
        f"took {numbers.seconds(results.seconds)}</sub>",
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def escape(text: str) -> str:
    """Return text on one line that Markdown shows as it is; it mentions nobody, links nowhere and opens no tag."""
    plain = html.escape(numbers.clean(text), quote=False)
    return _MENTION.sub("@<!-- -->", _SPECIAL.sub(r"\\\1", plain)).replace("://", "&#58;//")


def _cell(cell: cells.Cell) -> str:
    if not cell.measured:
        return escape(" — ".join((cell.main, *cell.sub)))
    return "<br>".join((f"**{escape(cell.main)}**", *map(escape, cell.sub)))


def _table(head: Sequence[str], rows: Iterable[Sequence[str | cells.Cell]]) -> str:
    lines = [" | ".join(map(escape, head)), " | ".join("---" for _ in head)]
    lines += [" | ".join(_row(row)) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def _row(row: Sequence[str | cells.Cell]) -> Iterator[str]:
    """Yield the cells of a row; a reason that several of them share is given once."""
    given = set()
    for cell in row:
        if not isinstance(cell, cells.Cell):
            yield escape(cell)
        elif not cell.measured and cell in given:
            yield _SAME
        else:
            given.add(cell)
            yield _cell(cell)


def _budget(results: Results) -> str:
    asked = chips.budget_chips(results)
    if not asked:
        return "No budget was given." if not results.budget.explanation else ""
    return _table(("Budget", "Measured", "Met"), ((c.limit, c.found, _MARKS[c.state]) for c in asked))


def _variants(results: Results) -> str:
    batch, metric = lookup.judged_batch(results), lookup.any_metric(results)
    head = (
        "Variant",
        "Verdict",
        "Runs as",
        lookup.metric_title(metric) if metric else "Closeness to the baseline",
        f"Against {lookup.float_reference(results)}",
        "Against PyTorch",
        "Latency",
        "Throughput",
        "File",
        "Memory",
    )

    def row(entry: Entry) -> tuple[str | cells.Cell, ...]:
        return (
            entry.name,
            _STATUS[entry.verdict.status],
            cells.runs_as(entry),
            cells.score(results, entry),
            cells.speed(results, entry, "vs_runtime_fp32", batch),
            cells.speed(results, entry, "vs_torch", batch),
            cells.latency(entry, batch),
            cells.throughput(entry, batch),
            cells.size(entry),
            cells.memory(entry),
        )

    return _table(head, map(row, lookup.entries(results))) + "\n\nIntervals are 95 %."


def _why(results: Results) -> str:
    said = ((e, explain.why(results, e)) for e in results.variants)
    return "\n".join(f"- **{escape(e.name)}**: {escape(' '.join(lines))}" for e, lines in said if lines)


def _batches(results: Results) -> str:
    rows = [
        (
            batch,
            entry.name,
            *cells.percentiles(entry, batch),
            cells.throughput(entry, batch),
            cells.speed(results, entry, "vs_runtime_fp32", batch),
            cells.speed(results, entry, "vs_torch", batch),
        )
        for batch in lookup.batches(results)
        for entry in lookup.entries(results)
    ]
    head = ("Batch", "Variant", "Median", "p90", "p99", "Throughput", f"Against {lookup.float_reference(results)}",
            "Against PyTorch")  # fmt: skip
    return _table(head, rows) if rows else ""


def _time(results: Results) -> str:
    parts = [escape(breakdown.lead(results))]
    for each in breakdown.breakdowns(results, _ROWS):
        name = f"**{escape(each.name)}**"
        if each.absent:
            parts.append(f"{name}: {escape(each.absent)}")
            continue
        rows: list[tuple[str | cells.Cell, ...]] = [(line.name, *line.cells) for line in each.lines]
        parts += [name, _table(breakdown.TOTALS_HEAD, each.totals), _table(breakdown.HEAD, rows)]
    return "\n\n".join(filter(None, parts))


def _choices(results: Results) -> str:
    parts = []
    for name, details in lookup.detailed(results):
        tried, shown = corrections.rows(details), sensitivity.sensitivity(results, details)
        parts += [f"**{escape(name)}**", _bullets(corrections.choices(details))]
        parts.append(_table(corrections.HEAD, tried) if tried else "Corrections: none was tried.")
        parts += [escape(shown.lead), _table(shown.head, shown.rows[:_ROWS]) if shown.rows else ""]
    return "\n\n".join(filter(None, parts))


def _stages(results: Results) -> str:
    rows, notes = [], []
    for entry in results.variants:
        for result in entry.stages:
            s = cells.stage(result)
            shown = (s.change, *((s.sqnr, s.cosine, s.max_abs, s.agreement) if s.share is not None else (_SAME,) * 4))
            rows.append((entry.name, s.name, *shown, s.seconds))
            notes += [f"{entry.name}, {s.name}: {n}" for n in s.notes]
    if not rows:
        return ""
    head = ("Variant", "Stage", "Change", "SQNR", "Cosine", "Largest error", "Top-1 agreement", "Time")
    where = [f"{e.name}: {explain.where(e)}" for e in results.variants if explain.where(e)]
    return "\n\n".join(filter(None, (_bullets(where), _table(head, rows), _bullets(dict.fromkeys(notes)))))


def _closeness(results: Results) -> str:
    head = ("Variant", "SQNR", "Cosine", "Largest error", "Top-1 agreement", "Inputs compared")
    rows = []
    for entry in results.variants:
        values = cells.closeness_row(entry)
        rows.append((entry.name, *values, *(_SAME for _ in range(len(head) - 1 - len(values)))))
    return _table(head, rows) if rows else ""


def _facts(results: Results) -> str:
    rows = [
        (e.name, "; ".join(f"{k}: {v}" for k, v in sections.pairs(e.facts)) or "not measured — it never ran")
        for e in lookup.entries(results)
    ]
    return _table(("Variant", "Read from the file and the runtime"), rows)


def _how(results: Results) -> str:
    pairs = [*sections.pairs(results.environment), *sections.model_facts(results)]
    notes = map(explain.sentence, results.model.notes)
    return "\n\n".join(
        filter(None, (_bullets(explain.how_measured(results)), _table(("Fact", "Value"), pairs), _bullets(notes)))
    )


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape(line)}" for line in lines)


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""
