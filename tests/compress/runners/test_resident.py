"""Resident memory, by the kernel's mark and by sampling."""

from __future__ import annotations

import time

import numpy as np
import pytest

from compress.runners import resident


def hold_80_mb() -> None:
    """Hold 80 MB for a moment."""
    block = np.ones(10_000_000)
    time.sleep(0.05)
    del block


def test_the_peak_of_some_work_is_seen() -> None:
    before = resident.resident_mb()
    assert 70 < resident.highest_mb(hold_80_mb) - before < 120


def test_an_earlier_peak_doesnt_count() -> None:
    hold_80_mb()
    before = resident.resident_mb()
    assert resident.highest_mb(lambda: None) - before < 30


def test_sampling_stands_in_where_the_kernel_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "_reset_high_water", lambda: False)
    before = resident.resident_mb()
    assert 70 < resident.highest_mb(hold_80_mb) - before < 120
