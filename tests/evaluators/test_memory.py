"""Memory that may still be used."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from evaluators.memory import available_mb


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"memory.max": "3000000\n", "memory.current": "1000000\n"}, 2.0),
        ({"memory/memory.limit_in_bytes": "5000000", "memory/memory.usage_in_bytes": "1000000"}, 4.0),
        ({"memory.max": "1000", "memory.current": "2000"}, 0.0),
    ],
)
def test_a_containers_limit_counts(tmp_path: Path, files: dict[str, str], wanted: float) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_mb(tmp_path) == wanted


def test_without_a_limit_it_is_the_machines(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert available_mb(tmp_path) == pytest.approx(psutil.virtual_memory().available / 1e6, rel=0.2)
