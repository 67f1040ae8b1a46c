"""Keeping a chatty library off the terminal without losing what it says."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

from compress.progress import Progress

_LOGGERS = ("torch", "onnxscript", "onnx_ir")


@contextlib.contextmanager
def quiet(progress: Progress) -> Iterator[list[str]]:
    """Send everything that Python code prints, logs or warns of to ``progress.detail``, also where it then fails.

    Yields:
        The texts of the warnings raised so far; filled on the way.
    """
    printed = io.StringIO()
    messages: list[str] = []
    handler = logging.StreamHandler(printed)
    with contextlib.ExitStack() as stack:
        for name in _LOGGERS:
            stack.enter_context(_redirected(logging.getLogger(name), handler))
        stack.callback(lambda: _tell(progress, printed.getvalue(), messages))
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(printed))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("always")
        for category in (DeprecationWarning, FutureWarning):  # they tell torch's own code, not the user's
            warnings.simplefilter("ignore", category)
        warnings.showwarning = lambda message, *_: messages.append(f"{type(message).__name__}: {message}")
        yield messages


@contextlib.contextmanager
def _redirected(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    kept, propagates = logger.handlers[:], logger.propagate
    logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = kept, propagates


def _tell(progress: Progress, printed: str, messages: list[str]) -> None:
    for line in (*printed.splitlines(), *dict.fromkeys(messages)):
        if line.strip():
            progress.detail(line.rstrip())
