"""The sentences of a report. Pure functions of the results: what was decided is said here, never decided."""

from __future__ import annotations

from typing import Literal

from compress.report import lookup, profiles
from compress.report.numbers import (
    change,
    clean,
    decibels,
    fixed,
    milliseconds,
    noise_share,
    percent,
    sig,
    span,
    times,
)
from compress.results import Entry, Fidelity, Metric, Profile, Ratio, Results, StageResult
from compress.runners.targets import TARGETS

Tone = Literal["good", "warn", "bad"]

_NAMED_LOSSES = 3
"""Slower operators that are named; one of less than the share ``_LEAST_LOSS`` of the lost time isn't."""
_LEAST_LOSS = 0.05
_KINDS: dict[profiles.Kind, str] = {"compute": "compute", "conversion": "conversions", "other": "other operators"}


def headline(results: Results) -> tuple[Tone, str]:
    """Return the verdict as one sentence, and whether it is good news.

    A variant that is slower than what it is compared with is never announced as something to ship.
    """
    best = lookup.variant(results, results.best)
    if best is None:
        return "bad", _nothing(results)
    reference = lookup.plain(results)
    alone = best is reference
    ratio = lookup.torch_ratio(best) if alone else lookup.runtime_ratio(best)
    than = "PyTorch" if alone else lookup.float_reference(results)
    what = f"{clean(best.name)}, the uncompressed model in {lookup.runtime(best)}" if alone else clean(best.name)
    cost = closeness(best)
    if ratio is not None and ratio.high < 1:
        return "warn", f"{_capital(what)} is the best choice of this run but {speed(ratio, than)}; {cost}."
    if alone and ratio is not None and ratio.low <= 1:
        return "warn", f"No compression is worth it: {what} is the best choice and {speed(ratio, than)}; {cost}."
    start = "Ship" if results.budget.met and ratio else "Best choice:"
    pace = speed(ratio, than) if ratio else f"speed {lookup.missing(best, 'speedup')}"
    return "good" if ratio is not None and ratio.low > 1 else "warn", f"{start} {what}: {pace}, {cost}."


def details(results: Results) -> list[str]:
    """Return the sentences that stand under the headline: the other baseline, and what the budget came to."""
    best = lookup.variant(results, results.best)
    lines = []
    if best is not None:
        vs_torch = lookup.torch_ratio(best)
        if vs_torch is not None and best is not lookup.plain(results):
            lines.append(
                f"Against the model as it was handed over: {speed(vs_torch, 'PyTorch')}, "
                "the change of runtime included."
            )
        if best.metric is None:
            lines.append(f"Accuracy: {lookup.missing(best, 'metric')}.")
    if results.budget.explanation and not results.budget.explanation.startswith("No variant keeps"):
        said = sentence(results.budget.explanation)
        lines.append(said if "budget" in said.lower() else f"Budget: {said}")
    return lines


def obstacles(results: Results) -> list[str]:
    """Return what stood in each variant's way where none is recommended; nothing where one is."""
    return [
        f"{clean(e.name)}: {sentence(e.verdict.reasons[0])}"
        for e in results.variants
        if results.best is None and e.verdict.reasons and e.verdict.status in ("fail", "failed")
    ]


def speed(ratio: Ratio, than: str) -> str:
    """Say how fast something is against ``than``, with the interval and what it means."""
    interval = f"95 % interval {span(ratio.low, ratio.high)}"
    if ratio.low > 1:
        return f"{times(ratio.ratio)} faster than {than} ({interval})"
    if ratio.high < 1:
        return f"slower than {than}: {times(ratio.ratio)} its speed ({interval})"
    return f"as fast as {than} within the noise ({times(ratio.ratio)}, {interval})"


def closeness(entry: Entry) -> str:
    """Say what a variant costs: the drop of the metric, or how close the outputs are where there are no labels."""
    if entry.metric is not None:
        return drop(entry.metric)
    if entry.fidelity is not None:
        return fidelity(entry.fidelity)
    return f"accuracy {lookup.missing(entry, 'metric', 'fidelity')}"


def drop(metric: Metric) -> str:
    """Say how far a metric fell, and whether that is more than noise."""
    name, unit = lookup.metric_name(metric), drop_unit(metric)
    if metric.drop is None:
        return f"{name} {metric_value(metric)} ({drop_word(metric)} not measured)"
    noise = f" ({drop_interval(metric)})" if drop_interval(metric) else ""
    size = f"{drop_size(metric, abs(metric.drop))} {unit}"
    if metric.drop < 0:
        return f"{name} better by {size}{noise}"
    return f"{name} {drop_word(metric)} {size}{noise}"


