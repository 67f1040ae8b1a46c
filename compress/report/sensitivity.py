"""Which layers a low precision hurts most: each one's SQNR when it alone is quantized, in the order of the graph."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from compress.report import explain, lookup
from compress.report.cells import Cell
from compress.report.numbers import CAP_DB, clean, decibels
from compress.report.plot import markup
from compress.results import Layer, Results, StageDetails

Role = Literal["best", "fail"]

ROLES: dict[Role, tuple[str, str]] = {"best": ("in low precision", ""), "fail": ("left in float", "/")}
"""Legend text and pattern by role: the pattern says what the color says."""

MOST = 10
"""Rows of the table."""
_TICKS = 24
"""Up to so many layers have their names on the axis."""
_STEP = 5
"""Decibels between the ends of the axis and the values are rounded to this."""


@dataclasses.dataclass(frozen=True)
class Bar:
    """One layer of the chart.

    Attributes:
        place: Place in the graph, from 1, among the layers that the pass looked at.
        words: What is known of it, line by line, for the hover text.
    """

    place: int
    name: str
    role: Role
    db: float
    words: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """What the chart and the table show.

    Attributes:
        head: Titles of the table's columns.
        rows: The most sensitive layers, the worst first.
        lead: How it was measured, or why it wasn't.
    """

    bars: tuple[Bar, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    lead: str

    def describe(self) -> str:
        """Return the chart in words, for readers who don't see it."""
        worst = sorted(self.bars, key=lambda b: b.db)[:3]
        each = "; ".join(f"{b.name}: {decibels(b.db)}, {ROLES[b.role][0]}" for b in worst)
        return f"SQNR of the outputs by layer, {len(self.bars)} layers. Lowest: {each}."


def sensitivity(results: Results, details: StageDetails) -> Sensitivity:
    """Return the layers that were measured alone, as bars in the order of the graph and as a table by SQNR."""
    measured = [(place, x, x.sqnr_db) for place, x in enumerate(details.layers, 1) if x.sqnr_db is not None]
    bars = tuple(
        Bar(place, clean(x.name), "fail" if in_float(x) else "best", db, _words(results, x, db))
        for place, x, db in measured
    )
    with_drop = any(x.metric_drop is not None for _, x, _ in measured)
    metric = lookup.any_metric(results)
    drop = f"{explain.drop_word(metric).capitalize()} of {lookup.metric_name(metric)}" if metric else "Metric drop"
    head = ("Layer", "Operator", "SQNR", *((drop,) if with_drop else ()), "Kept as")
    worst = sorted(measured, key=lambda m: m[2])[:MOST]
    rows = tuple(
        (clean(x.name), clean(x.op), decibels(db), *((_drop(results, x),) if with_drop else ()), _kept(x))
        for _, x, db in worst
    )
    if not measured:
        return Sensitivity((), head, (), "Sensitivity: not measured — no layer was quantized alone.")
    missing = len(details.layers) - len(measured)
    unseen = f" {missing} of {len(details.layers)} layers were not measured alone." if missing else ""
    lead = (
        f"Each layer alone quantized, on {details.sensitivity_samples:,} calibration samples: the lower the SQNR of "
        f"the outputs, the more sensitive the layer.{unseen}"
    )
    return Sensitivity(bars, head, rows, lead)


def in_float(layer: Layer) -> bool:
    """Tell whether the pass left a layer in float."""
    return bool(layer.reason) or layer.precision == "fp32"


def figure(shown: Sensitivity) -> dict[str, Any]:
    """Return the chart as a Plotly figure in JSON form; colors are the page's, as in :func:`plot.figure`."""
    import plotly.graph_objects as go

    figure = go.Figure(layout={"template": None})
    low, high = _range([b.db for b in shown.bars])
    for role, (title, pattern) in ROLES.items():
        bars = [b for b in shown.bars if b.role == role]
        if bars:
            figure.add_trace(_trace(go, title, role, pattern, bars))
    named = shown.bars if len(shown.bars) <= _TICKS else ()
    ticks = {"tickvals": [b.place for b in named], "ticktext": [markup(_tail(b.name)) for b in named],
             "tickangle": -45} if named else {"tickformat": "d"}  # fmt: skip
    figure.update_layout(
        bargap=0.25,
        margin={"l": 64, "r": 20, "t": 12, "b": 56},
        legend={"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        showlegend=True,
        hovermode="closest",
        xaxis={
            "title": {"text": "Layer, in the order of the graph"},
            "automargin": True,
            "zeroline": False,
            "showgrid": False,
            "range": [0.4, max((b.place for b in shown.bars), default=1) + 0.6],
            **ticks,
        },
        yaxis={"title": {"text": "SQNR (dB)"}, "automargin": True, "zeroline": False, "range": [low, high]},
    )
    data: dict[str, Any] = figure.to_plotly_json()
    data["layout"].pop("template", None)
    return data


def _trace(go: Any, title: str, role: Role, pattern: str, bars: list[Bar]) -> Any:
    return go.Bar(
        name=title,
        meta={"role": role},
        x=[b.place for b in bars],
        y=[b.db for b in bars],
        width=0.75,
        hovertext=["<br>".join((f"<b>{markup(b.name)}</b>", *map(markup, b.words))) for b in bars],
        hovertemplate="%{hovertext}<extra></extra>",
        marker={"line": {"width": 0}, "pattern": {"shape": pattern}},
    )


def _range(values: list[float]) -> tuple[float, float]:
    """Return the ends of the axis; decibels have no natural zero, and layers without any error would flatten it."""
    shown = [v for v in values if v < CAP_DB] or [CAP_DB]
    low = _STEP * (math.floor(min(shown) / _STEP) - 1)
    return (min(low, 0.0) if min(shown) < 0 else max(low, 0.0)), float(_STEP * math.ceil((max(shown) + 0.1) / _STEP))


def _words(results: Results, layer: Layer, db: float) -> tuple[str, ...]:
    drop = () if layer.metric_drop is None else (f"metric: {_drop(results, layer)}",)
    kept = _kept(layer)
    return (clean(layer.op), f"SQNR {decibels(db)}", *drop, kept.flat())


def _drop(results: Results, layer: Layer) -> str:
    metric = lookup.any_metric(results)
    if layer.metric_drop is None:
        return "not measured"
    if metric is None:
        return f"{layer.metric_drop:.3g}"
    return f"{explain.drop_size(metric, layer.metric_drop)} {explain.drop_unit(metric)}"


def _kept(layer: Layer) -> Cell:
    return Cell(clean(layer.precision), (clean(layer.reason),) if layer.reason else ())


def _tail(name: str) -> str:
    """Return the end of a long name: layers of one network begin alike."""
    return name if len(name) <= 18 else f"…{name[-17:]}"
