"""Sample results for every test of the report."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    """Load a module beside this file; it can be imported by its name from then on."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def profiles() -> ModuleType:
    """The module sample_profiles.py beside this file."""
    return _load("sample_profiles")


@pytest.fixture(scope="session")
def samples(profiles: ModuleType) -> ModuleType:
    """The module sample_results.py beside this file."""
    assert profiles.__name__ in sys.modules
    _load("sample_parts")
    return _load("sample_results")
