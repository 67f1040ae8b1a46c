"""The report as one HTML file that opens without a network: styles, script and data are all inside."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from compress.report import breakdown, cells, chips, corrections, explain, lookup, numbers, plot, sections, sensitivity
from compress.results import Entry, Results

_HERE = Path(__file__).parent
_SCRIPT = _HERE / "report.js"
_VERDICTS = {
    "best": ("★", "best"),
    "pass": ("✓", "keeps the limits"),
    "fail": ("✗", "breaks a limit"),
    "failed": ("!", "could not be made"),
    "not judged": ("–", "baseline"),
}
_UNIT = re.compile(
    r"(?<=[0-9]) (?=(?:ms|MB|dB|s|samples/s|points|min|h|million|billion)\b|%|to [0-9\u2212])"
    r"|(?<=[0-9] to) (?=[0-9\u2212])|(?<=batch) (?=[0-9])|(?<=p90|p99) |(?<=drop|peak|rise) (?=[0-9\u2212])"
    r"|(?<=weights) (?=[0-9])|(?<=inside) (?=the noise)|(?<=the) (?=noise)|(?<=ONNX) (?=Runtime)"
)
_CHIP_MARKS = {"met": "✓", "not met": "✗", "open": "–"}


def render_html(results: Results) -> str:
    """Return the text of ``report.html``.

    Every text is escaped. A content security policy in the page allows the two scripts inside it by their hash and
    nothing from elsewhere, so that the page can neither load anything nor run what a model's name might smuggle in.
    """
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["glue"] = _glue
    tradeoff = plot.tradeoff(results)
    choices = _choices(results)
    figures = {c["id"]: sensitivity.figure(c["sensitivity"]) for c in choices if c["sensitivity"].bars}
    if tradeoff.points:
        figures["plot"] = plot.figure(tradeoff)
    # HTML parsers turn CR LF into LF; the hash must be that of what they see.
    scripts = (
        [s.replace("\r\n", "\n") for s in (get_plotlyjs(), _SCRIPT.read_text(encoding="utf-8"))] if figures else []
    )
    return environment.get_template("report.html.j2").render(
        css=Markup((_HERE / "report.css").read_text(encoding="utf-8")),  # noqa: S704 our own file
        scripts=[Markup(s) for s in scripts],  # noqa: S704 Plotly's and our own file
        policy=_policy(scripts),
        figures=figures,
        tradeoff=tradeoff,
        roles=plot.ROLES,
        choices=choices,
        tried_head=corrections.HEAD,
        **_view(results),
    )


def _policy(scripts: list[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    allowed = " ".join(f"'sha256-{h}'" for h in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _glue(text: str) -> str:
    """Keep numbers and their units on one line."""
    return _UNIT.sub("\u00a0", text)


def _view(results: Results) -> dict[str, Any]:
    tone, headline = explain.headline(results)
    batch = lookup.judged_batch(results)
    model = results.model
    best = lookup.variant(results, results.best)
    return {
        "title": numbers.clean(model.name),
        "run": numbers.clean(results.run),
        "created": numbers.moment(results.created),
        "took": numbers.seconds(results.seconds),
        "tone": tone,
        "mark": {"good": "✓", "warn": "!", "bad": "✗"}[tone],
        "headline": headline,
        "details": explain.details(results) + explain.obstacles(results),
        "chips": [(c, _CHIP_MARKS[c.state]) for c in chips.budget_chips(results)],
        "tiles": _tiles(results, best, batch) if best else [],
        "batch": batch,
        "score_title": _score_title(results),
        "float_reference": lookup.float_reference(results),
        "rows": [_row(results, e, batch) for e in lookup.entries(results)],
        "batches": _batches(results),
        "spent_lead": breakdown.lead(results),
        "spent": _spent(results),
        "spent_head": breakdown.HEAD,
        "spent_totals_head": breakdown.TOTALS_HEAD,
        "lineages": _lineages(results),
        "closeness": [(numbers.clean(e.name), *cells.closeness_row(e)) for e in results.variants],
        "facts": [(numbers.clean(e.name), sections.pairs(e.facts)) for e in lookup.entries(results)],
        "environment": sections.pairs(results.environment),
        "model": sections.model_facts(results),
        "model_notes": [explain.sentence(n) for n in model.notes],
        "how": explain.how_measured(results),
        "notes": [explain.sentence(n) for n in results.notes],
        "files": sections.files(results),
        "recipe": sections.recipe_text(results),
    }


def _tiles(results: Results, best: Entry, batch: str) -> list[tuple[str, cells.Cell]]:
    score = cells.score(results, best)
    if best.metric is not None and best.metric.drop is not None:
        sign = explain.drop_size(best.metric, best.metric.drop)
        value = f"{sign} {explain.drop_unit(best.metric)}"
        score = cells.Cell(value, (*cells.drop_noise(best.metric), f"now {score.main}"))
    reference = lookup.plain(results)
    size = cells.size(best)
    if reference is not None and reference is not best:
        smaller = f"{cells.shrinkage(best, reference)} than FP32" if cells.shrinkage(best, reference) else ""
        size = cells.Cell(size.main, tuple(filter(None, (smaller.replace("size than", "size of"),))))
    metric = best.metric
    return [
        (f"Speed against {lookup.float_reference(results)}", cells.speed(results, best, "vs_runtime_fp32", batch)),
        ("Speed against PyTorch", cells.speed(results, best, "vs_torch", batch)),
        (
            f"{explain.drop_word(metric).capitalize()} of {lookup.metric_name(metric)}"
            if metric
            else "Closeness to the baseline",
            score,
        ),
        (f"Latency, batch {batch}", cells.latency(best, batch)),
        ("File", size),
    ]


def _score_title(results: Results) -> str:
    metric = lookup.any_metric(results)
    return lookup.metric_title(metric) if metric else "Closeness to the baseline"


def _row(results: Results, entry: Entry, batch: str) -> dict[str, Any]:
    mark, word = _VERDICTS[entry.verdict.status]
    row: dict[str, Any] = {
        "name": numbers.clean(entry.name),
        "status": entry.verdict.status.replace(" ", "-"),
        "mark": mark,
        "word": word,
        "cells": [
            ("Runs as", cells.runs_as(entry)),
            (_score_title(results), cells.score(results, entry)),
            (f"Against {lookup.float_reference(results)}", cells.speed(results, entry, "vs_runtime_fp32", batch)),
            ("Against PyTorch", cells.speed(results, entry, "vs_torch", batch)),
            (f"Latency, batch {batch}", cells.latency(entry, batch)),
            (f"Throughput, batch {batch}", cells.throughput(entry, batch)),
            ("File", cells.size(entry)),
            ("Memory", cells.memory(entry)),
        ],
        "why": explain.why(results, entry),
        "blank": None,
    }
    # A variant that never ran has one reason; it is said once, not in every column.
    row["blank"] = _blank([c for _, c in row["cells"][1:]])
    return row


def _batches(results: Results) -> list[dict[str, Any]]:
    return [
        {"batch": b, "rows": [_timed(results, e, b) for e in lookup.entries(results)]} for b in lookup.batches(results)
    ]


def _timed(results: Results, entry: Entry, batch: str) -> dict[str, Any]:
    slowest = max(times[batch].median for e in lookup.entries(results) if batch in (times := e.latency_ms or {}))
    own = (entry.latency_ms or {}).get(batch)
    median, p90, p99 = cells.percentiles(entry, batch)
    row: dict[str, Any] = {
        "name": numbers.clean(entry.name),
        "bar": None if own is None else round(100 * own.median / slowest, 1),
        "cells": [
            ("Median", median),
            ("p90", p90),
            ("p99", p99),
            ("Throughput", cells.throughput(entry, batch)),
            (f"Against {lookup.float_reference(results)}", cells.speed(results, entry, "vs_runtime_fp32", batch)),
            ("Against PyTorch", cells.speed(results, entry, "vs_torch", batch)),
        ],
    }
    row["blank"] = _blank([c for _, c in row["cells"]])
    return row


def _blank(row: list[cells.Cell]) -> cells.Cell | None:
    """Return the cell that stands for the whole row where no cell has a value and all have the same reason."""
    return row[0] if len(set(row)) == 1 and not row[0].measured else None


def _lineages(results: Results) -> list[dict[str, Any]]:
    found = [(e, [cells.stage(s) for s in e.stages]) for e in results.variants if e.stages]
    # One scale for the whole run, so that bars can be compared between variants.
    largest = max((r.share or 0 for _, rows in found for r in rows), default=0) or 1
    return [
        {
            "name": numbers.clean(entry.name),
            "where": explain.where(entry),
            "stages": [(r, None if r.share is None else round(100 * r.share / largest, 1)) for r in rows],
        }
        for entry, rows in found
    ]


def _spent(results: Results) -> list[tuple[breakdown.Breakdown, bool]]:
    """Return where the time of each variant goes, and whether its table of layers is unfolded: the best one's is."""
    found = breakdown.breakdowns(results)
    shown = [b.name for b in found if not b.absent]
    best = numbers.clean(results.best or "")
    unfolded = best if best in shown else next(iter(shown), "")
    return [(b, b.name == unfolded) for b in found]


def _choices(results: Results) -> list[dict[str, Any]]:
    """Return what each low-precision stage tried and chose; ``id`` is that of its chart in the page."""
    return [
        {
            "id": f"sensitivity-{number}",
            "name": name,
            "tried": corrections.rows(details),
            "said": corrections.choices(details),
            "sensitivity": sensitivity.sensitivity(results, details),
        }
        for number, (name, details) in enumerate(lookup.detailed(results), 1)
    ]
