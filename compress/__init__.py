"""Compress a trained model, export it, and measure fairly what was gained and what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from compress.pipeline import run as run
    from compress.recipe import Recipe as Recipe
    from compress.results import Results as Results

__all__ = ["Recipe", "Results", "__version__", "run"]


def __getattr__(name: str) -> Any:
    """Import the public names where they are first used: ``import compress`` loads no torch."""
    import importlib

    homes = {"run": "compress.pipeline", "Recipe": "compress.recipe", "Results": "compress.results"}
    if name not in homes:
        raise AttributeError(f"module 'compress' has no attribute {name!r}")
    return getattr(importlib.import_module(homes[name]), name)
