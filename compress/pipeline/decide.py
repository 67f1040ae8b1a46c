"""Which variant may ship: budgets, and the fastest that keeps them."""

from __future__ import annotations

from collections.abc import Sequence

from compress.recipe import Recipe
from compress.results import Budget, Entry, Ratio, Verdict
from evaluators.statistics import outcome

MB = 1e6
DEFAULT_DROP = 1.0
"""Points of accuracy or correlation that a variant may lose where the user said nothing."""
LEAST_SQNR_DB = 10.0
"""Without labels, outputs further from the baseline's than this (noise of a tenth of the power) aren't shipped."""


def decide(entries: Sequence[Entry], recipe: Recipe, plain: str) -> tuple[list[Entry], str | None, Budget]:
    """Judge every variant and choose the fastest that keeps the budget.

    A variant that is slower than the plain export is only ever chosen where the plain export itself breaks a budget of
    size; one whose speed is within the noise of the plain export's isn't chosen for its speed.

    Args:
        entries: The measured variants.
        recipe: Holds the budget.
        plain: Name of the plain export.

    Returns:
        The entries with their verdicts, the name of the best (None: none may ship) and the budget's outcome.
    """
    judged = {e.name: _judge(e, recipe) for e in entries}
    passing = [e for e in entries if judged[e.name].status == "pass"]
    candidates = [e for e in passing if not _slower(e) or recipe.max_size_mb is not None]
    best = max(candidates, key=_speed, default=None)
    reference = next((e for e in candidates if e.name == plain), None)
    if best is not None and reference is not None and best is not reference and _within_noise(best):
        reason = f"its speed is within the noise of {plain}'s, so {plain} is preferred"
        judged[best.name] = _because(judged[best.name], "pass", reason)
        clear = [e for e in candidates if not _within_noise(e)]
        best = max([reference, *clear], key=_speed)
    if best is not None:
        judged[best.name] = _because(judged[best.name], "best", _why_best(best, plain))
    done = [e.model_copy(update={"verdict": judged[e.name]}) for e in entries]
    return done, best.name if best else None, _budget(recipe, best, passing)


def _judge(entry: Entry, recipe: Recipe) -> Verdict:
    if entry.verdict.status == "failed":
        return entry.verdict
    kept: list[str] = []
    broken: list[str] = []

    def check(ok: bool, sentence: str) -> None:
        (kept if ok else broken).append(sentence)

    limit = max_drop(recipe, entry)
    if limit is not None:
        drop = entry.metric.drop if entry.metric else None
        if drop is None:
            broken.append(f"the drop was not measured ({entry.reasons.get('metric', 'no baseline')})")
        else:
            noise = _drop_noise(entry)
            check(drop <= limit, f"drop {drop:.2f}{noise}, at most {limit:g} allowed")
    elif entry.fidelity is not None and entry.metric is None and entry.fidelity.sqnr_db < LEAST_SQNR_DB:
        broken.append(
            f"without labels the outputs are all there is to judge by, and they are far from the baseline's "
            f"({entry.fidelity.sqnr_db:.1f} dB, at least {LEAST_SQNR_DB:g} dB wanted)"
        )
    batch = next(iter(entry.latency_ms or {}), None)
    if recipe.min_speedup is not None:
        ratio = entry.speedup.vs_runtime_fp32 if entry.speedup else None
        if ratio is None:
            broken.append(f"the speed-up was not measured ({entry.reasons.get('speedup', 'no timing')})")
        else:
            near = "; the interval includes the limit" if ratio.low < recipe.min_speedup <= ratio.high else ""
            check(
                ratio.ratio >= recipe.min_speedup,
                f"{ratio.ratio:.2f}× the runtime's FP32 ({ratio.low:.2f}–{ratio.high:.2f}{near}), "
                f"at least {recipe.min_speedup:g}× asked",
            )
    if recipe.max_latency_ms is not None:
        if entry.latency_ms is None or batch is None:
            broken.append(f"the latency was not measured ({entry.reasons.get('latency_ms', 'no timing')})")
        else:
            median = entry.latency_ms[batch].median
            check(median <= recipe.max_latency_ms, f"median {median:.3g} ms at batch {batch}, at most "
                  f"{recipe.max_latency_ms:g} ms allowed")  # fmt: skip
    if recipe.max_size_mb is not None:
        size = (entry.size_bytes or 0) / MB
        check(size <= recipe.max_size_mb, f"{size:.3g} MB, at most {recipe.max_size_mb:g} MB allowed")
    return Verdict(status="fail" if broken else "pass", reasons=broken or kept)


def max_drop(recipe: Recipe, entry: Entry) -> float | None:
    """Return the drop allowed: the user's, else the default where the metric is a percentage or a correlation."""
    if recipe.max_drop is not None:
        return recipe.max_drop
    return DEFAULT_DROP if entry.metric is not None and entry.metric.unit in ("%", "points") else None


def _drop_noise(entry: Entry) -> str:
    metric = entry.metric
    if metric is None or metric.drop_low is None or metric.drop_high is None:
        return ""
    inside = ", inside the noise" if metric.drop_low <= 0 <= metric.drop_high else ""
    return f" ({metric.drop_low:.2f} to {metric.drop_high:.2f}{inside})"


def _ratio(entry: Entry) -> Ratio | None:
    return entry.speedup.vs_runtime_fp32 if entry.speedup else None


def _speed(entry: Entry) -> float:
    ratio = _ratio(entry)
    return ratio.ratio if ratio else 0.0


def _slower(entry: Entry) -> bool:
    ratio = _ratio(entry)
    return ratio is not None and outcome(ratio) == "slower"


def _within_noise(entry: Entry) -> bool:
    ratio = _ratio(entry)
    return ratio is None or outcome(ratio) != "faster"


def _because(verdict: Verdict, status: str, reason: str) -> Verdict:
    return Verdict.model_validate({"status": status, "reasons": [reason, *verdict.reasons]})


def _why_best(entry: Entry, plain: str) -> str:
    if entry.name == plain:
        return "nothing that keeps the budget is faster than the plain export, beyond the noise"
    slow = f", although it is slower than {plain}" if _slower(entry) else ""
    return f"the fastest that keeps the budget{slow}"


def _budget(recipe: Recipe, best: Entry | None, passing: Sequence[Entry]) -> Budget:
    limits = {k: getattr(recipe, k) for k in ("max_drop", "min_speedup", "max_latency_ms", "max_size_mb")}
    asked = any(v is not None for v in limits.values())
    if best is not None:
        explanation = f"{best.name} is the fastest variant that keeps it." if asked else "No budget was given."
    elif passing:
        explanation = "Only variants slower than the plain export keep it; none is recommended."
    else:
        explanation = "No variant keeps it."
    return Budget(**limits, met=(best is not None) if asked else None, explanation=explanation)
