"""Opening what the recipe names, before any work: data, preprocessing, the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.artifact import Artifact, ModelSource, Signature, TensorSpec
from compress.data.base import Array, Dataset
from compress.data.bind import bind
from compress.data.check import check_classes, require
from compress.data.open import open_dataset
from compress.data.preprocess import load_preprocess
from compress.errors import UsageError
from compress.load.inspect import count_macs
from compress.load.loader import LoadedModel, open_source
from compress.progress import Progress
from compress.recipe import Recipe
from compress.results import ModelInfo


@dataclasses.dataclass(frozen=True)
class Selected:
    """Samples that searches are judged on; never those that are evaluated on, but where labels are left unused.

    Attributes:
        dataset: The samples.
        labelled: Whether their labels may be used.
        what: What they are, for sentences.
    """

    dataset: Dataset
    labelled: bool
    what: str


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Everything that a run starts from.

    Attributes:
        artifact: The model as it was handed over.
        loaded: The torch model; None where a graph file was handed over.
        evaluation: Evaluation data; None where none was given.
        calibration: Calibration samples, drawn from what the recipe names.
        selection: What searches are judged on; None where no calibration data was given.
        train: Training data; None where none was given.
        preprocess: The preprocessing that all of them share; None: arrays are taken as they are.
        sample: One real batch by input name; None without data.
        notes: What the user should know of all this.
    """

    artifact: Artifact
    loaded: LoadedModel | None
    evaluation: Dataset | None
    calibration: Dataset | None
    selection: Selected | None
    train: Dataset | None
    preprocess: Any
    sample: Mapping[str, Array] | None
    notes: tuple[str, ...]


def open_inputs(recipe: Recipe, progress: Progress) -> Inputs:
    """Open the data and the model of a recipe, and check that they fit together.

    Raises:
        UsageError: A combination that cannot work.
        DataError: Data that cannot be used.
        ModelError: A model that cannot be used.
    """
    notes: list[str] = []
    preprocess = load_preprocess(recipe.preprocess, recipe.code or recipe.model)

    def opened(spec: str | None) -> Dataset | None:
        if spec is None:
            return None
        return open_dataset(spec, preprocess, workers=recipe.workers, bad_samples=recipe.bad_samples, progress=progress)

    evaluation, train, given = opened(recipe.data), opened(recipe.train), opened(recipe.calibration)
    if recipe.max_drop is not None and (evaluation is None or not evaluation.labelled):
        raise UsageError("--max-drop needs labelled evaluation data.", "Give --data with labels, or leave it out.")
    calibration = _calibration(recipe, given, train, evaluation, notes)
    if evaluation is not None and recipe.eval_samples is not None:
        evaluation = evaluation.subset(recipe.eval_samples, recipe.seed)
    first = next((d for d in (evaluation, calibration, train) if d is not None), None)
    raw = next(iter(first.batches(2, 2))) if first is not None else None
    source = ModelSource(
        path=recipe.model,
        code=recipe.code,
        inputs=recipe.input,
        trust_pickle=recipe.trust_pickle,
        seed=recipe.seed,
    )
    artifact, loaded = open_source(
        source, raw.inputs if raw is not None else None, first.dynamic_axes if first is not None else {}
    )
    if artifact.source is not None and not source.inputs:
        # A fresh process has no data to learn the signature from.
        known = dataclasses.replace(artifact.source, inputs=_specs(artifact.signature))
        artifact = dataclasses.replace(artifact, source=known)
    sample = bind(raw, artifact.signature) if raw is not None else None
    if evaluation is not None:
        check_classes(evaluation, classes_of(artifact.signature))
    if loaded is not None:
        notes += loaded.notes
        if loaded.subnormal_weights:
            notes.append(
                f"{loaded.subnormal_weights:,} weights are subnormal numbers, which CPUs are slow to compute with."
            )
    selection = _selection(recipe, given or train, calibration)
    return Inputs(artifact, loaded, evaluation, calibration, selection, train, preprocess, sample, tuple(notes))


def _calibration(
    recipe: Recipe, given: Dataset | None, train: Dataset | None, evaluation: Dataset | None, notes: list[str]
) -> Dataset | None:
    if given is not None:
        short = require(given, recipe.samples, "calibration")
        if short:
            notes.append(short)
        return given.subset(recipe.samples, recipe.seed)
    if train is not None:
        notes.append(f"Calibration: {min(recipe.samples, len(train))} samples drawn from the training data.")
        return train.subset(recipe.samples, recipe.seed)
    if evaluation is not None:
        notes.append(
            f"Calibration: the inputs of {min(recipe.samples, len(evaluation))} evaluation samples, since neither "
            "--calibration nor --train was given; the accuracy of int8 variants may be slightly flattered."
        )
        return evaluation.subset(recipe.samples, recipe.seed)
    return None


def _selection(recipe: Recipe, source: Dataset | None, calibration: Dataset | None) -> Selected | None:
    """Return samples that nothing is evaluated on: of what calibration was drawn from, else of calibration itself."""
    if calibration is None:
        return None
    if source is None or not source.labelled:
        # Their labels are those that are evaluated on, or there are none: only the outputs are compared.
        return Selected(calibration, labelled=False, what="calibration samples")
    if len(source) <= recipe.samples:
        return Selected(calibration, labelled=True, what="calibration samples")
    chosen = source.subset(recipe.selection_samples, recipe.seed + 1)
    return Selected(chosen, labelled=True, what=f"samples of {source.name}")


def _specs(signature: Signature) -> tuple[str, ...]:
    """Return the signature as input specs, so that a fresh process loads the model without data."""

    def spec(tensor: TensorSpec) -> str:
        return f"{tensor.name}:{tensor.dtype}:{','.join(map(str, tensor.shape))}"

    return tuple(map(spec, signature.inputs))


def classes_of(signature: Signature) -> int | None:
    """Return the number of classes where the only output is ``[batch, classes]``."""
    if len(signature.outputs) != 1 or len(signature.outputs[0].shape) != 2:
        return None
    last = signature.outputs[0].shape[1]
    return last if isinstance(last, int) else None


def model_info(recipe: Recipe, inputs: Inputs) -> ModelInfo:
    """Return what the results say of the model as it was handed over."""
    loaded, artifact = inputs.loaded, inputs.artifact
    return ModelInfo(
        path=recipe.model,
        name=_name(recipe.model),
        kind=loaded.kind if loaded is not None else artifact.form.value,
        code=recipe.code or None,
        sha256=artifact.sha256,
        parameters=loaded.parameters if loaded is not None else None,
        macs=count_macs(loaded) if loaded is not None else None,
        subnormal_weights=loaded.subnormal_weights if loaded is not None else 0,
        inputs=[str(s) for s in artifact.signature.inputs],
        outputs=[str(s) for s in artifact.signature.outputs],
        notes=list(loaded.notes) if loaded is not None else [],
    )


def _name(model: str) -> str:
    """Return a short name: the file's stem, or the architecture's name."""
    head, colon, tail = model.rpartition(":")
    if colon and not Path(model).exists():
        return tail if not head.endswith(".py") else Path(head).stem
    return Path(model).stem
