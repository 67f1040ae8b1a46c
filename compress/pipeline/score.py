"""Accuracy and fidelity of every artifact, cached in the run folder."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compress.artifact import Artifact
from compress.data.base import Array, Dataset
from compress.errors import ModelError, StageError
from compress.progress import Progress
from compress.results import Fidelity
from compress.results import Metric as MetricResult
from compress.runners.base import RunOptions
from compress.runners.process import RunnerProcess
from compress.store import RunFolder
from evaluators.accuracy import evaluate, metric_result
from evaluators.fidelity import Comparison, Reference
from evaluators.metrics import Metric, SampleMetric, Scores

COMPARED = 512
"""Samples that outputs are compared on where nothing is scored."""

CONSTANT = (
    "The baseline gives the same output for every sample, so how close a variant comes to it says nothing "
    "(untrained weights, or inputs that don't reach the output?)."
)


@dataclasses.dataclass(frozen=True)
class Scored:
    """What running the evaluation data through one artifact gave.

    Attributes:
        metric: Its score; None without labels.
        fidelity: Closeness to the baseline; None for the baseline itself.
    """

    metric: MetricResult | None
    fidelity: Fidelity | None


class Scorer:
    """Scores artifacts against one baseline, which comes first.

    Args:
        store: The run folder, whose cache is used.
        dataset: Evaluation data, or random probes.
        metric: What to score; None: compare outputs only.
        options: How to run.
        progress: Where to report.
        seed: Seeds the bootstrap.

    Attributes:
        notes: What the user should know of the baseline's outputs.
    """

    def __init__(
        self,
        store: RunFolder,
        dataset: Dataset,
        metric: Metric | None,
        options: RunOptions,
        progress: Progress,
        seed: int,
    ) -> None:
        self._store = store
        self._dataset = dataset
        self._metric = metric
        self._options = options
        self._progress = progress
        self._seed = seed
        self._limit = None if metric is not None else COMPARED
        self.notes: tuple[str, ...] = ()
        self._baseline: Artifact | None = None
        self._scores: Scores | None = None
        self._reference: Reference | None = None

    def baseline(self, artifact: Artifact) -> Scored:
        """Score the baseline.

        Raises:
            CompressError: It doesn't run, or makes NaN or infinity.
        """
        self._baseline = artifact

        def compute() -> dict[str, Any]:
            self._reference = Reference()
            try:
                scores = self._run(artifact, self._reference, self._limit, "baseline")
            except StageError as error:
                raise ModelError(f"The model as it was handed over cannot be used: {error.message}") from error
            return {"scores": _plain(scores), "constant": self._reference.constant}

        found, _ = self._store.step(self._key(artifact, "baseline"), compute)
        if found["constant"]:
            self.notes = (CONSTANT,)
            self._progress.warn(CONSTANT)
        self._scores = self._restored(found["scores"])
        return Scored(self._result(self._scores), None)

    def variant(self, name: str, artifact: Artifact) -> Scored:
        """Score a variant and compare it with the baseline.

        Raises:
            CompressError: It doesn't run, or makes NaN or infinity.
        """

        def compute() -> dict[str, Any]:
            comparison = Comparison(self._outputs(), name)
            scores = self._run(artifact, comparison, self._limit, name)
            classes = scores is not None and scores.name == "top1"
            fidelity = comparison.result(classes=classes or self._metric is None)
            return {"scores": _plain(scores), "fidelity": fidelity.model_dump()}

        found, _ = self._store.step(self._key(artifact, "variant"), compute)
        return Scored(self._result(self._restored(found["scores"])), Fidelity.model_validate(found["fidelity"]))

    def _outputs(self) -> Reference:
        """Return the baseline's outputs; they aren't kept on disk, so a resumed run makes them again."""
        if self._reference is None and self._baseline is not None:
            self._reference = Reference()
            self._run(self._baseline, self._reference, COMPARED, "baseline", score=False)
        return self._reference or Reference()

    def _run(
        self, artifact: Artifact, observer: Any, limit: int | None, name: str, *, score: bool = True
    ) -> Scores | None:
        metric = self._metric if score else None
        title = f"{name}: {'scoring' if metric else 'comparing'}"
        with RunnerProcess(artifact, self._options, self._store.path / "logs" / f"{name}.log") as process:
            return evaluate(process, self._dataset, metric, self._progress, observer=observer, limit=limit, title=title)

    def _result(self, scores: Scores | None) -> MetricResult | None:
        return metric_result(scores, self._scores, self._seed) if scores is not None else None

    def _restored(self, plain: Mapping[str, Any] | None) -> Scores | None:
        if plain is None:
            return None
        values = plain["per_sample"]
        summarize = self._metric.summarize if isinstance(self._metric, SampleMetric) else None
        restored = {**plain, "per_sample": None if values is None else np.asarray(values, np.float64)}
        return Scores(**restored, summarize=summarize)

    def _key(self, artifact: Artifact, role: str) -> dict[str, Any]:
        return {
            "step": f"score {role}",
            "artifact": artifact.sha256,
            "form": artifact.form.value,
            "execution": dict(artifact.execution),
            "baseline": self._baseline.sha256 if self._baseline is not None else None,
            "data": self._dataset.fingerprint(),
            "metric": _metric_key(self._metric),
            "device": self._options.device,
        }


def _metric_key(metric: Metric | None) -> str | None:
    if metric is None:
        return None
    file = Path(metric.name.rpartition(":")[0])
    own = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
    return metric.name + own


def _plain(scores: Scores | None) -> dict[str, Any] | None:
    if scores is None:
        return None
    values = scores.per_sample
    return {
        "name": scores.name,
        "unit": scores.unit,
        "higher_is_better": scores.higher_is_better,
        "value": scores.value,
        "samples": scores.samples,
        "per_sample": None if values is None else values.tolist(),
        "extra": dict(scores.extra),
    }


def labels_of(dataset: Dataset) -> Array | None:
    """Return the labels of all samples; None where there are none."""
    if not dataset.labelled:
        return None
    known = getattr(dataset, "labels", None)
    if known is not None:
        return np.asarray(known)
    found = [b.targets for b in dataset.batches(256) if b.targets is not None]
    return np.concatenate(found) if found else None
