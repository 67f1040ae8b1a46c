"""Errors a user sees: one sentence, one hint, one exit code each."""

from __future__ import annotations

from typing import ClassVar


class CompressError(Exception):
    """Base of every error that is the user's to mend.

    Args:
        message: One sentence: what is wrong and where.
        hint: What to do about it; printed on the same line, after the message.
    """

    exit_code: ClassVar[int] = 4

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def __reduce__(self) -> tuple[type[CompressError], tuple[str, str]]:
        return type(self), (self.message, self.hint)


class UsageError(CompressError):
    """A wrong flag, recipe or combination of them (exit 2)."""

    exit_code = 2


class ModelError(CompressError):
    """The model cannot be used (exit 3)."""

    exit_code = 3


class DataError(CompressError):
    """The data cannot be used (exit 3)."""

    exit_code = 3


class StageError(CompressError):
    """A stage of the pipeline failed (exit 4)."""

    exit_code = 4


class BudgetError(CompressError):
    """No variant keeps the budget (exit 5)."""

    exit_code = 5
