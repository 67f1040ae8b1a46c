"""Fixtures that many tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real inputs beside the checkout (CIFAR-10, user models, STS-B); tests that need them are skipped without."""
    folder = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data beside the checkout ({folder})")
    return folder
