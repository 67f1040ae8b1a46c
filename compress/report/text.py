"""The report on a terminal: a table where there is one, plain lines elsewhere."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from compress.report import cells, chips, explain, lookup
from compress.report.compare import ONE_RUN, TWO_RUNS, compare_entries
from compress.report.numbers import clean
from compress.results import Entry, Results

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WIDTH = 100
"""Plain lines are wrapped here."""

_STYLES = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}
_CHIPS = {"met": "green", "not met": "red", "open": "yellow"}
_WORDS = {
    "best": ("★ best", "bold green"),
    "pass": ("✓ pass", "green"),
    "fail": ("✗ fail", "red"),
    "failed": ("! failed", "bold red"),
    "not judged": ("baseline", "dim"),
}


def summary_table(results: Results) -> RenderableType:
    """Return the verdict, the table of variants and the reasons as one renderable that fits 80 columns."""
    from rich.console import Group
    from rich.text import Text

    tone, headline = explain.headline(results)
    parts: list[RenderableType] = [Text(headline, style=_STYLES[tone])]
    parts += [Text(line, style="dim") for line in explain.details(results)]
    parts += [Text(_chip(c), style=_CHIPS[c.state]) for c in chips.budget_chips(results)]
    parts += [Text(f"Note: {explain.sentence(n)}", style="yellow") for n in results.notes]
    parts.append(_table(results))
    for entry in results.variants:
        lines = [*explain.why(results, entry), *_time(results, entry)]
        if lines:
            parts.append(Text.assemble((f"{clean(entry.name)}: ", "bold"), " ".join(lines)))
    return Group(*parts)


def plain_summary(results: Results) -> list[str]:
    """Return the same as lines of at most 100 columns, for logs and pipes; the verdict comes first."""
    batch = lookup.judged_batch(results)
    lines = [explain.headline(results)[1], *explain.details(results)]
    lines += map(_chip, chips.budget_chips(results))
    lines += [f"Note: {explain.sentence(n)}" for n in results.notes]
    for entry in lookup.entries(results):
        word = "baseline" if entry is results.baseline else entry.verdict.status
        values = [
            cells.runs_as(entry).flat(),
            _named("", cells.score(results, entry)),
            _named(
                f"against {lookup.float_reference(results)} ", cells.speed(results, entry, "vs_runtime_fp32", batch)
            ),
            _named("against PyTorch ", cells.speed(results, entry, "vs_torch", batch)),
            _named(f"batch {batch}: ", cells.latency(entry, batch)),
            _named("", cells.throughput(entry, batch)),
            _named("file ", cells.size(entry)),
            _named("memory ", cells.memory(entry)),
        ]
        # A variant that never ran has one reason; it is said once.
        unique = list(dict.fromkeys(v.partition("not measured")[2] if "not measured" in v else v for v in values[1:]))
        if len(unique) == 1 and "not measured" in values[1]:
            values = [values[0], f"not measured{unique[0]}"]
        lines.append(f"{clean(entry.name)} [{word}]: {'; '.join(values)}")
        lines += [f"  {line}" for line in (*explain.why(results, entry), *_time(results, entry))]
    return [wrapped for line in lines for wrapped in _wrap(line)]


def comparison(a: Entry, b: Entry, titles: tuple[str, str] | None = None, *, same_run: bool = False) -> Table:
    """Return two entries side by side; ``titles`` names the columns where the entries' names don't tell them apart."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    left, right = titles or (a.name, b.name)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=_caution(same_run=same_run), caption_justify="left")
    for title in ("", f"A: {clean(left)}", f"B: {clean(right)}", "B against A"):
        table.add_column(Text(title), overflow="fold")
    for row in compare_entries(a, b):
        table.add_row(Text(row.what, style="bold"), Text(row.a), Text(row.b), Text(row.change))
    return table


def plain_comparison(a: Entry, b: Entry, titles: tuple[str, str] | None = None, *, same_run: bool = False) -> list[str]:
    """Return the same as lines of at most 100 columns."""
    left, right = titles or (a.name, b.name)
    lines = [f"A: {clean(left)}", f"B: {clean(right)}"]
    lines += [f"{r.what}: A {r.a}, B {r.b}; B against A: {r.change}" for r in compare_entries(a, b)]
    return [wrapped for line in (*lines, _caution(same_run=same_run)) for wrapped in _wrap(line)]


def _time(results: Results, entry: Entry) -> list[str]:
    """Return what kinds of operators take the time; nothing where the operators of a slower variant are named."""
    pair, ratio = lookup.profiles(results, entry), lookup.runtime_ratio(entry)
    if pair is None or ratio is None or ratio.low <= 1:
        return []
    return [f"Time: {explain.spent_time(*pair)}."]


def _caution(*, same_run: bool) -> str:
    return ONE_RUN if same_run else TWO_RUNS


def _table(results: Results) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    batch, metric = lookup.judged_batch(results), lookup.any_metric(results)
    unit = f" {explain.drop_word(metric).capitalize()}s in {explain.drop_unit(metric)}." if metric else ""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        caption=f"Batch {batch}; vs FP32: {lookup.float_reference(results)}; intervals are 95 %.{unit}",
        caption_justify="left",
    )
    title = lookup.metric_title(metric) if metric else "Closeness"
    titles = ("Variant", "Verdict", title, "vs FP32", "vs PyTorch", "Median", "File")
    for title in titles:
        table.add_column(Text(title), overflow="fold", vertical="top")
    for entry in lookup.entries(results):
        word, style = _WORDS["not judged" if entry is results.baseline else entry.verdict.status]
        row = [
            _score(results, entry),
            cells.speed(results, entry, "vs_runtime_fp32", batch),
            cells.speed(results, entry, "vs_torch", batch),
            dataclasses.replace(cells.latency(entry, batch), sub=()),
            cells.size(entry),
        ]
        shown = (_stacked(c) for c in row)
        table.add_row(Text(clean(entry.name), style="bold"), Text(word, style=style), *shown)
    return table


def _score(results: Results, entry: Entry) -> cells.Cell:
    metric = entry.metric
    if metric is None or metric.drop is None or entry is results.baseline:
        return cells.score(results, entry)
    word = explain.drop_word(metric)
    drop = f"{word} in noise" if explain.inside_noise(metric) else f"{word} {explain.drop_size(metric, metric.drop)}"
    return cells.Cell(explain.metric_value(metric), (drop, *cells.drop_noise(metric)[:1]))


def _stacked(cell: cells.Cell) -> RenderableType:
    from rich.text import Text

    if not cell.measured:
        # Broken here, so that 80 columns hold the names and intervals unbroken; the reason stands below the table.
        return Text(cell.main.replace(" ", "\n"), style="dim italic")
    return Text.assemble(
        cell.main, *((f"\n{line.replace('inside the noise', 'in noise')}", "dim") for line in cell.sub)
    )


def _named(name: str, cell: cells.Cell) -> str:
    return f"{name}{cell.flat()}" if cell.measured else f"{name}not measured — {'; '.join(cell.sub)}"


def _chip(chip: chips.Chip) -> str:
    mark = {"met": "✓", "not met": "✗", "open": "–"}[chip.state]
    state = "kept, but not with the rest" if chip.state == "open" else chip.state
    return f"{mark} {chip.limit}: {chip.found}, {state}"


def _wrap(line: str) -> Iterable[str]:
    indent = "  " + " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]
