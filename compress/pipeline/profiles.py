"""Where the time of one inference goes, for every artifact whose runtime can say so."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from compress.errors import CompressError
from compress.pipeline.environment import versions
from compress.pipeline.samples import TimingInputs
from compress.progress import Progress
from compress.results import Profile
from compress.runners.base import RunOptions
from compress.runners.process import RunnerProcess
from compress.store import RunFolder
from evaluators.harness import Subject

RUNS = 20
NO_PROFILER = "its runtime has no profiler that is used here"


@dataclasses.dataclass(frozen=True)
class Profiled:
    """What profiling gave.

    Attributes:
        found: The profile; None where there is none.
        reason: Why there is none; empty where there is one.
    """

    found: Profile | None
    reason: str = ""


def profile_all(
    subjects: Sequence[Subject],
    inputs: TimingInputs,
    batch: int,
    options: RunOptions,
    store: RunFolder,
    progress: Progress,
) -> dict[str, Profiled]:
    """Return a profile by name, at one batch size; kept in the run folder.

    Args:
        subjects: What to profile.
        inputs: What to run on.
        batch: Samples an inference.
        options: Threads and device.
        store: The run folder.
        progress: Where to report.
    """

    def compute() -> dict[str, Any]:
        found = {}
        with progress.task("Profiling", len(subjects)) as advance:
            for subject in subjects:
                found[subject.name] = _profile(subject, inputs, batch, options, store)
                advance(1)
        return found

    key = {
        "step": "profile",
        "subjects": [(s.name, s.artifact.sha256, dict(s.artifact.execution)) for s in subjects],
        "batch": batch,
        "options": dataclasses.asdict(options),
        "versions": versions(),
    }
    return {name: _restored(plain) for name, plain in store.step(key, compute)[0].items()}


def _profile(
    subject: Subject, inputs: TimingInputs, batch: int, options: RunOptions, store: RunFolder
) -> dict[str, Any]:
    log = store.path / "logs" / f"profile-{subject.name}.txt"
    try:
        with RunnerProcess(subject.artifact, options, log) as process:
            found = process.profile(inputs(process.signature, batch), RUNS)
    except CompressError as error:  # the figures don't depend on it
        return {"profile": None, "reason": str(error)}
    return {"profile": found.model_dump() if found else None, "reason": "" if found else NO_PROFILER}


def _restored(plain: Mapping[str, Any]) -> Profiled:
    return Profiled(Profile.model_validate(plain["profile"]) if plain["profile"] else None, plain["reason"])
