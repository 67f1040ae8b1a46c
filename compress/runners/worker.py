"""The process that holds one artifact and answers requests about it: the far end of :mod:`compress.runners.process`.

Requests come through the standard input and replies go through the standard output, pickled, one by one. Whatever else
is printed goes to the standard error, which is the log file. The process ends when its input closes.
"""

from __future__ import annotations

import ctypes
import dataclasses
import faulthandler
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compress.artifact import Signature
    from compress.data.base import Array
    from compress.errors import CompressError
    from compress.results import Profile
    from compress.runners.base import Runner, RunOptions
    from compress.runners.timing import Timing


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What a worker says once it has loaded its artifact.

    Attributes:
        pid: The process that does the work.
        facts: The runner's facts.
        signature: The runner's signature.
        load_seconds: Time to load the model, without importing and starting the runtime.
        weights_mb: Growth of resident memory by loading the model, in MB (10^6 bytes).
    """

    pid: int
    facts: dict[str, Any]
    signature: Signature
    load_seconds: float
    weights_mb: float


class Session:
    """One artifact, loaded, and what can be asked of it.

    Args:
        clock: Seconds from an arbitrary start.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._runner: Runner | None = None
        self._before_mb = 0.0

    def load(self, artifact: Mapping[str, Any], options: RunOptions, target: str | None) -> Loaded:
        """Load an artifact (in its JSON form).

        Raises:
            UsageError: The runtime isn't installed, or the device really used isn't the one asked for.
            ModelError: The file is damaged, or the runtime refuses it.
        """
        from compress.artifact import Artifact
        from compress.runners.table import runner_class, runtime_of

        wanted = Artifact.from_json(artifact)
        opener = runner_class(wanted.form, target)
        runtime_of(wanted.form, target).warm(options.threads)
        return self.open(lambda: opener(wanted, options), options)

    def open(self, opener: Callable[[], Runner], options: RunOptions) -> Loaded:
        """Load with ``opener``, and measure what that takes. Raises as :meth:`load`."""
        from compress.runners.resident import resident_mb

        self._before_mb = resident_mb()
        started = self._clock()
        self._runner = opener()
        seconds = self._clock() - started
        facts = self._runner.facts()
        check_device(options.device, facts, self._runner.artifact.path.name)
        weights = max(0.0, resident_mb() - self._before_mb)
        return Loaded(os.getpid(), facts, self._runner.signature, seconds, weights)

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once."""
        return self.runner.infer(inputs)

    def time(self, inputs: Mapping[str, Array], timing: Timing) -> list[float]:
        """Return the milliseconds of every timed run on ``inputs``."""
        from compress.runners.timing import timed_runs

        return timed_runs(self.runner.bind(inputs), timing, self._clock)

    def profile(self, inputs: Mapping[str, Array], runs: int) -> Profile | None:
        """Return where the time of one inference goes; None where the runtime has no profiler."""
        return self.runner.profile(inputs, runs)

    def peak(self, inputs: Mapping[str, Array], runs: int) -> float:
        """Return the most memory held while running, less what was held before the model was loaded, in MB."""
        from compress.runners.resident import highest_mb, resident_mb

        call = self.runner.bind(inputs)
        resident_mb()  # gives back what binding needed, such as compiling for these shapes

        def work() -> None:
            for _ in range(runs):
                call()

        return max(0.0, highest_mb(work) - self._before_mb)

    def close(self) -> None:
        """Free the runtime's resources."""
        if self._runner is not None:
            self._runner.close()

    @property
    def runner(self) -> Runner:
        """The loaded runner."""
        if self._runner is None:
            raise RuntimeError("nothing is loaded yet")
        return self._runner


def check_device(asked: str, facts: Mapping[str, Any], name: str) -> None:
    """Compare the device asked for with the one the runtime says it uses.

    Raises:
        UsageError: They differ, or the runtime doesn't say.
    """
    from compress.errors import UsageError

    used = str(facts.get("device", "")).lower()
    kind = "cuda" if any(word in used for word in ("cuda", "gpu")) else "cpu" if "cpu" in used else used
    if kind != asked.lower().partition(":")[0]:
        providers = facts.get("providers")
        detail = f" (providers: {', '.join(map(str, providers))})" if isinstance(providers, (list, tuple)) else ""
        raise UsageError(
            f"{asked} was asked for, but {name} runs on {used or 'a device that its runtime does not name'}{detail}.",
            "Nothing was measured, since it would carry the wrong label; check the driver and the runtime's build.",
        )


def serve(session: Session, requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until they end.

    A request is ``(method, arguments)``; a reply is ``(value, None)`` or ``(None, error)``. Every error crosses as a
    :class:`~compress.errors.CompressError`, since the parent may not know the classes of a runtime's own.
    """
    methods: dict[str, Callable[..., Any]] = {
        "load": session.load,
        "infer": session.infer,
        "time": session.time,
        "profile": session.profile,
        "peak": session.peak,
    }
    while True:
        try:
            method, arguments = pickle.load(requests)  # noqa: S301 - from our own parent
        except EOFError:
            return
        reply: tuple[Any, CompressError | None]
        try:
            reply = (methods[method](**arguments), None)
        except Exception as error:  # noqa: BLE001 - a process boundary: every error has to cross it
            traceback.print_exc()
            reply = (None, _as_ours(error, method))
        try:
            pickle.dump(reply, replies, protocol=5)
            replies.flush()
        except BrokenPipeError:
            return


def _as_ours(error: Exception, method: str) -> CompressError:
    from compress.errors import CompressError, StageError

    if isinstance(error, CompressError):
        return error
    doing = {"load": "loading the model", "infer": "running", "time": "being timed"}.get(method, "running")
    if isinstance(error, MemoryError):
        return StageError(f"Memory ran out while {doing}.", "Use a smaller batch, or a machine with more memory.")
    reason = next(iter(str(error).strip().splitlines()), "no reason given")
    return StageError(f"The runtime failed while {doing}: {type(error).__name__}: {reason}")


def _die_with_parent(parent: int) -> None:
    """Have Linux kill this process when ``parent`` ends, even while this one is paused and sees nothing.

    The signal follows the thread that started us, so the parent passes 0 unless that was its main thread; then, and on
    other systems, this process ends when it next waits for a request.
    """
    if sys.platform == "linux" and parent:
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG, prctl(2)
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)


def main() -> None:
    """Serve the parent whose process id is the first argument (0: don't tie this process to it)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent closes us
    _die_with_parent(int(sys.argv[1]))
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    faulthandler.enable()
    session = Session()
    try:
        serve(session, requests, replies)
    finally:
        session.close()
