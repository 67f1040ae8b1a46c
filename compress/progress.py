"""Telling the user what goes on: a bar on a terminal, plain lines elsewhere, everything in the log file."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol


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


class Logged:
    """Passes everything on and keeps it in a log file, with the time of each line.

    Args:
        inner: Where it is passed on to.
    """

    def __init__(self, inner: Progress) -> None:
        self._inner = inner
        self._file: IO[str] | None = None
        self._early: list[str] = []

    def log_to(self, path: Path) -> None:
        """Write to ``path`` from now on, beginning with what was said before."""
        self._file = path.open("a", encoding="utf-8")
        for text in self._early:
            self._write(text)
        self._early.clear()

    def close(self) -> None:
        """Close the log file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def line(self, text: str) -> None:
        """Say one thing that a user should know."""
        self._write(text)
        self._inner.line(text)

    def warn(self, text: str) -> None:
        """Say one thing that a user must not miss."""
        self._write(f"warning: {text}")
        self._inner.warn(text)

    def detail(self, text: str) -> None:
        """Say something for the log and for ``-v``."""
        self._write(text)
        self._inner.detail(text)

    @contextlib.contextmanager
    def task(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Log the title, and open the task."""
        self._write(title)
        with self._inner.task(title, total) as advance:
            yield advance

    def _write(self, text: str) -> None:
        if self._file is None:
            self._early.append(text)
            return
        stamp = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):  # a full disk must not end a run over its log
            self._file.write(f"{stamp} {text}\n")
            self._file.flush()
