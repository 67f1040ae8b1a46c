"""The tradeoff plot: accuracy (or closeness, where there are no labels) against speed, with intervals on both axes."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence
from typing import Any, Literal

from compress.report import explain, lookup
from compress.report.numbers import clean, decibels, percent, span, times
from compress.results import Entry, Results

Role = Literal["best", "pass", "fail", "reference"]

ROLES: dict[Role, tuple[str, str]] = {
    "best": ("best", "star"),
    "pass": ("keeps the limits", "circle"),
    "fail": ("breaks a limit", "x"),
    "reference": ("baseline", "square"),
}
"""Legend text and marker by role: the shape says what the color says."""

_SIZES = {"star": 17, "circle": 12, "x": 12, "square": 12}
_CORNERS = ("top right", "bottom right", "top left", "bottom left")


@dataclasses.dataclass(frozen=True)
class Value:
    """A number with its interval; ``low`` and ``high`` are None where no interval was measured."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class Point:
    """One entry of the plot, with its values in words for the hover text and the table."""

    name: str
    role: Role
    speed: Value
    quality: Value
    speed_text: str
    quality_text: str


@dataclasses.dataclass(frozen=True)
class Tradeoff:
    """What the plot shows.

    Attributes:
        left_out: Entries without a place in it, each with the reason.
        floor: The lowest quality the budget allows; None where it sets none.
        pace: The lowest speed-up the budget allows; None where it sets none.
        higher_is_better: Whether the quality axis grows upward; it is turned round where a low value is good.
    """

    points: tuple[Point, ...]
    left_out: tuple[str, ...]
    x_title: str
    y_title: str
    floor: float | None
    pace: float | None
    higher_is_better: bool

    def describe(self) -> str:
        """Return the plot in words, for readers who don't see it."""
        each = "; ".join(f"{p.name} ({ROLES[p.role][0]}): {p.speed_text}, {p.quality_text}" for p in self.points)
        return f"{self.y_title} against {self.x_title}. {each}."


def tradeoff(results: Results) -> Tradeoff:
    """Return the points of the plot, in the order of the entries."""
    axis, y_title = _quality_axis(results)
    points, left_out = [], []
    for entry in lookup.entries(results):
        speed = _speed(results, entry)
        quality = _quality(results, entry, axis)
        if speed is not None and quality is not None:
            words = _quality_words(entry, axis, is_baseline=entry is results.baseline)
            points.append(Point(clean(entry.name), _role(results, entry), speed, quality, _speed_words(speed), words))
        elif entry is not results.baseline or quality is not None:
            fields = ("speedup", "latency_ms") if speed is None else ("metric", "fidelity")
            left_out.append(f"{clean(entry.name)}: {lookup.missing(entry, *fields)}")
    budget, base = results.budget, results.baseline.metric
    floor = None
    if axis == "metric" and base is not None and budget.max_drop is not None:
        floor = base.value - budget.max_drop if base.higher_is_better else base.value + budget.max_drop
    return Tradeoff(
        points=tuple(points),
        left_out=tuple(left_out),
        x_title=f"Speed against {lookup.float_reference(results)}, batch {lookup.judged_batch(results)} (×)",
        y_title=y_title,
        floor=floor,
        pace=budget.min_speedup,
        higher_is_better=axis != "metric" or base is None or base.higher_is_better,
    )


