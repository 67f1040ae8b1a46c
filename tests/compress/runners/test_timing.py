"""When timing starts and stops, by a clock that the work moves on."""

from __future__ import annotations

import gc

import pytest

from compress.runners.timing import Timing, timed_runs


class Device:
    """Work that takes the time it is told to."""

    def __init__(self, *seconds: float) -> None:
        self.now = 0.0
        self.calls = 0
        self._seconds = seconds

    def clock(self) -> float:
        return self.now

    def run(self) -> None:
        self.now += self._seconds[min(self.calls, len(self._seconds) - 1)]
        self.calls += 1


@pytest.mark.parametrize(
    ("seconds", "timing", "runs"),
    [
        (0.001, Timing(min_seconds=0.3, min_runs=10), 300),
        (0.1, Timing(min_seconds=0.3, min_runs=10), 10),
        (0.5, Timing(min_seconds=0.3, min_runs=10, max_seconds=2.0), 4),
        (60.0, Timing(min_seconds=0.3, min_runs=10, least_runs=3, max_seconds=2.0), 3),
    ],
)
def test_number_of_runs(seconds: float, timing: Timing, runs: int) -> None:
    device = Device(seconds)
    samples = timed_runs(device.run, timing, device.clock)
    assert len(samples) == pytest.approx(runs, abs=1)
    assert samples == pytest.approx([seconds * 1000] * len(samples))


@pytest.mark.parametrize(("seconds", "warm"), [(0.001, 50), (1.0, 3)])
def test_warms_up_by_runs_and_by_time(seconds: float, warm: int) -> None:
    device = Device(seconds)
    samples = timed_runs(device.run, Timing(warmup_runs=3, warmup_seconds=0.05), device.clock)
    assert device.calls - len(samples) == pytest.approx(warm, abs=1)


def test_the_garbage_collector_rests_meanwhile_and_is_back_afterwards() -> None:
    device, seen = Device(0.1), []

    def run() -> None:
        device.run()
        seen.append(gc.isenabled())
        if len(seen) == 6:
            raise MemoryError

    with pytest.raises(MemoryError):
        timed_runs(run, Timing(warmup_runs=3, warmup_seconds=0), device.clock)
    assert seen == [True] * 3 + [False] * 3
    assert gc.isenabled()
