"""The command line: one file a command; thin: parse, call the library, print."""

from __future__ import annotations

from compress.cli.app import main

__all__ = ["main"]
