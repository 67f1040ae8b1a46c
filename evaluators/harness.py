"""Times models side by side: each in a process of its own, in turn, one at a time, round after round."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compress.artifact import Artifact, Signature
from compress.data.base import Array
from compress.errors import CompressError, StageError
from compress.progress import Progress
from compress.results import Memory
from compress.runners.base import RunOptions
from compress.runners.batching import fixed_batch
from compress.runners.process import RunnerProcess
from compress.runners.timing import Timing
from evaluators.memory import available_mb, measure_memory, needed_mb

MakeInputs = Callable[[Signature, int], Mapping[str, Array]]

_FIRST_RUNS = Timing(min_seconds=0, min_runs=1, least_runs=1, warmup_runs=2, warmup_seconds=0)
"""Runs every batch size before the first round: runtimes compile for the shapes they meet."""

_SHARE = 0.8
"""Share of the free memory that models kept loaded may take."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model to measure.

    Attributes:
        name: Its name in the results.
        artifact: The file.
        target: Runs an ONNX file in this target's runtime.
    """

    name: str
    artifact: Artifact
    target: str | None = None


@dataclasses.dataclass(frozen=True)
class Timings:
    """What was measured of one subject.

    Attributes:
        name: The subject's name.
        rounds: Batch size → round → milliseconds of every timed run. Round i of all subjects was taken side by side.
            Empty where ``failure`` is set.
        load_seconds: Time to load the model; None where it didn't.
        facts: What the runtime really used.
        memory: File, weights and peak (at the first batch size measured); None where it failed.
        failure: Why nothing was measured; None where something was.
        skipped: Batch size → why it wasn't measured.
    """

    name: str
    rounds: Mapping[int, tuple[tuple[float, ...], ...]]
    load_seconds: float | None
    facts: Mapping[str, Any]
    memory: Memory | None
    failure: str | None = None
    skipped: Mapping[int, str] = dataclasses.field(default_factory=dict)


def measure(
    subjects: Sequence[Subject],
    batches: Sequence[int],
    rounds: int,
    options: RunOptions,
    make_inputs: MakeInputs,
    progress: Progress,
    seed: int,
    *,
    timing: Timing | None = None,
    logs: Path | None = None,
    keep_loaded: bool | None = None,
) -> dict[str, Timings]:
    """Time all subjects side by side, the baseline among them.

    Every subject is loaded in a fresh process, its memory measured, warmed up, and paused. In each round the subjects
    take their turns, each resumed, warmed up again, timed, and paused, so that what the machine does meanwhile hits all
    of them alike and none runs while another is timed. Over the rounds each follows each other about equally often.

    Args:
        subjects: What to measure.
        batches: Batch sizes; memory is measured at the first one that fits.
        rounds: Rounds.
        options: Threads and device, the same for all.
        make_inputs: Makes inputs for a signature and a batch size.
        progress: Gets a task with a step a turn.
        seed: Decides the order of turns.
        timing: How long to time.
        logs: Folder for what the processes print.
        keep_loaded: Whether all stay loaded, paused; None: where memory allows it. Else each is loaded afresh for every
            turn, which is said.

    Returns:
        Timings by name, in the order of ``subjects``. A subject that fails has its reason there; the others go on.
    """
    timing = timing or Timing()
    if keep_loaded is None:
        keep_loaded = _all_fit(subjects, progress)
    lanes = [_Lane(s, tuple(batches), options, make_inputs, timing, logs) for s in subjects]
    with contextlib.ExitStack() as stack:
        for lane in lanes:
            stack.callback(lane.close)
        with progress.task("Measuring speed", (rounds + 1) * len(lanes)) as advance:
            for lane in lanes:
                lane.prepare(stay=keep_loaded)
                advance(1)
            for order in turns(len(lanes), rounds, seed):
                for index in order:
                    lanes[index].take_turn(stay=keep_loaded)
                    advance(1)
    for lane in lanes:
        if lane.failure:
            progress.warn(f"{lane.subject.name} could not be measured: {lane.failure}")
    return {lane.subject.name: lane.timings() for lane in lanes}


def turns(subjects: int, rounds: int, seed: int) -> list[tuple[int, ...]]:
    """Return the order of turns in each round.

    A Williams design: rows of a Latin square in which, over all rows, each subject is in each place equally often and
    follows each other one equally often (Williams, "Experimental designs balanced for the estimation of residual
    effects of treatments", 1949). The seed decides who is who and the order of rows.
    """
    if subjects == 0:
        return [()] * rounds
    zigzag = [0]
    for step in range(1, subjects):
        zigzag.append((zigzag[-1] + (step if step % 2 else -step)) % subjects)
    rows = [[(place + shift) % subjects for place in zigzag] for shift in range(subjects)]
    if subjects % 2:
        rows += [row[::-1] for row in rows]
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    who = list(range(subjects))
    chance.shuffle(who)
    chance.shuffle(rows)
    return [tuple(who[place] for place in rows[i % len(rows)]) for i in range(rounds)]


def _all_fit(subjects: Sequence[Subject], progress: Progress) -> bool:
    needed, free = sum(needed_mb(s.artifact) for s in subjects), available_mb()
    if needed <= _SHARE * free:
        return True
    progress.line(
        f"All {len(subjects)} models together may need {needed / 1000:.1f} GB and {free / 1000:.1f} GB are free, so "
        "each is loaded afresh for every turn; measuring takes longer."
    )
    return False


class _Lane:
    """One subject through all rounds. After a failure it takes no more turns."""

    def __init__(
        self,
        subject: Subject,
        batches: tuple[int, ...],
        options: RunOptions,
        make_inputs: MakeInputs,
        timing: Timing,
        logs: Path | None,
    ) -> None:
        self.subject = subject
        self.failure: str | None = None
        self._asked = batches
        self._options = options
        self._make_inputs = make_inputs
        self._timing = timing
        self._log = logs / f"{subject.name}.log" if logs is not None else None
        self._process: RunnerProcess | None = None
        self._rounds: dict[int, list[tuple[float, ...]]] = {}
        self._skipped: dict[int, str] = {}
        self._load_seconds: float | None = None
        self._facts: Mapping[str, Any] = {}
        self._memory: Memory | None = None

    def prepare(self, *, stay: bool) -> None:
        """Load for the first time, measure memory, and warm up by running every batch size once."""
        with self._failing():
            process = self._open()
            self._load_seconds, self._facts = process.load_seconds, process.facts
            self._choose_batches(process.signature)
            for number, batch in enumerate(self._rounds):
                inputs = self._make_inputs(process.signature, batch)
                if number == 0:
                    self._memory = measure_memory(process, inputs)
                process.time(inputs, _FIRST_RUNS)
            self._rest(stay=stay)

    def take_turn(self, *, stay: bool) -> None:
        """Time every batch size once; nothing after a failure."""
        if self.failure is not None:
            return
        with self._failing():
            process = self._open()
            for batch, samples in self._rounds.items():
                samples.append(tuple(process.time(self._make_inputs(process.signature, batch), self._timing)))
            self._rest(stay=stay)

    def timings(self) -> Timings:
        """Return what was measured."""
        failed = self.failure is not None
        return Timings(
            name=self.subject.name,
            rounds={} if failed else {batch: tuple(samples) for batch, samples in self._rounds.items()},
            load_seconds=self._load_seconds,
            facts=self._facts,
            memory=None if failed else self._memory,
            failure=self.failure,
            skipped=self._skipped,
        )

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _open(self) -> RunnerProcess:
        if self._process is None:
            self._process = RunnerProcess(self.subject.artifact, self._options, self._log, self.subject.target)
        self._process.resume()
        return self._process

    def _rest(self, *, stay: bool) -> None:
        if stay and self._process is not None:
            self._process.pause()
        else:
            self.close()

    def _choose_batches(self, signature: Signature) -> None:
        fixed = fixed_batch(signature)
        for batch in self._asked:
            if fixed in (None, batch):
                self._rounds[batch] = []
            else:
                self._skipped[batch] = f"the file fixes the batch size at {fixed}"
        if not self._rounds:
            raise StageError(
                f"The file fixes the batch size at {fixed}, and only {', '.join(map(str, self._asked))} was asked for.",
                f"Ask for {fixed} too.",
            )

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Note a failure of the body's and end the process, so that the other subjects can go on."""
        try:
            yield
        except CompressError as error:
            self.failure = str(error)
            self.close()
