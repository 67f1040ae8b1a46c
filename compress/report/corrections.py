"""What a low-precision pass tried and chose: its corrections, and which layers stayed in float for what reason."""

from __future__ import annotations

import math
from collections import Counter

from compress.report import sensitivity
from compress.report.explain import sentence
from compress.report.numbers import CAP_DB, MINUS, change, clean, fixed, sig
from compress.results import Correction, StageDetails

HEAD = ("Tried", "Error of the outputs", "Gain", "Kept", "Layers")


def rows(details: StageDetails) -> list[tuple[str, ...]]:
    """Return what was tried, in that order, under ``HEAD``."""
    return [
        (clean(c.name), _error(c), _gain(c), "✓ kept" if c.kept else "– not kept", f"{c.layers:,}")
        for c in details.corrections
    ]


def choices(details: StageDetails) -> list[str]:
    """Return what was chosen in sentences: the layers in float by reason, and what the search for them found."""
    lines = []
    left = [layer for layer in details.layers if sensitivity.in_float(layer)]
    if details.layers:
        # What stands behind the colon of a reason is that layer's own numbers.
        reasons = Counter(clean(layer.reason).partition(": ")[0] or "without a recorded reason" for layer in left)
        why = "; ".join(f"{number:,} {reason}" for reason, number in reasons.most_common())
        what = f"{len(left):,} of {len(details.layers):,} layers stayed in float"
        lines.append(f"{what}: {why}." if left else f"{what}.")
    search = details.search
    if search is not None:
        kept = "" if search.met else " The limit was not kept."
        tries = f" {search.evaluations:,} combination{'s were' if search.evaluations != 1 else ' was'} evaluated."
        lines.append(f"{sentence(search.explanation)}{kept}{tries}")
    return lines


def _error(tried: Correction) -> str:
    """Return the size of the error relative to the outputs before and after; the results hold ratios of powers."""
    before, after = math.sqrt(tried.error_before), math.sqrt(tried.error_after)
    if min(before, after) < 1e-5:
        return f"{change(before)} → {change(after)}"
    return f"{sig(100 * before)} → {sig(100 * after)} %"


def _gain(tried: Correction) -> str:
    """Return by how many decibels the SQNR rose."""
    before, after = (-10 * math.log10(max(e, 10 ** (-CAP_DB / 10))) for e in (tried.error_before, tried.error_after))
    gain = fixed(after - before, 2)
    return "none" if not gain.strip("0.") else f"{'' if gain.startswith(MINUS) else '+'}{gain} dB"