def drop_interval(metric: Metric) -> str:
    """Return the interval of the drop in words; empty where none was measured."""
    if metric.drop_low is None or metric.drop_high is None:
        return ""
    noise = "inside the noise, " if inside_noise(metric) else ""
    return f"{noise}95 % interval {drop_span(metric, metric.drop_low, metric.drop_high)}"


def drop_span(metric: Metric, low: float, high: float) -> str:
    """Return the interval of a drop without its unit."""
    return span(low, high, 2 if metric.unit in ("%", "points") else _decimals(low, high))


def inside_noise(metric: Metric) -> bool:
    """Tell whether the drop's interval includes 0."""
    return metric.drop_low is not None and metric.drop_high is not None and metric.drop_low <= 0 <= metric.drop_high


def metric_value(metric: Metric) -> str:
    """Return a metric's value with its unit."""
    number = fixed(metric.value, 2) if metric.unit in ("%", "points") else sig(metric.value)
    return f"{number} {clean(metric.unit)}".rstrip()


def drop_word(metric: Metric) -> str:
    """Return what a change for the worse is: a fall, or a rise where low values are good."""
    return "drop" if metric.higher_is_better else "rise"


def drop_unit(metric: Metric) -> str:
    """Return the unit of a metric's drop: a difference of percentages is in points."""
    return "points" if metric.unit in ("%", "points") else clean(metric.unit)


def drop_size(metric: Metric, value: float) -> str:
    """Return a drop's size without its unit."""
    return fixed(value, 2) if metric.unit in ("%", "points") else sig(value)


def fidelity(value: Fidelity) -> str:
    """Say how close outputs are to the baseline's."""
    agreement = "" if value.top1_agreement is None else f", top-1 agreement {percent(value.top1_agreement)}"
    if noise_share(value.sqnr_db) == 0:
        return f"outputs identical to the baseline's{agreement}"
    error = sig(100 * noise_share(value.sqnr_db))
    return f"outputs within {error} % of the baseline's (SQNR {decibels(value.sqnr_db)}{agreement})"


def why(results: Results, entry: Entry) -> list[str]:
    """Return why a variant got its verdict, and what the numbers alone don't say."""
    lines = [sentence(r) for r in entry.verdict.reasons]
    ratio = lookup.runtime_ratio(entry)
    if ratio is None or lookup.is_reference(results, entry):
        return lines
    than = lookup.float_reference(results)
    if ratio.high < 1:
        lines.append(f"It is slower than {than}.")
    elif ratio.low <= 1:
        lines.append(f"Its speed cannot be told from that of {than}: the interval includes 1.")
    pair = lookup.profiles(results, entry)
    if pair is not None and ratio.low <= 1:
        lines += filter(None, (lost_time(*pair),))
    meaning = next((m for p, m in _meanings(entry.target) if entry.precision.startswith(p)), None)
    if meaning and ratio.low <= 1:
        lines.append(f"{entry.precision} on {clean(entry.target)} is {meaning}.")
    return lines


def lost_time(before: Profile, after: Profile) -> str:
    """Name the operators that became slower, and the conversions where they take longer; empty where nothing did."""
    losses = [(loss, _slower(row)) for row, loss in profiles.slower(profiles.rows(before, after))]
    more = profiles.spent(after, "conversion") - profiles.spent(before, "conversion")
    conversions = _conversions(before, after) if more > 0 else ""
    lost = sum(loss for loss, _ in losses) + max(0.0, more)
    named = [(loss, words) for loss, words in losses[:_NAMED_LOSSES] if loss >= _LEAST_LOSS * lost]
    if more > 0 and more >= _LEAST_LOSS * lost:
        named.append((more, conversions))
    named.sort(key=lambda pair: -pair[0])
    if not named:
        return ""
    start = "Most of the lost time" if 2 * sum(loss for loss, _ in named) > lost else "The largest losses of time"
    return f"{start}: {_list([words for _, words in named])}."


def spent_time(before: Profile, after: Profile) -> str:
    """Say what computing, conversions and the rest take, before and after."""
    parts = [f"{w} {_turn(profiles.spent(before, k), profiles.spent(after, k))}" for k, w in _KINDS.items()]
    return f"{', '.join(parts)} (profiled, batch {after.batch})"


