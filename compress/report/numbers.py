"""Numbers as a reader wants them: rounded sensibly, always with a unit."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Any

MINUS = "\u2212"
CAP_DB = 200.0
"""Signal-to-noise ratios are capped here (see :class:`compress.artifact.Difference`)."""

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CONTROL = dict.fromkeys((*range(32), 127, *range(128, 160), *range(8234, 8239), *range(8294, 8298)), "�")
_CONTROL |= {ord("\n"): " ", ord("\r"): " ", ord("\t"): " "}


def clean(text: object) -> str:
    """Return text on one line without control, escape, text-direction or surrogate characters."""
    return str(text).translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")


def fixed(value: float, decimals: int) -> str:
    """Return ``value`` with a fixed number of decimals, thousands grouped, a true minus sign and no ``-0``."""
    text = f"{value:,.{decimals}f}"
    if not text.strip("-0.,"):
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def sig(value: float, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant digits; below 0.0001 in powers of ten."""
    if value == 0:
        return "0"
    if abs(value) < 1e-4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa.replace('-', MINUS)}×10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    rounded = float(f"{value:.{digits - 1}e}")
    return fixed(rounded, max(0, digits - 1 - math.floor(math.log10(abs(rounded)))))


def times(value: float) -> str:
    """Return a ratio such as ``2.94×``."""
    return f"{fixed(value, 2) if abs(value) < 100 else sig(value)}×"


def span(low: float, high: float, decimals: int = 2) -> str:
    """Return an interval such as ``2.84–3.02``, or ``−0.05 to 0.25`` where a bound is negative."""
    between = " to " if min(low, high) < 0 else "–"
    return f"{fixed(low, decimals)}{between}{fixed(high, decimals)}"


def milliseconds(value: float) -> str:
    """Return a time given in milliseconds."""
    return f"{sig(value)} ms"


def megabytes(value: float) -> str:
    """Return a size given in MB (10^6 bytes)."""
    return f"{sig(value)} MB"


def seconds(value: float) -> str:
    """Return a duration given in seconds: ``4.21 s``, ``3 min 12 s``, ``1 h 5 min``."""
    if value < 60:
        return f"{sig(value)} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def count(value: int) -> str:
    """Return a count: ``999``, ``25.6 million``, ``4.09 billion``."""
    for size, word in ((1_000_000_000, "billion"), (1_000_000, "million")):
        if value >= size:
            return f"{sig(value / size)} {word}"
    return f"{value:,}"


def percent(share: float) -> str:
    """Return a share (0–1) in percent."""
    return f"{fixed(100 * share, 2)} %"


def decibels(value: float) -> str:
    """Return a signal-to-noise ratio."""
    return f"≥ {CAP_DB:g} dB (identical)" if value >= CAP_DB else f"{fixed(value, 1)} dB"


def cosine(value: float) -> str:
    """Return a cosine similarity; one that only rounding would turn to 1 is written as its distance from 1."""
    if value < 1 and fixed(value, 5) == "1.00000":
        return f"1 {MINUS} {sig(1 - value, 2)}"
    return fixed(value, 5)


def noise_share(sqnr_db: float) -> float:
    """Return the size of the error relative to the signal (ratio of root mean squares) behind an SQNR in dB."""
    return 0.0 if sqnr_db >= CAP_DB else float(10 ** (-sqnr_db / 20))


def change(share: float) -> str:
    """Return the size of a change relative to the signal (0–1), in percent."""
    if share == 0:
        return "none"
    return "< 0.001 %" if share < 1e-5 else f"{sig(100 * share, 2)} %"


def moment(text: str) -> str:
    """Return an ISO 8601 time as ``2026-01-15 10:42 UTC``; text that is none as it is."""
    try:
        time = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return clean(text)
    return time.astimezone(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC") if time.tzinfo else clean(text)


def fact(value: Any) -> str:
    """Return a fact of the environment or a runner as plain text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return sig(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{clean(k)}: {fact(v)}" for k, v in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(fact, value)) or "none"
    return clean(value)
