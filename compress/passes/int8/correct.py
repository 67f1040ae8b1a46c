"""Trying ranges and corrections on held-out samples, and keeping only what makes the error fall."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

from compress.data.base import Array
from compress.passes.int8.heldout import HeldOut, Split
from compress.passes.int8.network import Network, Settings, chosen_nodes, tensors
from compress.passes.int8.peaks import Channels, observe_channels
from compress.passes.int8.ranges import METHODS, Method
from compress.passes.int8.smooth import SmoothPoint, smooth, smooth_points
from compress.passes.observe import Histogram, observe
from compress.passes.onnx_models import copy_of
from compress.progress import Progress
from compress.results import Correction

Name = Literal["smoothquant", "equalization", "bias", "adaround"]

GAIN = 0.98
"""A correction is kept where it leaves less than this share of the error: less is noise of the held-out samples."""
GAIN_INSERTED = 0.9
"""The same for one that puts operators into the graph, whose time has to be worth it."""
ENOUGH = 1.1
"""Fewer inserted operators are taken where they leave at most this many times the error."""
ALPHAS = (0.3, 0.5, 0.7)
"""Migration strengths tried for SmoothQuant."""


@dataclasses.dataclass
class Workbench:
    """What trying needs; holds the corrections tried so far.

    Attributes:
        settings: How Q/DQ pairs are put in.
        split: Calibration samples.
        held: Judges candidates; None where there were too few samples to hold some out.
        work: Folder for intermediate files.
        threads: Threads for the runtime.
        seed: Seeds learning.
        device: Device to observe on.
        memory_mb: Bound on the activations held at once.
        progress: Where to report.
        tried: What was tried, in order.
    """

    settings: Settings
    split: Split
    held: HeldOut | None
    work: Path
    threads: int
    seed: int
    device: str
    memory_mb: float
    progress: Progress
    tried: list[Correction] = dataclasses.field(default_factory=list)

    @property
    def draft(self) -> Path:
        """The file that candidates are written to."""
        return self.work / "draft.onnx"

    def observed(
        self,
        model: onnx.ModelProto,
        method: Method,
        what: str,
        only: Sequence[str] | None = None,
        known: Mapping[str, Histogram] | None = None,
        *,
        count: bool = True,
    ) -> Network:
        """Return ``model`` with what its activations looked like.

        Args:
            model: The float model.
            method: How ranges are chosen.
            what: For the progress bar.
            only: Activations to look at; None: all that are needed.
            known: What is known of others.
            count: Fill the histograms.
        """
        plan = Network(model, self.settings, {}, method)
        names = only if only is not None else tensors(plan.graph, chosen_nodes(plan.graph, self.settings))
        with self.progress.task(f"int8: {what}", self.split.batches) as advance:
            histograms: dict[str, Histogram] = observe(
                model,
                names,
                self.split.fit,
                work=self.work,
                threads=self.threads,
                advance=advance,
                count=count,
                memory_mb=self.memory_mb,
                device=self.device,
            )
        return dataclasses.replace(plan, histograms={**(known or {}), **histograms})

    def error(self, network: Network, left: Iterable[str] = ()) -> float:
        """Return the held-out error of the network in INT8."""
        if self.held is None:
            raise RuntimeError("no samples were held out")
        network.write(self.draft, frozenset(left))
        return self.held.error(self.draft)

    def note(self, name: str, before: float, after: float, changed: int, least: float = GAIN) -> bool:
        """Record a correction and return whether it is kept: where it leaves less than the share ``least``."""
        kept = after < least * before
        self.tried.append(Correction(name=name, error_before=before, error_after=after, kept=kept, layers=changed))
        self.progress.detail(f"int8: {name}: error {before:.3g} → {after:.3g}{'' if kept else ', not kept'}")
        return kept


def choose_method(bench: Workbench, network: Network) -> Network:
    """Return the network with the ranges that give the least held-out error; all come from the same histograms."""
    found = {m: bench.error(dataclasses.replace(network, method=m)) for m in METHODS}
    best = min(METHODS, key=lambda m: found[m])
    reference = found[network.method]
    for method, error in found.items():
        bench.tried.append(
            Correction(name=f"{method} ranges", error_before=reference, error_after=error, kept=method == best,
                       layers=len(network.layers))
        )  # fmt: skip
    return dataclasses.replace(network, method=best)


def correct_float(bench: Workbench, network: Network, names: Sequence[Name]) -> Network:
    """Return the network with those changes of the float graph that make its INT8 file better.

    Both leave what the float network computes as it is: SmoothQuant and cross-layer equalization.
    """
    error = bench.error(network)
    if "smoothquant" in names:
        network, error = _smooth(bench, network, error)
    if "equalization" in names:
        network, error = _equalize(bench, network, error)
    return network


def correct_rounding(bench: Workbench, network: Network, names: Sequence[Name], left: frozenset[str]) -> Network:
    """Return the network with those corrections of quantized weights that make its INT8 file better.

    Args:
        bench: What trying needs.
        network: The float network.
        names: Corrections to try.
        left: Layers that stay in float anyway.
    """
    error = bench.error(network, left)
    if "adaround" in names:
        network, error = _round(bench, network, error, left)
    if "bias" in names:
        network, error = _shift(bench, network, error, left)
    return network


def _smooth(bench: Workbench, network: Network, error: float) -> tuple[Network, float]:
    """Try SmoothQuant where it costs nothing, then with scales inserted where nothing takes them up."""
    for insert, least in ((False, GAIN), (True, GAIN_INSERTED)):
        points = smooth_points(network.graph, network.layers, insert=insert)
        if not points or (insert and all(not p.inserted for p in points)):
            continue
        peaks = {name: c.peak for name, c in _channels(bench, network, {p.tensor: -1 for p in points}).items()}
        alpha, best = min(
            ((a, _smoothed(bench, network, points, peaks, a)) for a in ALPHAS), key=lambda found: found[1].error
        )
        if insert:
            # The activations with the worst outliers gain most; the rest may not be worth an operator each.
            points = sorted(points, key=lambda p: -_outliers(peaks.get(p.tensor)))
            for share in (4, 2):
                fewer = _smoothed(bench, network, points[: -(-len(points) // share)], peaks, alpha)
                if fewer.error <= ENOUGH * best.error:
                    best = fewer
                    break
        where = ", scales inserted" if insert else ""
        if best.layers and bench.note(f"SmoothQuant (α {alpha}{where})", error, best.error, best.layers, least):
            network, error = best.network, best.error
    return network, error


@dataclasses.dataclass(frozen=True)
class _Smoothed:
    network: Network
    error: float
    layers: int


def _smoothed(
    bench: Workbench, network: Network, points: Sequence[SmoothPoint], peaks: Mapping[str, Array], alpha: float
) -> _Smoothed:
    model = copy_of(network.model)
    changed = smooth(model, points, peaks, alpha)
    layers = set(changed)
    fresh = [n.input[0] for n in model.graph.node if n.name in layers]
    candidate = bench.observed(model, network.method, f"SmoothQuant, α {alpha}", fresh, network.histograms)
    return _Smoothed(candidate, bench.error(candidate), len(changed))


def _outliers(peak: Array | None) -> float:
    """Return how far the largest channel stands out."""
    if peak is None:
        return 0.0
    return float(peak.max() / max(float(np.median(peak)), 1e-12))


def _equalize(bench: Workbench, network: Network, error: float) -> tuple[Network, float]:
    from compress.passes.int8.equalize import equalize

    model = copy_of(network.model)
    changed = equalize(model)
    if not changed:
        return network, error
    candidate = bench.observed(model, network.method, "cross-layer equalization")
    found = bench.error(candidate)
    kept = bench.note("cross-layer equalization", error, found, len(changed))
    return (candidate, found) if kept else (network, error)


def _round(bench: Workbench, network: Network, error: float, left: frozenset[str]) -> tuple[Network, float]:
    from compress.passes.int8.adaround import learn_rounding

    network.write(bench.draft, left)
    learnt = [n for n in network.layers if n not in left]
    with bench.progress.task("int8: AdaRound", len(learnt)) as advance:
        rounding = learn_rounding(
            network.model,
            bench.draft,
            learnt,
            bench.split.fit,
            work=bench.work,
            threads=bench.threads,
            seed=bench.seed,
            advance=advance,
        )
    if not rounding:
        return network, error
    candidate = dataclasses.replace(network, rounding=rounding)
    found = bench.error(candidate, left)
    return (candidate, found) if bench.note("AdaRound", error, found, len(rounding)) else (network, error)


def _shift(bench: Workbench, network: Network, error: float, left: frozenset[str]) -> tuple[Network, float]:
    from compress.passes.int8.bias import add_biases, bias_shifts

    network.write(bench.draft, left)
    axes = {
        name: 1 if node.op_type in ("Conv", "ConvTranspose") else -1
        for node in network.graph.nodes
        if node.name in set(network.layers) - left
        for name in network.graph.activations(node)[:1]
    }
    means = {name: c.mean for name, c in _channels(bench, network, axes).items()}
    shifts = bias_shifts(network.model, bench.draft, [n for n in network.layers if n not in left], means)
    model = copy_of(network.model)
    changed = add_biases(model, shifts)
    if not changed:
        return network, error
    candidate = dataclasses.replace(network, model=model)
    found = bench.error(candidate, left)
    return (candidate, found) if bench.note("bias correction", error, found, changed) else (network, error)


def _channels(bench: Workbench, network: Network, axes: Mapping[str, int]) -> dict[str, Channels]:
    return observe_channels(
        network.model,
        list(axes),
        bench.split.fit,
        axis=axes,
        work=bench.work,
        threads=bench.threads,
        memory_mb=bench.memory_mb,
    )