def where(entry: Entry) -> str:
    """Say which stage changed the outputs most; empty where no stage was compared with its parent."""
    worst = worst_stage(entry)
    if worst is None or worst.difference is None:
        return ""
    share = noise_share(worst.difference.sqnr_db)
    if share < 1e-5:
        return "No stage changed the outputs by 0.001 % or more."
    return f"Most of the difference arose in {clean(worst.stage)}: it changed the outputs by {change(share)}."


def worst_stage(entry: Entry) -> StageResult | None:
    """Return the stage with the largest change against its parent; None where none was measured."""
    measured = [s for s in entry.stages if s.difference is not None]
    return min(measured, key=lambda s: s.difference.sqnr_db if s.difference else 0.0, default=None)


def how_measured(results: Results) -> list[str]:
    """Return how the numbers were taken, as far as the results hold it."""
    timed = [latency for e in lookup.entries(results) for latency in (e.latency_ms or {}).values()]
    lines = []
    if timed:
        rounds = sorted({len(t.rounds) for t in timed})
        runs = sorted({t.runs for t in timed})
        lines += [
            f"Latency: {_range(rounds)} rounds; in each, the baseline and every variant ran in turn, each in a process "
            f"of its own, one at a time. {_range(runs)} timed inferences an entry and batch size; warm-up isn't "
            "counted.",
            "Speed-up: the ratio pair by pair within the rounds, with its 95 % bootstrap interval. An interval that "
            "includes 1 is inside the noise.",
            "Throughput: samples a second, back to back, with its 95 % bootstrap interval over rounds.",
        ]
    metric = lookup.any_metric(results)
    if metric is not None:
        lines.append(
            f"{lookup.metric_title(metric)}: {metric.samples:,} samples, the same ones with the same "
            f"preprocessing for every entry. The {drop_word(metric)}'s 95 % interval is a paired bootstrap; one that "
            "includes 0 is inside the noise."
        )
    compared = next((e.fidelity for e in results.variants if e.fidelity is not None), None)
    if compared is not None:
        lines.append(
            f"Fidelity: outputs compared with the baseline's on the same {compared.samples:,} inputs. SQNR is the "
            "signal's power over the error's; 20 dB is an error of 10 %, 40 dB of 1 %."
        )
    if any(e.memory_mb for e in lookup.entries(results)):
        lines.append(
            "Memory: a fresh process an entry. File is the size on disk, weights the growth of resident memory by "
            "loading, peak the highest during inference; both less what the process held before."
        )
    return lines


def sentence(text: str) -> str:
    """Return text that starts with a capital (unless a name does) and ends with a full stop."""
    line = clean(text).strip()
    return line if line.endswith((".", "!", "?", ":")) or not line else f"{_capital(line)}."


def _nothing(results: Results) -> str:
    if results.variants and all(e.verdict.status == "failed" for e in results.variants):
        return "No variant could be made."
    if results.budget.met is False and not any(e.verdict.status == "pass" for e in results.variants):
        return "No variant keeps the budget."
    return "No variant is recommended."


def _slower(row: profiles.Row) -> str:
    if row.before.ops:
        return f"{row.title} ({row.after.types}) {_turn(row.before.ms, row.after.ms)}"
    if len(row.after.ops) > 1:
        return f"{len(row.after.ops)} new {clean(row.after.ops[0].op)} {milliseconds(row.after.ms)}"
    return f"{row.title} (new {row.after.types}) {milliseconds(row.after.ms)}"


def _conversions(before: Profile, after: Profile) -> str:
    (was, n_was), (now, n_now) = ((profiles.spent(p, "conversion"), profiles.count(p, "conversion"))
                                  for p in (before, after))  # fmt: skip
    takes = f"{n_now} conversion{'s that take' if n_now > 1 else ' that takes'} {milliseconds(now)}"
    return f"{takes} (before: {n_was}, {milliseconds(was)})" if n_was else takes


def _turn(before: float, after: float) -> str:
    return f"{sig(before)} → {milliseconds(after)}"


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])}, and {items[-1]}"


def _meanings(target: str) -> list[tuple[str, str]]:
    return [(p, m) for p, m in TARGETS[target].precisions.items()] if target in TARGETS else []


def _capital(text: str) -> str:
    first = text.split(" ", 1)[0]
    # A name such as int8 or fp32 keeps its own spelling.
    return text[:1].upper() + text[1:] if first.strip(",:;").isalpha() else text


def _decimals(*values: float) -> int:
    largest = max(abs(v) for v in values)
    return max(0, len(sig(largest).partition(".")[2]))


def _range(values: list[int]) -> str:
    return f"{values[0]:,}" if values[0] == values[-1] else f"{values[0]:,}–{values[-1]:,}"
