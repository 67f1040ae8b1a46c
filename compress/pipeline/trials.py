"""Trying candidates on the target before a pass decides: profile, speed, and the drop on selection samples."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from compress.artifact import Artifact, Difference, Form, sha256_of
from compress.data.base import Array
from compress.errors import StageError, UsageError
from compress.pipeline.inputs import Selected
from compress.pipeline.plan import exporters_for
from compress.pipeline.samples import TimingInputs
from compress.progress import Quiet
from compress.recipe import Recipe
from compress.results import Profile
from compress.runners.base import RunOptions
from compress.runners.onnx_file import read_proto, read_signature
from compress.runners.process import RunnerProcess
from compress.runners.profile import renamed
from compress.runners.timing import Timing
from compress.stage import Context, Drop
from evaluators.accuracy import evaluate, metric_result
from evaluators.expected import expected_drop
from evaluators.fidelity import Reference
from evaluators.harness import Subject, measure
from evaluators.metrics import Metric, Scores

ROUNDS = 6
TIMING = Timing(min_seconds=0.15, min_runs=5, max_seconds=1.0)
PROFILED = 10
"""Inferences behind each profile."""


class TargetTrials:
    """Tries ONNX candidates on the target of a run.

    Args:
        context: The run's; its target says where.
        recipe: Settings of exporters.
        options: Threads and device.
        batches: Batch sizes to measure.
        inputs: What is timed on.
        selection: What drops are measured on; None where there is nothing.
        metric: What to score.
        baseline: The model that was handed over.
        judged_on: Samples that the run evaluates on; None where it doesn't.
    """

    def __init__(
        self,
        context: Context,
        recipe: Recipe,
        options: RunOptions,
        batches: tuple[int, ...],
        inputs: TimingInputs,
        selection: Selected | None,
        metric: Metric | None,
        baseline: Artifact,
        judged_on: int | None,
    ) -> None:
        self._context = context
        self._recipe = recipe
        self._options = options
        self._batches = batches
        self._inputs = inputs
        self._selection = selection
        self._metric = metric if selection is not None and selection.labelled else None
        self._baseline = baseline
        self._judged_on = judged_on
        self._scores: Scores | None = None
        self._outputs: Array | None = None

    @property
    def target(self) -> str:
        """Name of the target."""
        return self._context.target.name

    def key(self) -> list[Any]:
        """Return what decides the outcome of trials, JSON-ready, for the cache."""
        chosen = self._selection
        data = [chosen.dataset.fingerprint(), chosen.labelled] if chosen is not None else None
        metric = self._metric.name if self._metric is not None else None
        return [
            data,
            metric,
            self._judged_on,
            list(self._batches),
            dataclasses.asdict(self._options),
            self._baseline.sha256,
        ]

    def profile(self, model: Path) -> list[Profile]:
        """Return a profile a batch size; none where the target has no profiler."""
        with self._lowered(model) as artifact, RunnerProcess(artifact, self._options, self._log) as process:
            found = [process.profile(self._inputs(process.signature, batch), PROFILED) for batch in self._batches]
        names = _makers(model)
        return [renamed(profile, names) for profile in found if profile is not None]

    def speed(self, base: Path, other: Path) -> float:
        """Return the geometric mean over batch sizes of how much faster ``other`` is."""
        with self._lowered(base) as first, self._lowered(other) as second:
            found = measure(
                [Subject("base", first), Subject("other", second)],
                self._batches,
                ROUNDS,
                self._options,
                self._inputs,
                Quiet(),
                self._context.seed,
                timing=TIMING,
            )
        failed = next((t.failure for t in found.values() if t.failure), None)
        if failed:
            raise StageError(f"A candidate could not be timed on {self.target}: {failed}")
        ratios = []
        for batch in self._batches:
            ours, theirs = found["other"].rounds[batch], found["base"].rounds[batch]
            # The fastest round of each: what else the machine does only ever adds time.
            ratios.append(np.log(min(map(np.median, theirs)) / min(map(np.median, ours))))
        return float(np.exp(np.mean(ratios)))

    def drop(self, model: Path) -> Drop:
        """Return the drop on the selection samples."""
        if self._selection is None:
            raise UsageError(
                "There are no samples to choose layers by besides those that are evaluated on.",
                "Give --calibration or --train.",
            )
        with self._lowered(model) as artifact:
            by_labels = self._metric is not None and self._metric.name != "top1"
            return self._scored(artifact) if by_labels else self._expected(artifact)

    def _scored(self, artifact: Artifact) -> Drop:
        if self._scores is None:
            self._scores = self._run(self._baseline, "selection: baseline")
        scores = self._run(artifact, "selection: candidate")
        if scores is None or self._scores is None:
            raise RuntimeError("nothing was scored")
        found = metric_result(scores, self._scores, self._context.seed)
        width = 0.0
        if found.drop_low is not None and found.drop_high is not None:
            width = (found.drop_high - found.drop_low) / (2 * 1.96)
        unit = "points" if found.unit in ("%", "points") else found.unit
        scatter = width * float(np.sqrt(found.samples / max(1, self._judged_on or found.samples)))
        return Drop(found.drop or 0.0, width, scatter, found.samples, f"{unit} of {found.name}", self._what)

    def _expected(self, artifact: Artifact) -> Drop:
        """Return the drop by the float model's own probabilities: labels would say the same with more noise."""
        if self._outputs is None:
            self._outputs = self._classes(self._baseline)
        found = expected_drop(self._outputs, self._classes(artifact))
        samples = len(self._outputs)
        scatter = found.scatter / float(np.sqrt(self._judged_on or samples))
        return Drop(found.points, found.error, scatter, samples, "points of top1 (expected)", self._what)

    def _classes(self, artifact: Artifact) -> Array:
        reference = Reference()
        self._run(artifact, "selection", observer=reference)
        outputs = [next(iter(b.values())) for b in reference.batches]
        if any(o.ndim != 2 or o.shape[1] < 2 for o in outputs):
            raise UsageError(
                "Without labelled calibration data max_drop can be searched for in classifiers only.",
                "Give --calibration or --train with labels.",
            )
        return np.concatenate(outputs)

    def _run(self, artifact: Artifact, title: str, observer: Any = None) -> Scores | None:
        if self._selection is None:
            raise RuntimeError("no selection samples")
        with RunnerProcess(artifact, self._options, self._log) as process:
            return evaluate(
                process,
                self._selection.dataset,
                None if observer is not None else self._metric,
                self._context.progress,
                observer=observer,
                title=title,
            )

    @property
    def _what(self) -> str:
        return self._selection.what if self._selection is not None else ""

    @property
    def _log(self) -> Path:
        return self._context.work / "trials.log"

    @contextmanager
    def _lowered(self, model: Path) -> Iterator[Artifact]:
        """Yield the candidate as the target runs it, in a temporary folder."""
        artifact = Artifact(Form.ONNX, model, read_signature(model), sha256_of(model))
        with tempfile.TemporaryDirectory(prefix="trial-", dir=self._context.work) as folder:
            for exporter in exporters_for(self._recipe, Form.ONNX, self._context.target.form):
                work = Path(folder)
                quiet = dataclasses.replace(self._context, work=work, verify=_unverified, progress=Quiet())
                artifact = exporter.run(artifact, quiet)
            yield artifact


def _makers(model: Path) -> dict[str, str]:
    """Return the node that makes each of a file's outputs: OpenVINO calls such nodes by what they make."""
    graph = read_proto(model).graph
    outputs = {o.name for o in graph.output}
    return {name: node.name for node in graph.node for name in node.output if name in outputs}


def _unverified(child: Artifact, parent: Artifact) -> Difference:
    """Stand in for the check that files which are kept go through: a candidate is measured at once, and thrown away."""
    return Difference(200.0, 1.0, 0.0, None, 0)
