"""Telling the user what goes on: a bar on a terminal, plain lines elsewhere, everything in the log file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol


class Progress(Protocol):
    """What a stage uses to report. Nothing in the library prints."""

    def line(self, text: str) -> None:
        """Say one thing that a user should know."""

    def warn(self, text: str) -> None:
        """Say one thing that a user must not miss."""

    def detail(self, text: str) -> None:
        """Say something for the log and for ``-v``."""

    def task(self, title: str, total: int | None) -> contextlib.AbstractContextManager[Callable[[int], None]]:
        """Open a task of ``total`` steps (None: unknown); yields a function that advances it by n."""


class Quiet:
    """A progress that says nothing."""

    def line(self, text: str) -> None:
        """Drop the text."""

    def warn(self, text: str) -> None:
        """Drop the text."""

    def detail(self, text: str) -> None:
        """Drop the text."""

    @contextlib.contextmanager
    def task(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Yield a function that does nothing."""
        yield lambda n: None
