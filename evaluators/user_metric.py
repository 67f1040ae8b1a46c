"""A user's own metric: a function in a file of theirs."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compress.data.base import Array, Batch
from compress.errors import DataError, UsageError
from evaluators.metrics import Scores, Tally


@dataclasses.dataclass(frozen=True)
class UserMetric:
    """A function ``metric(outputs, targets)`` that returns a number, or a number and whether higher is better.

    It gets all outputs at once, by name, in the order of the samples, and the labels. Where a sample has two views
    (text pairs) each output has the shape ``[samples, 2, …]``. It is called once a model: without resampling there is
    no interval on the drop.

    Attributes:
        name: ``FILE.py:function``.
        function: The user's function.
    """

    name: str
    function: Callable[[dict[str, Array], Array], Any]

    def start(self) -> Tally:
        """Return an empty tally."""
        return _UserTally(self)


class _UserTally:
    def __init__(self, metric: UserMetric) -> None:
        self._metric = metric
        self._outputs: list[dict[str, Array]] = []
        self._targets: list[Array] = []

    def update(self, outputs: Mapping[str, Array], batch: Batch) -> None:
        if batch.targets is None:
            raise DataError("The data has no labels, so nothing can be scored on it.")
        self._targets.append(batch.targets)
        self._outputs.append({name: _by_sample(array, batch) for name, array in outputs.items()})

    def finish(self) -> Scores:
        name = self._metric.name
        outputs = {key: np.concatenate([o[key] for o in self._outputs]) for key in self._outputs[0]}
        targets = np.concatenate(self._targets)
        try:
            returned = self._metric.function(outputs, targets)
        except Exception as error:
            reason = next(iter(str(error).strip().splitlines()), "no reason given")
            where = _line_in(error, Path(name.rpartition(":")[0]))
            raise UsageError(f"The metric {name} failed{where}: {type(error).__name__}: {reason}") from error
        value, higher = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, True)
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"The metric {name} returned {type(value).__name__}, not a number.",
                "Return a number, or a number and whether higher is better.",
            ) from error
        if not math.isfinite(number):
            raise UsageError(f"The metric {name} returned {number}, which cannot be compared.")
        short = name.rpartition(":")[2]
        return Scores(short, "", bool(higher), number, len(targets))


def load_user_metric(asked: str) -> UserMetric:
    """Load ``FILE.py:function``. The file runs, as any of the user's own code.

    Raises:
        UsageError: The file or the function isn't there, or the file fails.
    """
    file, _, function = asked.rpartition(":")
    path = Path(file).expanduser()
    if not path.is_file():
        raise UsageError(f"--metric: there is no file {file}.")
    spec = importlib.util.spec_from_file_location(f"compress_user_metric_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--metric: {file} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look themselves up here
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        where = _line_in(error, path)
        raise UsageError(f"--metric: {file} cannot be loaded{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent.resolve()))
    found = getattr(module, function, None)
    if not callable(found):
        own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        raise UsageError(
            f"--metric: {file} has no function '{function}'.", f"It has: {', '.join(own) or 'no function at all'}."
        )
    return UserMetric(asked, found)


def _by_sample(array: Array, batch: Batch) -> Array:
    if batch.views == 1:
        return array
    return np.stack(np.split(array, batch.views), axis=1)


def _line_in(error: BaseException, path: Path) -> str:
    """Return " (line N)" of the last line of the user's file that the error went through."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).name == path.name:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f" (line {lines[-1]})" if lines else ""
