"""Timing one function: warm-up left out, enough runs, never for ever."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Timing:
    """How long to time, the same for every artifact of a comparison.

    Runs go on until both ``min_runs`` and ``min_seconds`` are reached; a slow model stops at ``max_seconds`` once
    it has ``least_runs``.

    Attributes:
        min_seconds: Time to spend on timed runs.
        min_runs: Timed runs wanted.
        least_runs: Timed runs that even a slow model gets.
        max_seconds: When a slow model stops.
        warmup_runs: Untimed runs beforehand, at least: first runs allocate, choose kernels and compile.
        warmup_seconds: Time to warm up, at least: caches and clocks come back after a pause.
    """

    min_seconds: float = 0.3
    min_runs: int = 10
    least_runs: int = 3
    max_seconds: float = 2.0
    warmup_runs: int = 3
    warmup_seconds: float = 0.05


def timed_runs(call: Callable[[], None], timing: Timing, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Time ``call``, which must return only when its work has ended.

    Args:
        call: One inference on inputs bound beforehand.
        timing: How long.
        clock: Seconds from an arbitrary start.

    Returns:
        Milliseconds of every timed run, in order.
    """
    _warm(call, timing, clock)
    samples: list[float] = []
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        started = clock()
        while True:
            before = clock()
            call()
            after = clock()
            samples.append((after - before) * 1000)
            spent = after - started
            enough = len(samples) >= timing.min_runs and spent >= timing.min_seconds
            too_slow = len(samples) >= timing.least_runs and spent >= timing.max_seconds
            if enough or too_slow:
                return samples
    finally:
        if collecting:
            gc.enable()


def _warm(call: Callable[[], None], timing: Timing, clock: Callable[[], float]) -> None:
    started, runs = clock(), 0
    while runs < timing.warmup_runs or clock() - started < timing.warmup_seconds:
        call()
        runs += 1
