"""Runs a recipe from end to end: open, build, score, time, decide, publish, report."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.artifact import Form
from compress.atomic import write_text
from compress.data.chance import near_chance
from compress.errors import CompressError, DataError, UsageError
from compress.pipeline.build import Builder
from compress.pipeline.decide import decide
from compress.pipeline.entries import Bases, Made, entry_of
from compress.pipeline.environment import environment, versions
from compress.pipeline.inputs import Inputs, classes_of, model_info, open_inputs
from compress.pipeline.plan import Variant, choose_target, plan_variants
from compress.pipeline.profiles import profile_all
from compress.pipeline.samples import Bound, TimingInputs, batch_sizes, samples_for
from compress.pipeline.score import Scored, Scorer, labels_of
from compress.pipeline.trials import TargetTrials
from compress.progress import Logged, Progress, Quiet
from compress.recipe import Recipe, load_recipe, make_recipe
from compress.report import write_report
from compress.results import ModelInfo, Results
from compress.runners.base import RunOptions
from compress.runners.targets import Target
from compress.runners.verify import make_verifier
from compress.stage import Context
from compress.store import RunFolder, digest, next_folder
from evaluators.contention import OtherWork, warning
from evaluators.harness import Subject, Timings, measure
from evaluators.metrics import Metric, metric_for
from evaluators.threads import available_threads

if TYPE_CHECKING:
    import torch

_BASELINE = "torch"


def run(
    model: str | Path | torch.nn.Module,
    recipe: Recipe | Mapping[str, Any] | str | Path | None = None,
    *,
    out: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Compress a model and measure every variant against it, as ``compress run`` does.

    Args:
        model: A file, an architecture such as ``torchvision:resnet50``, or a module. A module is saved with
            torch.export first, to ``compress-runs/modules``; its recipe must say ``input``.
        recipe: A recipe, its settings, or a YAML file; None: the defaults. Its ``model`` is replaced.
        out: Run folder; None: ``compress-runs/<model>-<n>``.
        force: Measure again in a finished run's folder.
        progress: Where to report; None: nowhere.

    Returns:
        What was found. Whether the budget was met is in ``results.budget``, not an exception.

    Raises:
        CompressError: Its subclass says whether usage, model, data or a stage is at fault.
    """
    if isinstance(recipe, (str, Path)):
        recipe = load_recipe(Path(recipe), {"model": str(model) if isinstance(model, (str, Path)) else "module"})
    settings = recipe.model_dump() if isinstance(recipe, Recipe) else dict(recipe or {})
    if isinstance(model, (str, Path)):
        checked = make_recipe({**settings, "model": str(model)})
        return run_recipe(checked, out=_path(out), force=force, progress=progress or Quiet())[0]
    from compress.load.save import save_module

    file = save_module(model, tuple(settings.get("input") or ()), Path("compress-runs") / "modules")
    checked = make_recipe({**settings, "model": str(file), "code": "", "input": ()})
    return run_recipe(checked, out=_path(out), force=force, progress=progress or Quiet())[0]


def _path(out: str | Path | None) -> Path | None:
    return Path(out) if out is not None else None


def run_recipe(recipe: Recipe, *, out: Path | None, progress: Progress, force: bool = False) -> tuple[Results, Path]:
    """Run a checked recipe. Return the results and the run folder; see :func:`run`."""
    started = time.perf_counter()
    target, why = choose_target(recipe.target)
    variants, notes = plan_variants(recipe, target)
    options = RunOptions(threads=recipe.threads or available_threads(), device=target.device)
    logged = Logged(progress)
    if why:
        logged.line(why)
    inputs = open_inputs(recipe, logged)
    if inputs.artifact.form not in (Form.TORCH, Form.ONNX):
        raise UsageError(f"{recipe.model} is an OpenVINO file; compress run starts from PyTorch or ONNX.")
    metric = _metric(recipe, inputs)
    info = model_info(recipe, inputs)
    batches = batch_sizes(recipe.batch, inputs.artifact.signature)
    if batches != recipe.batch:
        notes = (*notes, f"The model fixes its batch size at {batches[0]}, so that is the one measured.")
    for note in (*notes, *inputs.notes):
        logged.line(note)
    recipe_digest = digest(recipe.model_dump(mode="json") | {"sha256": inputs.artifact.sha256})
    folder = out or next_folder(Path("compress-runs"), info.name, recipe_digest)
    with RunFolder(folder, recipe_digest, force=force) as store:
        try:
            logged.log_to(folder / "log.txt")
            logged.line(f"{'Going on with' if store.resumed else 'Run folder:'} {folder}")
            job = _Job(recipe, target, options, inputs, metric, batches, store, logged)
            results = job.results(variants, info, (why, *notes, *inputs.notes), started)
            write_report(results, folder)
            store.finish()
        finally:
            logged.close()
    return results, folder


