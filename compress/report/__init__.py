"""The report: results to HTML, Markdown and JSON."""

from __future__ import annotations

from pathlib import Path

from compress.atomic import write_text
from compress.report.json import read_results, to_json
from compress.results import Results

__all__ = ["read_results", "write_report"]


def write_report(results: Results, folder: Path) -> list[Path]:
    """Write ``results.json``, ``report.html`` and ``report.md`` into ``folder``; each appears whole or not at all.

    Returns:
        The three files, in that order.

    Raises:
        StageError: A result isn't a finite number, or a file cannot be written.
    """
    from compress.report.html import render_html
    from compress.report.markdown import render_markdown

    # All three are made before any is written: a fault in one leaves no half set behind.
    texts = {
        "results.json": to_json(results),
        "report.html": render_html(results),
        "report.md": render_markdown(results),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]
