"""Whether something else was using the CPUs while speed was measured."""

from __future__ import annotations

import os
import time
from types import TracebackType

import psutil

BUSY = 0.1
"""Share of the CPUs from which on other work is worth a warning. Threads that wait for each other at every operator, as
PyTorch's do, lose far more than that share."""


class OtherWork:
    """Measures the share of this process's CPUs that others used during a ``with`` block.

    What the process and its children used is taken off, once the children have ended; time that a hypervisor took away
    counts as others' use.

    Attributes:
        share: 0 to 1; None where the system doesn't tell (Windows has no times of ended children).
    """

    def __init__(self) -> None:
        self.share: float | None = None

    def __enter__(self) -> OtherWork:
        self._before = _used()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.name != "posix":
            return
        busy, own, clock = (after - before for after, before in zip(_used(), self._before, strict=True))
        self.share = share(busy, own, clock, len(_cpus()))


def share(busy: float, own: float, seconds: float, cpus: int) -> float:
    """Return the share of ``cpus`` CPUs that others used, of all busy and own CPU seconds in ``seconds``."""
    return min(1.0, max(0.0, (busy - own) / (seconds * cpus))) if seconds > 0 else 0.0


def warning(found: float | None) -> str:
    """Return the sentence for the report; empty where others used little."""
    if found is None or found < BUSY:
        return ""
    return (
        f"Other processes used {found:.0%} of the CPUs while speed was measured; times are too long, PyTorch's above "
        "all, and ratios may be off. Measure again on an idle machine."
    )


def _cpus() -> list[int]:
    getter = getattr(os, "sched_getaffinity", None)
    return sorted(getter(0)) if getter is not None else list(range(psutil.cpu_count() or 1))


def _used() -> tuple[float, float, float]:
    """Return busy seconds of our CPUs, seconds used by us and our ended children, and the clock."""
    every = psutil.cpu_times(percpu=True)
    fields = ("user", "nice", "system", "irq", "softirq", "steal")
    busy = sum(getattr(every[c], f, 0.0) for c in _cpus() if c < len(every) for f in fields)
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return busy, own, time.monotonic()
