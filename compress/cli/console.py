"""Progress on a terminal (a bar) and in a pipe (plain lines)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn


class ConsoleProgress:
    """Reports on stderr, so that stdout is free for the result.

    Args:
        verbose: Show details as well.
        quiet: Show warnings only.
    """

    def __init__(self, *, verbose: bool = False, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._verbose = verbose
        self._quiet = quiet

    def line(self, text: str) -> None:
        """Say one thing that a user should know."""
        if not self._quiet:
            self._console.print(escape(text))

    def warn(self, text: str) -> None:
        """Say one thing that a user must not miss."""
        self._console.print(f"[bold yellow]warning:[/] {escape(text)}")

    def detail(self, text: str) -> None:
        """Say something for the log and for ``-v``."""
        if self._verbose:
            self._console.print(f"[dim]{escape(text)}[/]")

    @contextlib.contextmanager
    def task(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Show a bar on a terminal; elsewhere one line when the task starts."""
        if self._quiet or not self._console.is_terminal:
            if not self._quiet:
                self._console.print(escape(title))
            yield lambda n: None
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(escape(title), total=total)
            yield lambda n: bar.advance(task, n)
