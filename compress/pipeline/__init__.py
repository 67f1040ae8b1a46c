"""The pipeline: lowers a recipe to stages, runs them, measures, decides, reports."""

from __future__ import annotations

from compress.pipeline.run import run

__all__ = ["run"]
