"""CPUs within affinity and quota."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaluators.threads import Cpus, available_threads, cpus, quota


@pytest.mark.parametrize(
    ("affinity", "limit", "wanted"), [(8, None, 8), (8, 2.0, 2), (8, 2.5, 2), (8, 0.5, 1), (2, 16.0, 2)]
)
def test_the_smaller_of_affinity_and_quota(affinity: int, limit: float | None, wanted: int) -> None:
    assert Cpus(16, 8, affinity, limit).available == wanted


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_affinity_of_this_process() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert available_threads() == 1
        assert cpus().affinity == 1
    finally:
        os.sched_setaffinity(0, before)


def groups(tmp_path: Path, lines: str, **files: str) -> tuple[Path, Path]:
    """Make a tree of control groups; file names have ``__`` for ``/``."""
    for name, text in files.items():
        path = tmp_path / "fs" / name.replace("__", "/").replace("cpu_", "cpu.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "cgroup").write_text(lines)
    return tmp_path / "fs", tmp_path / "cgroup"


@pytest.mark.parametrize(
    ("lines", "files", "wanted"),
    [
        ("0::/\n", {"cpu_max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu_max": "max 100000\n"}, None),
        ("0::/a/b\n", {"a__b__cpu_max": "max 100000\n", "a__cpu_max": "200000 100000\n"}, 2.0),
        ("0::/not/seen/here\n", {"cpu_max": "400000 100000\n"}, 4.0),
        ("4:cpu,cpuacct:/x\n", {"cpu,cpuacct__x__cpu_cfs_quota_us": "300000",
                                 "cpu,cpuacct__x__cpu_cfs_period_us": "100000"}, 3.0),
        ("4:cpu:/\n", {"cpu__cpu_cfs_quota_us": "-1", "cpu__cpu_cfs_period_us": "100000"}, None),
        ("5:memory:/\n", {}, None),
    ],
)  # fmt: skip
def test_quota(tmp_path: Path, lines: str, files: dict[str, str], wanted: float | None) -> None:
    assert quota(*groups(tmp_path, lines, **files)) == wanted


def test_no_control_groups(tmp_path: Path) -> None:
    assert quota(tmp_path, tmp_path / "missing") is None
