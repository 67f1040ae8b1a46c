"""Memory of a model, and memory left on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil

from compress.artifact import Artifact
from compress.data.base import Array
from compress.results import Memory
from compress.runners.process import RunnerProcess

MB = 1e6


def measure_memory(process: RunnerProcess, inputs: Mapping[str, Array]) -> Memory:
    """Return file size, growth by loading and peak during inference of a model in a process nothing has run in yet."""
    return Memory(
        file=process.artifact.size_bytes / MB if process.artifact.path.is_file() else None,
        weights=process.memory_weights_mb,
        peak=process.peak_memory_mb(inputs),
    )


def available_mb(system: Path = Path("/sys/fs/cgroup")) -> float:
    """Return the memory that may still be used, in MB: the machine's, or the container's where that is less.

    Args:
        system: Where control groups are mounted.
    """
    found = [psutil.virtual_memory().available / MB]
    for limit, used in (
        (_number(system / "memory.max"), _number(system / "memory.current")),
        (_number(system / "memory/memory.limit_in_bytes"), _number(system / "memory/memory.usage_in_bytes")),
    ):
        if limit is not None and used is not None:
            found.append((limit - used) / MB)
    return float(max(0.0, min(found)))


def _number(path: Path) -> int | None:
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def needed_mb(artifact: Artifact) -> float:
    """Return a cautious guess of the memory that a process with this model holds, in MB: before it was ever loaded."""
    runtime, copies = 400.0, 3.0
    return runtime + copies * artifact.size_bytes / MB
