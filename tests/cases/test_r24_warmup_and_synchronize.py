"""R24: a first run that is slow, and a device that works on after the call.

Upstream: haofeixu/aanet#22, microsoft/onnxruntime#10608. The clock is moved on by the fake runner itself, so
that what is counted can be told to the millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from compress.artifact import Artifact, Form, Signature, TensorSpec
from compress.data.base import Array
from compress.runners.base import Runner, RunOptions
from compress.runners.timing import Timing
from compress.runners.worker import Session
from evaluators.statistics import latency

SIGNATURE = Signature((TensorSpec("x", "float32", ("batch", 2)),))
ARTIFACT = Artifact(Form.ONNX, Path("fake.onnx"), SIGNATURE, "")
X = {"x": np.zeros((1, 2), np.float32)}


class Device:
    """Takes work at once and is done with it later; the clock moves on when something waits for it."""

    def __init__(self, load: float, first: float, later: float) -> None:
        self.now = 0.0
        self.runs = 0
        self._load, self._first, self._later = load, first, later
        self._queued = 0.0

    def clock(self) -> float:
        return self.now

    def load(self) -> None:
        self.now += self._load

    def launch(self) -> None:
        self._queued += self._later if self.runs else self._first
        self.runs += 1
        self.now += 0.0001

    def synchronize(self) -> None:
        self.now += self._queued
        self._queued = 0.0


class FakeRunner(Runner):
    """Keeps to the contract: what ``bind`` returns comes back when the device has ended."""

    forms: ClassVar[frozenset[Form]] = frozenset({Form.ONNX})

    def __init__(self, device: Device) -> None:
        self.device = device
        super().__init__(ARTIFACT, RunOptions(3))

    def facts(self) -> dict[str, Any]:
        return {"device": "cpu", "threads": 3}

    def _load(self) -> None:
        self.device.load()

    def _signature(self) -> Signature:
        return SIGNATURE

    def _infer(self, inputs: dict[str, Array]) -> dict[str, Array]:
        return inputs

    def _bind(self, inputs: dict[str, Array]) -> Callable[[], None]:
        self.device.synchronize()

        def call() -> None:
            self.device.launch()
            self.device.synchronize()

        return call

    def _close(self) -> None:
        self.device.synchronize()


@pytest.mark.parametrize("first", [1.0, 0.2, 30.0])
@pytest.mark.parametrize("timing", [Timing(), Timing(min_seconds=0, min_runs=20, warmup_runs=1, warmup_seconds=0)])
def test_slow_first_run_and_late_device(first: float, timing: Timing) -> None:
    device = Device(load=4.0, first=first, later=0.005)
    session = Session(device.clock)
    loaded = session.open(lambda: FakeRunner(device), RunOptions(3))
    samples = session.time(X, timing)
    found = latency([samples])
    assert loaded.load_seconds == pytest.approx(4.0)
    assert loaded.facts["threads"] == 3
    assert len(samples) >= 10
    assert found.median == pytest.approx(5.1)
    assert found.p99 == pytest.approx(5.1)


def test_another_call_warms_up_again() -> None:
    device = Device(load=0, first=1.0, later=0.005)
    session = Session(device.clock)
    session.open(lambda: FakeRunner(device), RunOptions(1))
    timing = Timing(min_seconds=0, min_runs=5, warmup_runs=2, warmup_seconds=0)
    session.time(X, timing)
    device.runs = 0
    assert max(session.time(X, timing)) == pytest.approx(5.1)
