"""The one interface through which every artifact is run and measured, the baseline's too."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar

import numpy as np

from compress.artifact import Artifact, Form, Signature
from compress.data.base import Array
from compress.errors import ModelError, UsageError
from compress.results import Profile


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How to run, the same for every artifact of a comparison.

    Attributes:
        threads: Threads inside one operator.
        device: ``cpu`` or ``cuda:N``.
    """

    threads: int
    device: str = "cpu"


class Runner(abc.ABC):
    """Runs one artifact. A context manager; checked public methods, one private method each to implement.

    Raises:
        ModelError: The file is damaged, or the runtime refuses it.
        UsageError: The device or runtime asked for isn't there. Nothing falls back in silence.
    """

    forms: ClassVar[frozenset[Form]]

    def __init__(self, artifact: Artifact, options: RunOptions) -> None:
        if artifact.form not in self.forms:
            raise UsageError(f"{type(self).__name__} cannot run a file of form {artifact.form.value}.")
        self.artifact = artifact
        self.options = options
        self._load()

    @property
    def signature(self) -> Signature:
        """Inputs and outputs, as the runtime reads them from the file."""
        return self._signature()

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on arrays by input name; return arrays by output name, in the signature's order."""
        return self._infer(self._checked(inputs))

    def bind(self, inputs: Mapping[str, Array]) -> Callable[[], None]:
        """Return a function that runs once on these inputs and returns when the work has ended.

        Inputs are converted to the runtime's own form beforehand, so that timing the function times inference.
        """
        return self._bind(self._checked(inputs))

    def profile(self, inputs: Mapping[str, Array], runs: int) -> Profile | None:
        """Return where the time of one inference goes, by the runtime's own profiler; None where it has none.

        Args:
            inputs: As for :meth:`infer`.
            runs: Inferences that are measured, after a warm-up.
        """
        return self._profile(self._checked(inputs), runs)

    @abc.abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return what is really used, read from the runtime and never from the request.

        Keys: ``runtime``, ``version``, ``device``, ``threads``, ``precisions`` (operators by the precision they really
        run in), and the runtime's own (``providers``, ``inference_precision``, …).
        """

    def close(self) -> None:
        """Free the runtime's resources. May be called twice."""
        self._close()

    def _checked(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        specs = self.signature.inputs
        missing = [s.name for s in specs if s.name not in inputs]
        unknown = [n for n in inputs if n not in {s.name for s in specs}]
        if missing or unknown:
            raise ModelError(
                f"{self.artifact.path.name} takes {', '.join(s.name for s in specs)}; "
                f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}."
            )
        checked = {}
        for spec in specs:
            array = np.ascontiguousarray(inputs[spec.name])
            if array.dtype.name != spec.dtype:
                raise ModelError(f"Input {spec.name} must be {spec.dtype}, not {array.dtype.name}.")
            checked[spec.name] = array
        return checked

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abc.abstractmethod
    def _load(self) -> None: ...

    @abc.abstractmethod
    def _signature(self) -> Signature: ...

    @abc.abstractmethod
    def _infer(self, inputs: dict[str, Array]) -> dict[str, Array]: ...

    @abc.abstractmethod
    def _bind(self, inputs: dict[str, Array]) -> Callable[[], None]: ...

    def _profile(self, inputs: dict[str, Array], runs: int) -> Profile | None:
        return None

    @abc.abstractmethod
    def _close(self) -> None: ...
