"""Resident memory of this process: what it holds now, and the most it held during some work."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil

MB = 1e6
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def resident_mb() -> float:
    """Return what this process holds in memory now, in MB (10^6 bytes).

    Freed memory that the C library keeps for later is given back first where it allows that (glibc): what a runtime
    needed only while it loaded a model isn't held by the model.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    return float(psutil.Process().memory_info().rss) / MB


def highest_mb(work: Callable[[], None]) -> float:
    """Do ``work`` and return the most memory this process held meanwhile, in MB (10^6 bytes).

    Linux keeps that number itself and lets it be reset; elsewhere memory is sampled every 2 ms, which can miss a
    short peak.
    """
    if _reset_high_water():
        work()
        return _high_water_mb()
    return _sampled(work)


def _reset_high_water() -> bool:
    """Reset the kernel's high-water mark (``clear_refs`` 5, see proc(5)); return whether that can be done here."""
    if not _CLEAR_REFS.exists() or "VmHWM" not in _STATUS.read_text(encoding="ascii", errors="replace"):
        return False
    try:
        _CLEAR_REFS.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _high_water_mb() -> float:
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / MB
    raise OSError(f"{_STATUS} of process {os.getpid()} names no VmHWM")


def _sampled(work: Callable[[], None]) -> float:
    process = psutil.Process()
    ended = threading.Event()
    highest = [process.memory_info().rss]

    def watch() -> None:
        while not ended.wait(0.002):
            highest.append(max(highest.pop(), process.memory_info().rss))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        work()
    finally:
        ended.set()
        watcher.join()
    return float(max(highest[-1], process.memory_info().rss)) / MB
