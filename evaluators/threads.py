"""How many CPUs this process may really use."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import psutil


@dataclasses.dataclass(frozen=True)
class Cpus:
    """CPUs of the machine and what of them this process gets.

    Attributes:
        machine: Logical CPUs of the machine.
        physical: Cores of the machine; None where the system doesn't say.
        affinity: CPUs this process may run on.
        quota: CPU time that its container may use, in CPUs; None without a limit.
    """

    machine: int
    physical: int | None
    affinity: int
    quota: float | None

    @property
    def available(self) -> int:
        """CPUs that can be busy all the time: more threads than this only wait for one another."""
        limited = self.affinity if self.quota is None else min(self.affinity, int(self.quota))
        return max(1, limited)


def cpus() -> Cpus:
    """Return the CPUs of this machine and process."""
    machine = psutil.cpu_count() or 1
    getter = getattr(os, "sched_getaffinity", None)
    affinity = len(getter(0)) if getter is not None else machine
    return Cpus(machine, psutil.cpu_count(logical=False), affinity, quota())


def available_threads() -> int:
    """Return the number of threads worth using here: CPUs within affinity and the container's quota, 1 at least."""
    return cpus().available


def quota(system: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")) -> float | None:
    """Return the smallest CPU quota of the control groups this process is in, in CPUs; None where there is no limit.

    Reads version 2 (``cpu.max``) and version 1 (``cpu.cfs_quota_us``), in the process's own group and all above it.

    Args:
        system: Where control groups are mounted.
        process: Names the groups of this process.
    """
    if not process.is_file():
        return None
    found = []
    for line in process.read_text(encoding="utf-8", errors="replace").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            mounts, read = (system, system / "unified"), _read_v2
        elif "cpu" in controllers.split(","):
            mounts, read = (system / controllers, system / "cpu"), _read_v1
        else:
            continue
        for mount in mounts:
            folder = mount / group.lstrip("/")
            # Inside a container the path may be that of the host; then only the mount itself is there.
            found += [read(f) for f in (folder, *folder.parents) if f == mount or mount in f.parents]
    limits = [limit for limit in found if limit is not None]
    return min(limits) if limits else None


def _read_v2(folder: Path) -> float | None:
    words = _words(folder / "cpu.max")
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _read_v1(folder: Path) -> float | None:
    time, period = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
    return int(time[0]) / int(period[0]) if time and period and int(time[0]) > 0 else None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []
