"""Calling a user's own ``FILE.py:factory``, as often as it takes."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from compress.errors import CompressError, DataError, UsageError

Pass = tuple[Iterator[Any], bool]
"""One pass: an iterator, and whether it gives single samples instead of batches."""


class UserIterable:
    """What a user's factory returns, made to be gone through any number of times.

    Attributes:
        name: ``FILE.py:factory``.
        classes: Class names where what it returned has ``classes``, as torchvision's data sets do.

    Raises:
        UsageError: The file or the function isn't there.
        DataError: It fails, returns nothing that can be iterated, or the same iterator every time.
    """

    def __init__(self, path: Path, function: str) -> None:
        self.name = f"{path}:{function}"
        self._factory = _load(path, function)
        made = self._call()
        names = getattr(made, "classes", None) or getattr(getattr(made, "dataset", None), "classes", None)
        self.classes = tuple(map(str, names)) if isinstance(names, (list, tuple)) else None
        self._start = self._repeatable(made)

    def __iter__(self) -> Iterator[tuple[Any, bool]]:
        """Go through everything once: what the loader yields, and whether it is a sample without a batch axis."""
        with self._users_code():
            iterator, samples = self._start()
        end = object()
        while True:
            with self._users_code():
                value = next(iterator, end)
            if value is end:
                return
            yield value, samples

    def _repeatable(self, made: Any) -> Callable[[], Pass]:
        torch_data = sys.modules.get("torch.utils.data")  # where torch isn't loaded, nothing is a torch data set
        samples = torch_data is not None and isinstance(made, torch_data.Dataset)
        if samples and hasattr(made, "__getitem__") and hasattr(made, "__len__"):
            return lambda: ((made[i] for i in range(len(made))), True)
        if isinstance(made, Mapping) or hasattr(made, "ndim") or _is_one_batch(made):
            return lambda: (iter([made]), False)
        if not isinstance(made, Iterable):
            raise DataError(f"{self.name} returns a {type(made).__name__}, not something that gives batches.")
        if iter(made) is not made:
            return lambda: (iter(made), samples)
        if self._call() is made:
            raise DataError(
                f"{self.name} returns the same iterator every time, which is used up after one pass.",
                "Make it inside the factory, so that each call returns a new one.",
            )
        fresh = [made]
        return lambda: (iter(fresh.pop() if fresh else self._call()), samples)

    def _call(self) -> Any:
        with self._users_code():
            return self._factory()

    @contextlib.contextmanager
    def _users_code(self) -> Iterator[None]:
        try:
            yield
        except CompressError:
            raise
        except Exception as error:
            reason = next(iter(str(error).strip().splitlines()), "")
            raise DataError(f"{self.name} failed: {type(error).__name__}: {reason}") from error


def _load(path: Path, function: str) -> Callable[[], Any]:
    spec = importlib.util.spec_from_file_location(f"compress_user_data_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"No Python file at {path}.", "Data of your own is given as FILE.py:factory.")
    module = importlib.util.module_from_spec(spec)
    # Modules beside the file can be imported by it, as when it is run as a script.
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise DataError(f"{path} failed on import: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    factory = getattr(module, function, None)
    if not callable(factory):
        raise UsageError(f"{path} has no function '{function}'.", "Data of your own is given as FILE.py:factory.")
    return factory  # type: ignore[no-any-return]


def _is_one_batch(made: Any) -> bool:
    """Tell ``(inputs, targets)`` from an iterable of two batches: the first has more axes than the second."""
    if not (isinstance(made, tuple) and len(made) == 2 and all(hasattr(m, "ndim") for m in made)):
        return False
    return bool(made[0].ndim > made[1].ndim and len(made[0]) == len(made[1]))
