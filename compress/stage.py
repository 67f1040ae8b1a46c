"""The contract of a stage: what it requires, what it does, what it ensures."""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from compress.artifact import Artifact, Difference, Form, ModelSource, Signature, StageRecord, sha256_of
from compress.data.base import Dataset
from compress.errors import CompressError, StageError
from compress.progress import Progress
from compress.results import Profile
from compress.runners.targets import Target

Verifier = Callable[[Artifact, Artifact], Difference]


@dataclasses.dataclass(frozen=True)
class Drop:
    """What a candidate loses against the model as it was handed over, on samples that aren't evaluated on.

    Attributes:
        value: Points of the metric; positive is worse.
        error: Its standard error.
        scatter: Standard deviation of the drop that the evaluation itself will find, by chance alone.
        samples: Samples measured.
        what: Unit and metric, for sentences.
        source: What the samples are, for sentences.
    """

    value: float
    error: float
    scatter: float
    samples: int
    what: str
    source: str


class Trials(Protocol):
    """What a pass may try on the target before it decides. Candidates are ONNX files; none is kept."""

    @property
    def target(self) -> str:
        """Name of the target that is tried on."""

    def key(self) -> list[Any]:
        """Return what decides the outcome of trials, JSON-ready, for the cache of stages."""

    def profile(self, model: Path) -> list[Profile]:
        """Return where the time goes, a profile a batch size asked for."""

    def speed(self, base: Path, other: Path) -> float:
        """Return how much faster ``other`` is than ``base``: their median times' ratio, side by side, over all batches.

        Above 1 is faster.
        """

    def drop(self, model: Path) -> Drop:
        """Return the drop of the metric on the selection samples.

        Raises:
            UsageError: There are no samples to select by.
        """


@dataclasses.dataclass(frozen=True)
class Context:
    """All that a stage may use besides its input. Nothing is global.

    Attributes:
        target: Where the result will run.
        work: An empty folder of the stage's own; what it leaves there under its final name is kept.
        progress: Where to report.
        verify: Opens the child in a fresh process, runs it at several batch sizes and compares it with its parent.
        calibration: Calibration samples; None where the user gave no data.
        train: Training samples; None where the user gave none.
        threads: Threads a runtime may use.
        seed: Seed for everything random.
        sample: One real preprocessed input (batch of 1 or more) by input name, where there is data.
        trials: Measures candidates on the target; None where nothing can be tried (a stage on its own).
    """

    target: Target
    work: Path
    progress: Progress
    verify: Verifier
    calibration: Dataset | None = None
    train: Dataset | None = None
    threads: int = 1
    seed: int = 0
    sample: Mapping[str, Any] | None = None
    trials: Trials | None = None


@dataclasses.dataclass(frozen=True)
class Produced:
    """What a stage's own method hands back; the base class turns it into an artifact.

    Attributes:
        path: The main file, inside ``context.work``.
        signature: Inputs and outputs read back from the file.
        side_files: Files beside it that belong to it.
        notes: Sentences for the report.
        execution: What the runtime must be told; None: the same as for the parent.
        source: For torch artifacts: how to load it.
        details: What was measured before it was decided; see :class:`compress.artifact.StageRecord`.
    """

    path: Path
    signature: Signature
    side_files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    execution: Mapping[str, str] | None = None
    source: ModelSource | None = None
    details: Mapping[str, Any] | None = None


class Stage(BaseModel, abc.ABC):
    """A pass (same form in and out) or an exporter (from one form to another); its fields are its settings.

    Subclasses set ``kind``, ``consumes``, ``produces`` and implement :meth:`_apply`. The base class makes sure that the
    input has the right form and is untouched afterwards, that the output opens and runs in a fresh process, and records
    what changed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ClassVar[str]
    consumes: ClassVar[Form]
    produces: ClassVar[Form]

    def run(self, artifact: Artifact, context: Context) -> Artifact:
        """Make a new artifact from ``artifact``.

        Raises:
            StageError: The form is wrong, the input was changed, or the output doesn't open, run or hold.
        """
        if artifact.form is not self.consumes:
            raise StageError(f"{self.kind} takes {self.consumes.value} files, not {artifact.form.value}.")
        started = time.perf_counter()
        done = ", ".join(r.stage for r in artifact.lineage) or "nothing"
        try:
            produced = self._apply(artifact, context)
        except CompressError:
            raise
        except Exception as error:
            reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
            raise StageError(f"{self.kind} failed after {done}: {type(error).__name__}: {reason}") from error
        if artifact.form is not Form.TORCH or artifact.path.is_file():
            self._check_untouched(artifact)
        child = Artifact(
            form=self.produces,
            path=produced.path,
            signature=produced.signature,
            sha256=self._digest(produced),
            lineage=artifact.lineage,
            source=produced.source,
            execution=artifact.execution if produced.execution is None else produced.execution,
            side_files=produced.side_files,
        )
        difference = context.verify(child, artifact)
        record = StageRecord(
            stage=self.kind,
            config=self.model_dump(mode="json"),
            seconds=time.perf_counter() - started,
            notes=produced.notes,
            difference=difference,
            details=produced.details,
        )
        return dataclasses.replace(child, lineage=(*artifact.lineage, record))

    def _check_untouched(self, artifact: Artifact) -> None:
        if sha256_of(*artifact.files) != artifact.sha256:
            raise StageError(f"{self.kind} changed its input {artifact.path}; this is a fault of the stage.")

    def _digest(self, produced: Produced) -> str:
        empty = [p for p in (produced.path, *produced.side_files) if not p.is_file() or p.stat().st_size == 0]
        if empty:
            raise StageError(f"{self.kind} left no usable file at {empty[0]}.")
        return sha256_of(produced.path, *produced.side_files)

    @abc.abstractmethod
    def _apply(self, artifact: Artifact, context: Context) -> Produced:
        """Do the work: read ``artifact``, write into ``context.work``, change nothing else."""


class Pass(Stage):
    """A stage that stays in one form."""


class Exporter(Stage):
    """A stage that lowers an artifact from one form to another."""