def figure(plot: Tradeoff) -> dict[str, Any]:
    """Return the plot as a Plotly figure in JSON form.

    Colors aren't in it: the page sets them by each trace's ``meta.role``, from the same variables as the rest of the
    page, so that the plot follows the light and the dark theme.
    """
    import plotly.graph_objects as go

    corners = _place(plot.points)
    figure = go.Figure(layout={"template": None})
    for role, (title, symbol) in ROLES.items():
        chosen = [(p, c) for p, c in zip(plot.points, corners, strict=True) if p.role == role]
        if chosen:
            figure.add_trace(_trace(go, title, role, symbol, chosen))
    lines = [_line("v", 1.0, "muted", "dot")]
    notes = []
    if plot.floor is not None:
        lines.append(_line("h", plot.floor, "fail", "dash"))
        notes.append(
            _note("lowest quality allowed", x=1, xref="paper", y=plot.floor, xanchor="right", yanchor="top", yshift=-2)
        )
    if plot.pace is not None:
        lines.append(_line("v", plot.pace, "fail", "dash"))
        notes.append(
            _note("lowest speed asked", x=plot.pace, y=0, yref="paper", xanchor="left", yanchor="bottom", xshift=4)
        )
    figure.update_layout(
        shapes=lines,
        annotations=notes,
        margin={"l": 64, "r": 20, "t": 12, "b": 56},
        legend={"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        hovermode="closest",
        xaxis={"title": {"text": markup(plot.x_title)}, "ticksuffix": "×", "automargin": True, "zeroline": False},
        yaxis={"title": {"text": markup(plot.y_title)}, "automargin": True, "zeroline": False},
        yaxis_autorange=True if plot.higher_is_better else "reversed",
    )
    data: dict[str, Any] = figure.to_plotly_json()
    data["layout"].pop("template", None)
    return data


def _trace(go: Any, title: str, role: Role, symbol: str, chosen: Sequence[tuple[Point, str]]) -> Any:
    points = [p for p, _ in chosen]
    return go.Scatter(
        name=title,
        meta={"role": role},
        mode="markers+text",
        x=[p.speed.value for p in points],
        y=[p.quality.value for p in points],
        error_x=_bars([p.speed for p in points]),
        error_y=_bars([p.quality for p in points]),
        text=[f"<b>{markup(_short(p.name))}</b>" for p in points],
        textposition=[corner for _, corner in chosen],
        cliponaxis=False,
        hovertext=[f"<b>{markup(p.name)}</b><br>{markup(p.speed_text)}<br>{markup(p.quality_text)}" for p in points],
        hovertemplate="%{hovertext}<extra></extra>",
        marker={"symbol": symbol, "size": _SIZES[symbol], "line": {"width": 1}},
    )


def _bars(values: Sequence[Value]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if v.high is None else v.high - v.value for v in values],
        "arrayminus": [0.0 if v.low is None else v.value - v.low for v in values],
        "thickness": 1.5,
        "width": 5,
    }


def _line(direction: Literal["h", "v"], at: float, role: str, dash: str) -> dict[str, Any]:
    across = {"x0": 0, "x1": 1, "xref": "paper", "y0": at, "y1": at}
    up = {"y0": 0, "y1": 1, "yref": "paper", "x0": at, "x1": at}
    place = across if direction == "h" else up
    return {"type": "line", "name": role, "layer": "below", "line": {"dash": dash, "width": 1.5}, **place}


def _note(text: str, **place: Any) -> dict[str, Any]:
    return {"text": text, "showarrow": False, "font": {"size": 11}, **place}


def _role(results: Results, entry: Entry) -> Role:
    status = entry.verdict.status
    if status == "best" or entry.name == results.best:
        return "best"
    if lookup.is_reference(results, entry) or status == "not judged":
        return "reference"
    return "pass" if status == "pass" else "fail"


def _speed(results: Results, entry: Entry) -> Value | None:
    if entry is lookup.plain(results) and entry.latency_ms:
        return Value(1.0)
    ratio = lookup.ratio(results, entry, "vs_runtime_fp32", lookup.judged_batch(results))
    return None if ratio is None else Value(ratio.ratio, ratio.low, ratio.high)


def _speed_words(speed: Value) -> str:
    if speed.low is None or speed.high is None:
        return "1× (reference of the speed)"
    return f"{times(speed.value)} (95 % interval {span(speed.low, speed.high)})"


Axis = Literal["metric", "agreement", "sqnr"]