def _metric(recipe: Recipe, inputs: Inputs) -> Metric | None:
    data = inputs.evaluation
    if data is None or not data.labelled:
        if recipe.metric is not None:
            raise UsageError("--metric needs labelled evaluation data.", "Give --data with labels, or leave it out.")
        return None
    return metric_for(recipe.metric, data.task)


@dataclasses.dataclass
class _Job:
    """One run, inside its locked folder."""

    recipe: Recipe
    target: Target
    options: RunOptions
    inputs: Inputs
    metric: Metric | None
    batches: tuple[int, ...]
    store: RunFolder
    progress: Logged

    def results(self, variants: Sequence[Variant], info: ModelInfo, notes: Sequence[str], started: float) -> Results:
        """Do everything and return the results."""
        self.store.unpublish()
        self._write_settings()
        source = self.inputs.artifact
        name, where = (_BASELINE, _BASELINE) if source.form is Form.TORCH else ("baseline", "ort-cpu")
        dataset = samples_for(self.inputs.evaluation, source.signature, self.recipe.seed)
        scorer = Scorer(self.store, dataset, self.metric, self.options, self.progress, self.recipe.seed)
        scored = scorer.baseline(source)
        self._refuse_chance(scored)
        made = [Made(name, where, source, scored=scored)]
        made += [self._make(variant, scorer) for variant in variants]
        timings, busy = self._time(made, self._timing_inputs)
        profiles = profile_all(
            [s for s in _subjects(made) if s.name in timings],
            self._timing_inputs,
            self.batches[0],
            self.options,
            self.store,
            self.progress,
        )
        torch = timings.get(_BASELINE)
        bases = Bases(torch, timings.get(variants[0].name), self._no_metric(), self.recipe.seed)
        baseline, *others = (
            entry_of(m, timings.get(m.name), profiles.get(m.name), bases, is_baseline=m is made[0]) for m in made
        )
        judged, best, budget = decide(others, self.recipe, variants[0].name)
        if best is not None:
            self.store.publish(next(m.artifact for m in made if m.name == best and m.artifact), "best")
        return Results(
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            run=self.store.path.name,
            model=info,
            environment=environment(self.options.threads),
            baseline=baseline,
            variants=judged,
            best=best,
            budget=budget,
            notes=[n for n in (*notes, *scorer.notes, busy) if n],
            recipe=self.recipe.anywhere().model_dump(mode="json"),
            seconds=time.perf_counter() - started,
        )

    @functools.cached_property
    def _context(self) -> Context:
        logs, data = self.store.path / "logs", self.inputs.calibration
        logs.mkdir(exist_ok=True)
        context = Context(
            target=self.target,
            work=logs,
            progress=self.progress,
            verify=make_verifier(self.options, logs, self.inputs.sample, self.recipe.seed, self.progress),
            calibration=Bound(data, self.inputs.artifact.signature) if data is not None else None,
            train=self.inputs.train,
            threads=self.options.threads,
            seed=self.recipe.seed,
            sample=self.inputs.sample,
        )
        source = self.inputs.artifact
        chosen = self.inputs.selection
        if chosen is not None:
            chosen = dataclasses.replace(chosen, dataset=Bound(chosen.dataset, source.signature))
        trials = TargetTrials(
            context,
            self.recipe,
            self.options,
            self.batches,
            self._timing_inputs,
            chosen,
            self.metric,
            source,
            len(self.inputs.evaluation) if self.inputs.evaluation is not None else None,
        )
        return dataclasses.replace(context, trials=trials)

    @functools.cached_property
    def _timing_inputs(self) -> TimingInputs:
        return TimingInputs(samples_for(self.inputs.evaluation, self.inputs.artifact.signature, self.recipe.seed))

    def _write_settings(self) -> None:
        write_text(self.store.path / "recipe.yaml", self.recipe.anywhere().to_yaml())
        if self.inputs.preprocess is not None:
            write_text(self.store.path / "preprocess.yaml", self.inputs.preprocess.to_yaml())

    def _refuse_chance(self, scored: Scored) -> None:
        data = self.inputs.evaluation
        if scored.metric is None or data is None:
            return
        found, classes = scored.metric, classes_of(self.inputs.artifact.signature)
        warning = near_chance(found.name, found.value, classes, labels_of(data), found.samples)
        if warning is None:
            return
        if not self.recipe.allow_chance:
            raise DataError(warning, "To go on all the same: --allow-chance.")
        self.progress.warn(warning)

    def _no_metric(self) -> str:
        if self.inputs.evaluation is None:
            return "no evaluation data was given"
        return "the evaluation data has no labels" if self.metric is None else ""

    def _make(self, variant: Variant, scorer: Scorer) -> Made:
        """Build, score and publish a variant; its failure is noted and the others go on."""
        builder = Builder(self.store, self.recipe, self._context)
        try:
            artifact = builder.build(variant, self.inputs.artifact)
            scored = scorer.variant(variant.name, artifact)
            published = self.store.publish(artifact, variant.name)
        except CompressError as error:
            self.progress.warn(f"{variant.name} failed: {error}")
            return Made(variant.name, self.target.name, None, failure=str(error), cached=builder.cached)
        path = published.path.relative_to(self.store.path).as_posix()
        return Made(variant.name, self.target.name, artifact, path, scored, cached=builder.cached)

    def _time(self, made: Sequence[Made], inputs: TimingInputs) -> tuple[dict[str, Timings], str]:
        subjects = _subjects(made)

        def compute() -> dict[str, Any]:
            with OtherWork() as others:
                found = measure(
                    subjects,
                    self.batches,
                    self.recipe.rounds,
                    self.options,
                    inputs,
                    self.progress,
                    self.recipe.seed,
                    logs=self.store.path / "logs",
                )
            timings = {name: dataclasses.asdict(t) | _memory(t) for name, t in found.items()}
            return {"timings": timings, "others": others.share}

        key = {
            "step": "measure",
            "subjects": [(s.name, s.artifact.sha256, dict(s.artifact.execution)) for s in subjects],
            "batch": self.batches,
            "rounds": self.recipe.rounds,
            "options": dataclasses.asdict(self.options),
            "versions": versions(),
        }
        found, cached = self.store.step(key, compute)
        if cached:
            self.progress.line("Timings come from the part of this run that had finished.")
        busy = warning(found["others"])
        if busy:
            self.progress.warn(busy)
        return {name: _restored(t) for name, t in found["timings"].items()}, busy


def _subjects(made: Sequence[Made]) -> list[Subject]:
    return [Subject(m.name, m.artifact) for m in made if m.artifact is not None]


def _memory(timings: Timings) -> dict[str, Any]:
    return {"memory": timings.memory.model_dump() if timings.memory is not None else None}


def _restored(plain: Mapping[str, Any]) -> Timings:
    from compress.results import Memory

    return Timings(
        **{
            **plain,
            "rounds": {int(b): tuple(tuple(r) for r in rounds) for b, rounds in plain["rounds"].items()},
            "skipped": {int(b): why for b, why in plain["skipped"].items()},
            "memory": Memory.model_validate(plain["memory"]) if plain["memory"] else None,
        }
    )
