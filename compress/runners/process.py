"""Runs one artifact in a fresh process of its own, so that nothing of one measurement reaches into another."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, cast

import psutil

from compress.artifact import Artifact
from compress.errors import CompressError, StageError
from compress.runners.base import RunOptions
from compress.runners.timing import Timing

if TYPE_CHECKING:
    from compress.data.base import Array
    from compress.results import Profile
    from compress.runners.worker import Loaded

START_TIMEOUT = 900.0
"""Seconds a model may take to load. Generous: it only ends what would hang for ever."""

_BOOT = "import sys; sys.path[:] = sys.argv[2:]; from compress.runners.worker import main; main()"
"""The worker imports from where its parent does: a user's own modules are found, and no file of the working folder
shadows a library. Not multiprocessing's spawn, which runs an unguarded ``__main__`` of the user's again."""


class RunnerProcess:
    """One artifact, loaded in a fresh process. A context manager; the methods block until the process has answered.

    Args:
        artifact: What to load.
        options: How to run it.
        log: File that gets what the process prints; None: a temporary one, quoted where the process dies.
        target: Runs an ONNX file in this target's runtime.
        start_timeout: Seconds that loading may take.

    Attributes:
        facts: What the runtime really uses.
        signature: Inputs and outputs as the runtime reads them.
        load_seconds: Time to load the model.
        memory_weights_mb: Growth of resident memory by loading it, in MB (10^6 bytes).

    Raises:
        CompressError: Whatever the runner raises; it crosses the process boundary as it is.
        StageError: The process was killed, died or didn't load in time.
    """

    def __init__(
        self,
        artifact: Artifact,
        options: RunOptions,
        log: Path | None = None,
        target: str | None = None,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        self.artifact = artifact
        self.options = options
        self._log_path = log
        self._pending = False
        self._paused = False
        self._timed_out = False
        self._log = _open_log(log)
        self._process = _start(self._log)
        self._end = weakref.finalize(self, _kill, self._process)
        self._pid = self._process.pid
        timer = threading.Timer(start_timeout, self._too_slow)
        timer.daemon = True
        timer.start()
        try:
            loaded: Loaded = self._ask("load", artifact=artifact.to_json(), options=options, target=target)
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
        self._pid = loaded.pid
        self.facts = loaded.facts
        self.signature = loaded.signature
        self.load_seconds = loaded.load_seconds
        self.memory_weights_mb = loaded.weights_mb

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on arrays by input name; return arrays by output name."""
        return cast("dict[str, Array]", self._ask("infer", inputs=dict(inputs)))

    def time(self, inputs: Mapping[str, Array], timing: Timing | None = None) -> list[float]:
        """Return the milliseconds of every timed run on ``inputs``, back to back, after a warm-up."""
        return cast("list[float]", self._ask("time", inputs=dict(inputs), timing=timing or Timing()))

    def profile(self, inputs: Mapping[str, Array], runs: int = 10) -> Profile | None:
        """Return where the time of one inference goes, by the runtime's own profiler; None where it has none."""
        return cast("Profile | None", self._ask("profile", inputs=dict(inputs), runs=runs))

    def peak_memory_mb(self, inputs: Mapping[str, Array], runs: int = 3) -> float:
        """Return the most resident memory held during ``runs`` runs, less what was held before loading, in MB."""
        return cast("float", self._ask("peak", inputs=dict(inputs), runs=runs))

    def pause(self) -> None:
        """Stop every thread of the process: an idle session's threads spin, and would spoil a neighbour's time."""
        if self._paused:
            return
        with self._reported("being paused"):
            process = psutil.Process(self._pid)
            process.suspend()
            self._paused = True
            give_up = time.monotonic() + 1
            while os.name == "posix" and process.status() != psutil.STATUS_STOPPED and time.monotonic() < give_up:
                time.sleep(0.001)

    def resume(self) -> None:
        """Let a paused process go on."""
        if not self._paused:
            return
        with self._reported("being resumed"):
            psutil.Process(self._pid).resume()
            self._paused = False

    def close(self) -> None:
        """End the process. May be called twice."""
        if not self._end.alive:
            return
        if not (self._pending or self._paused):
            with contextlib.suppress(OSError):
                cast("IO[bytes]", self._process.stdin).close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        self._end()
        if (
            self._pid != self._process.pid
        ):  # a launcher started the real process, as in a virtual environment on Windows
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(self._pid).kill()
        self._log.close()

    def __enter__(self) -> RunnerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, **arguments: Any) -> Any:
        if self._paused or not self._end.alive:
            raise RuntimeError(f"the process of {self.artifact.path.name} is {'paused' if self._paused else 'closed'}")
        # Stays true where an exception (Ctrl-C) comes between: then nobody knows what the next reply belongs to.
        self._pending = True
        try:
            requests, replies = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
            pickle.dump((method, arguments), requests, protocol=5)
            requests.flush()
            value, error = pickle.load(replies)  # noqa: S301 - from our own worker
        except (EOFError, OSError, pickle.UnpicklingError) as cause:
            raise self._death({"load": "loading", "time": "being timed"}.get(method, "running")) from cause
        self._pending = False
        if isinstance(error, CompressError):
            raise error
        return value

    @contextlib.contextmanager
    def _reported(self, doing: str) -> Iterator[None]:
        try:
            yield
        except psutil.NoSuchProcess as cause:
            raise self._death(doing) from cause

    def _too_slow(self) -> None:
        self._timed_out = True
        self._process.kill()

    def _death(self, doing: str) -> StageError:
        name = self.artifact.path.name or (self.artifact.source.code if self.artifact.source else "the model")
        try:
            code = self._process.wait(10)
        except subprocess.TimeoutExpired:
            code = 0
        where = f"What it printed is in {self._log_path}." if self._log_path else ""
        if self._timed_out:
            return StageError(f"{name} did not load in the time it was given, and was stopped.", where)
        if code == -9:
            return StageError(
                f"The process that runs {name} was killed (signal 9), most likely out of memory, while {doing}.",
                f"Use a smaller batch, or a machine with more memory. {where}".strip(),
            )
        how = f"crashed ({signal.Signals(-code).name})" if code < 0 else f"ended (exit code {code})"
        last = self._last_line()
        said = f", and its last words were: {last}" if last else ""
        return StageError(f"The process that runs {name} {how} while {doing}{said}.", where)

    def _last_line(self) -> str:
        self._log.flush()
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 4000))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _open_log(path: Path | None) -> IO[bytes]:
    if path is None:
        return cast("IO[bytes]", tempfile.TemporaryFile())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab+")
    except OSError as error:
        raise StageError(f"The log file {path} cannot be written: {error.strerror}.") from error


def _start(log: IO[bytes]) -> subprocess.Popen[bytes]:
    main = threading.current_thread() is threading.main_thread()
    return subprocess.Popen(
        [sys.executable, "-c", _BOOT, str(os.getpid() if main else 0), *map(str, sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:backslashreplace"},
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
