"""One artifact on its own data, and two artifacts side by side: what ``compress eval`` and ``compress compare`` do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from compress.errors import StageError, UsageError
from compress.pipeline.entries import Bases, Made, entry_of, precision_label
from compress.pipeline.inputs import open_inputs
from compress.pipeline.samples import TimingInputs, batch_sizes, samples_for
from compress.pipeline.score import COMPARED, Scored
from compress.progress import Progress
from compress.recipe import Recipe
from compress.results import Entry, Ratio
from compress.runners.base import RunOptions
from compress.runners.process import RunnerProcess
from evaluators.accuracy import evaluate, metric_result
from evaluators.contention import OtherWork, warning
from evaluators.fidelity import Comparison, Reference
from evaluators.harness import Subject, measure
from evaluators.metrics import Scores, metric_for
from evaluators.statistics import paired_ratio
from evaluators.threads import available_threads


@dataclasses.dataclass(frozen=True)
class SideBySide:
    """Two artifacts measured in turn.

    Attributes:
        a: The first.
        b: The second; its drop and fidelity are against the first.
        speedups: By batch size: how many times faster the second is.
    """

    a: Entry
    b: Entry
    speedups: tuple[Ratio, ...]


def evaluate_artifact(recipe: Recipe, progress: Progress) -> Entry:
    """Score one artifact of any form on the recipe's data.

    Raises:
        UsageError: No data, or no labels.
        CompressError: Model or data cannot be used.
    """
    inputs = open_inputs(recipe, progress)
    data = inputs.evaluation
    if data is None or not data.labelled:
        raise UsageError("compress eval needs labelled data.", "Give --data; without labels use compress compare.")
    metric = metric_for(recipe.metric, data.task)
    with RunnerProcess(inputs.artifact, _options(recipe)) as process:
        scores = evaluate(process, data, metric, progress, title=f"Scoring {inputs.artifact.path.name}")
        facts = process.facts
    if scores is None:
        raise UsageError(f"The data's task is {data.task}, which has no metric of its own.", "Give --metric.")
    scored = Scored(metric_result(scores, None), None)
    made = Made(Path(recipe.model).name, inputs.artifact.form.value, inputs.artifact, scored=scored)
    entry = entry_of(made, None, None, Bases(None, None, "", recipe.seed), is_baseline=True)
    return entry.model_copy(update={"facts": facts, "precision": precision_label(inputs.artifact, facts)})


def compare_artifacts(first: Recipe, second: Recipe, progress: Progress) -> SideBySide:
    """Measure two artifacts of any form in turn, on the same inputs.

    Raises:
        CompressError: A model or the data cannot be used, or one of them cannot be measured.
    """
    opened = [open_inputs(recipe, progress) for recipe in (first, second)]
    options = _options(first)
    data = opened[0].evaluation
    model = opened[0].artifact.signature
    dataset = samples_for(data, model, first.seed)
    metric = metric_for(first.metric, data.task) if data is not None and data.labelled else None
    limit = None if metric else COMPARED
    reference = Reference()
    scores: list[Scores | None] = []
    comparison = None
    for name, inputs in zip("AB", opened, strict=True):
        observer = reference if name == "A" else (comparison := Comparison(reference, "B"))
        with RunnerProcess(inputs.artifact, options) as process:
            scores.append(
                evaluate(
                    process,
                    dataset,
                    metric,
                    progress,
                    observer=observer,
                    limit=limit,
                    title=f"{name}: running the data",
                )
            )
    fidelity = comparison.result() if comparison is not None else None
    subjects = [Subject(n, i.artifact) for n, i in zip("AB", opened, strict=True)]
    batches = batch_sizes(first.batch, model)
    with OtherWork() as others:
        timings = measure(subjects, batches, first.rounds, options, TimingInputs(dataset), progress, first.seed)
    if busy := warning(others.share):
        progress.warn(busy)
    failed = [f"{t.name} ({t.failure})" for t in timings.values() if t.failure]
    if failed:
        raise StageError(f"{' and '.join(failed)} could not be measured.")
    why = "no labelled data was given" if metric is None else ""
    bases = Bases(None, None, why, first.seed)
    entries = []
    for name, inputs, score, recipe in zip("AB", opened, scores, (first, second), strict=True):
        metric_found = metric_result(score, scores[0] if name == "B" else None) if score is not None else None
        scored = Scored(metric_found, fidelity if name == "B" else None)
        made = Made(Path(recipe.model).name, inputs.artifact.form.value, inputs.artifact, scored=scored)
        entries.append(entry_of(made, timings[name], None, bases, is_baseline=name == "A"))
    common = [b for b in timings["A"].rounds if b in timings["B"].rounds]
    ratios = [paired_ratio(timings["A"].rounds[b], timings["B"].rounds[b], b, first.seed) for b in common]
    return SideBySide(entries[0], entries[1], tuple(ratios))


def _options(recipe: Recipe) -> RunOptions:
    return RunOptions(threads=recipe.threads or available_threads())
