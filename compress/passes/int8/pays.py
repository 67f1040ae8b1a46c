"""Which layers INT8 slows down on the target: found in the target's own per-operator profile, proved by its clock."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from compress.progress import Progress
from compress.results import Profile
from compress.stage import Trials

STEPS = 5
"""Sets of layers that are tried at most."""
WORTH = 1.02
"""How much faster a file must be to count as faster."""


@dataclasses.dataclass(frozen=True)
class Paying:
    """What was left in float for time.

    Attributes:
        left: Layer → why.
        note: What came of it, for the report.
    """

    left: Mapping[str, str]
    note: str


def leave_slow(
    layers: Sequence[str],
    plain: Path,
    write: Callable[[Path, Collection[str]], object],
    trials: Trials,
    work: Path,
    progress: Progress,
) -> Paying:
    """Find the layers to leave in float because Q/DQ costs more there than INT8 saves.

    Each step profiles the best file so far beside the float one, and puts into float the layers that became slower,
    the conversions next to them included. A step counts only where the whole file became faster, paired in one run,
    over all batch sizes; so a profile that misleads costs a trial and nothing else.

    Args:
        layers: Layers that may be quantized.
        plain: The float file, with the same node names.
        write: Writes the Q/DQ file with the given layers in float.
        trials: Measures on the target.
        work: Folder for files.
        progress: Where to report.
    """
    before = trials.profile(plain)
    best_path, other = work / "timed-0.onnx", work / "timed-1.onnx"
    best: dict[str, str] = {}
    write(best_path, best)
    refused: set[frozenset[str]] = set()
    with progress.task("int8: looking for layers that INT8 slows down", STEPS) as advance:
        for _ in range(STEPS):
            gains = layer_gains(layers, before, trials.profile(best_path))
            advance(1)
            for wanted in _wanted(gains, best):
                if not wanted or frozenset(wanted) in refused or len(best) + len(wanted) >= len(layers):
                    continue
                write(other, {**best, **wanted})
                ratio = trials.speed(best_path, other)
                progress.detail(f"int8: {len(best) + len(wanted)} layers in float: {ratio:.3f}× the speed")
                if ratio >= WORTH:
                    best |= wanted
                    best_path, other = other, best_path
                    break
                refused.add(frozenset(wanted))
            else:
                break
    ratio = trials.speed(plain, best_path)
    note = f"{ratio:.2f}× the float file's speed in a short trial on {trials.target}"
    if best:
        note += f", {len(best)} of {len(layers)} layers left in float since they were slower in INT8"
    return Paying(best, note + ".")


def layer_gains(
    layers: Sequence[str], before: Sequence[Profile], after: Sequence[Profile]
) -> dict[str, tuple[float, str]]:
    """Return, for each layer, the share of the float file's time that INT8 saves there, and how that comes about.

    Conversions count with the layers next to them, in equal parts, and so does what was fused of several layers;
    whatever else went into an operator, as a Relu or a Q/DQ pair, has no part in it, since the two files differ in
    that. Several profiles (batch sizes) are averaged.

    Args:
        layers: Names of layers.
        before: Profiles of the float file.
        after: Profiles of the INT8 file at the same batch sizes.
    """
    gains: defaultdict[str, float] = defaultdict(float)
    reasons: dict[str, str] = {}
    for old, new in zip(before, after, strict=True):
        was, now, moved = _times(old, layers)[0], *_times(new, layers)
        total = max(old.total_ms, 1e-9)
        for name in layers:
            if name not in was or name not in now:
                continue
            gains[name] += (was[name] - now[name] - moved.get(name, 0.0)) / total / len(before)
            reasons[name] = (
                f"slower in INT8: {was[name]:.3f} ms in float, {now[name]:.3f} ms and {moved.get(name, 0.0):.3f} ms of "
                f"conversions in INT8 (batch {old.batch})"
            )
    return {name: (gain, reasons[name]) for name, gain in gains.items()}


def _times(profile: Profile, layers: Collection[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Return milliseconds of work and of conversions by layer."""
    wanted = set(layers)
    work: defaultdict[str, float] = defaultdict(float)
    moved: defaultdict[str, float] = defaultdict(float)
    for op in profile.ops:
        parts = [layer for layer in op.layers if layer in wanted]
        for layer in parts:
            (moved if op.kind == "conversion" else work)[layer] += op.ms / len(parts)
    return work, moved


def _wanted(gains: Mapping[str, tuple[float, str]], have: Collection[str]) -> list[dict[str, str]]:
    """Return sets of layers to try: all that lost, then only those that lost most of it."""
    losing = sorted((gain, name) for name, (gain, _) in gains.items() if gain < 0 and name not in have)
    if not losing:
        return []
    lost = sum(gain for gain, _ in losing)
    most, so_far = [], 0.0
    for gain, name in losing:
        most.append(name)
        so_far += gain
        if so_far <= 0.8 * lost:
            break
    sets = [[name for _, name in losing], most]
    return [{name: gains[name][1] for name in names} for names in sets]