def _quality_axis(results: Results) -> tuple[Axis, str]:
    metric = lookup.any_metric(results)
    if metric is not None:
        return "metric", f"{lookup.metric_title(metric)} ({clean(metric.unit)})"
    compared = [e.fidelity for e in results.variants if e.fidelity is not None]
    if compared and all(f.top1_agreement is not None for f in compared):
        return "agreement", "Top-1 agreement with the baseline (%)"
    return "sqnr", "Closeness to the baseline, SQNR (dB)"


def _quality(results: Results, entry: Entry, axis: Axis) -> Value | None:
    if axis == "metric":
        metric = entry.metric
        if metric is None:
            return None
        if metric.drop is None or metric.drop_low is None or metric.drop_high is None:
            return Value(metric.value)
        better, worse = metric.drop - metric.drop_low, metric.drop_high - metric.drop
        up, down = (better, worse) if metric.higher_is_better else (worse, better)
        return Value(metric.value, metric.value - down, metric.value + up)
    if entry.fidelity is None:
        return Value(100.0) if axis == "agreement" and entry is results.baseline else None
    if axis == "agreement" and entry.fidelity.top1_agreement is not None:
        return _wilson(entry.fidelity.top1_agreement, entry.fidelity.samples)
    return Value(entry.fidelity.sqnr_db)


def _quality_words(entry: Entry, axis: Axis, *, is_baseline: bool) -> str:
    if axis == "metric" and entry.metric is not None:
        value = f"{lookup.metric_name(entry.metric)} {explain.metric_value(entry.metric)}"
        return value if is_baseline or entry.metric.drop is None else f"{value}, {explain.drop(entry.metric)}"
    if entry.fidelity is None:
        return "reference of the closeness"
    if axis == "agreement" and entry.fidelity.top1_agreement is not None:
        return f"top-1 agreement {percent(entry.fidelity.top1_agreement)}, SQNR {decibels(entry.fidelity.sqnr_db)}"
    return f"SQNR {decibels(entry.fidelity.sqnr_db)}"


def _wilson(share: float, samples: int) -> Value:
    """Return a share in percent with Wilson's 95 % score interval (Wilson 1927), which holds near 100 % too."""
    z = 1.96
    scale = 1 + z * z / samples
    middle = (share + z * z / (2 * samples)) / scale
    half = z * math.sqrt(share * (1 - share) / samples + z * z / (4 * samples * samples)) / scale
    return Value(100 * share, 100 * min(share, middle - half), 100 * max(share, min(1.0, middle + half)))


def _place(points: Sequence[Point]) -> list[str]:
    """Choose for each label the first corner of its marker where it covers no other marker and no earlier label."""
    xs, ys = [p.speed.value for p in points], [p.quality.value for p in points]
    width, height = (max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 1.0) if points else (1.0, 1.0)
    at = [((x - min(xs)) / width, (y - min(ys)) / height) for x, y in zip(xs, ys, strict=True)]
    boxes = [(x - 0.02, y - 0.08, x + 0.02, y + 0.08) for x, y in at]
    chosen = []
    for point, (x, y) in zip(points, at, strict=True):
        long = 0.02 + 0.024 * len(_short(point.name))
        candidates = {
            "top right": (x + 0.016, y + 0.031, x + long, y + 0.12),
            "bottom right": (x + 0.016, y - 0.12, x + long, y - 0.031),
            "top left": (x - long, y + 0.031, x - 0.016, y + 0.12),
            "bottom left": (x - long, y - 0.12, x - 0.016, y - 0.031),
        }
        corner = min(_CORNERS, key=lambda c: sum(_overlap(candidates[c], b) for b in boxes) + (candidates[c][2] > 1.05))
        boxes.append(candidates[corner])
        chosen.append(corner)
    return chosen


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:27]}…"


def markup(text: str) -> str:
    """Escape text for Plotly, which reads a small HTML of its own."""
    return html.escape(text, quote=False)
