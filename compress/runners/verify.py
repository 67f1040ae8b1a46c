"""Whether a stage's file holds: it opens in a fresh process, runs at several batch sizes, agrees with its parent."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compress.artifact import BATCH, Artifact, Difference, Signature, TensorSpec
from compress.data.base import Array
from compress.difference import DifferenceAccumulator, MismatchError
from compress.errors import CompressError, StageError
from compress.progress import Progress
from compress.runners.base import RunOptions
from compress.runners.batching import fixed_batch
from compress.runners.process import RunnerProcess
from compress.stage import Verifier

BATCHES = (1, 3, 8)
"""Batch sizes tried where the batch axis is dynamic: an axis frozen at 1, or at the size of the example, shows."""
LENGTHS = (21, 13)
"""Another length for axes that vary and aren't sides of images, the first one that isn't the length tried before: one
frozen at the length of the example shows."""
EXPORT_DB = 60.0
"""An exporter changes no arithmetic, so its file must agree with the parent up to rounding (FP32 gives 90–140 dB)."""
CONVERSION_DB = 10.0
"""As above where the parent is in low precision: two runtimes round differently, and less than this is a fault."""

_LOW = re.compile(r"b?f(loat)?p?16|u?int[48]|^[iu][48]$|f(loat)?p?8", re.IGNORECASE)
_LOW_STAGES = frozenset({"int8", "mixed_precision"})


@dataclasses.dataclass(frozen=True)
class _Case:
    """One set of probe inputs and what the parent made of them."""

    what: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


@dataclasses.dataclass(frozen=True)
class _Parent:
    dynamic: bool
    order: tuple[str, ...]
    low_precision: bool
    cases: tuple[_Case, ...]


def make_verifier(
    options: RunOptions, work: Path, sample: Mapping[str, Any] | None, seed: int, progress: Progress
) -> Verifier:
    """Return the check that every stage's output goes through.

    The check takes the child and its parent and returns their difference. It opens the child in a fresh process and
    runs it on the same probe inputs as the parent, at batch sizes 1, 3 and 8 (the fixed one where the file fixes it)
    and at a second length of axes that may be sequences. What a parent made of its inputs is kept, so a parent of many
    children runs once. Inputs that the child no longer has are not fed.

    Args:
        options: How to run both.
        work: Folder for the log of the processes.
        sample: Real inputs by name to draw probes from; None where there is no data.
        seed: Seeds the probes.
        progress: Gets a line of detail a check.

    Returns:
        A function that raises :class:`~compress.errors.StageError` where the child doesn't run, lost its dynamic batch
        axis, makes NaN or infinity where the parent doesn't, or is an export that disagrees with its parent; what stops
        a file from opening is raised as the runner raises it.
    """
    known: dict[tuple[object, ...], _Parent] = {}
    log = work / "verify.log"

    def verify(child: Artifact, parent: Artifact) -> Difference:
        key = (parent.form, parent.path, parent.sha256, parent.source, tuple(sorted(parent.execution.items())))
        if key not in known:
            known[key] = _run_parent(parent, options, log, sample, seed, progress)
        reference = known[key]
        difference = _compare(child, reference, options, log)
        sizes = ", ".join(case.what for case in reference.cases)
        progress.detail(f"{child.path.name} agrees with {_name(parent)} to {difference.sqnr_db:.1f} dB at {sizes}")
        if child.form is not parent.form:
            low = reference.low_precision or _is_low(child)
            _check_close(child, parent, difference, CONVERSION_DB if low else EXPORT_DB)
        return difference

    return verify


def _run_parent(
    parent: Artifact,
    options: RunOptions,
    log: Path,
    sample: Mapping[str, Any] | None,
    seed: int,
    progress: Progress,
) -> _Parent:
    from compress.load.probe import probe_inputs

    with RunnerProcess(parent, options, log) as process:
        signature = process.signature
        fixed = fixed_batch(signature)
        cases = []
        for size in BATCHES if fixed is None else (fixed,):
            inputs = probe_inputs(signature, size, seed, sample)
            cases.append(_Case(f"batch {size}", inputs, process.infer(inputs)))
        lengths = _second_lengths(signature, sample)
        if lengths:
            size = fixed or 2
            inputs = probe_inputs(signature, size, seed, sample, lengths)
            what = f"batch {size} with {', '.join(f'{symbol} {length}' for symbol, length in lengths.items())}"
            try:
                cases.append(_Case(what, inputs, process.infer(inputs)))
            except CompressError as error:  # the model itself takes no other length; nothing to hold a child to
                progress.detail(f"{_name(parent)} doesn't run at {what}: {error.message}")
        low = _is_low(parent) or any(_LOW.search(str(p)) for p in process.facts.get("precisions") or ())
    return _Parent(fixed is None, tuple(s.name for s in signature.inputs), low, tuple(cases))


def _compare(child: Artifact, parent: _Parent, options: RunOptions, log: Path) -> Difference:
    accumulator = DifferenceAccumulator()
    name = child.path.name
    with RunnerProcess(child, options, log) as process:
        fixed = fixed_batch(process.signature)
        if parent.dynamic and fixed is not None:
            raise StageError(
                f"{name} lost its dynamic batch axis: it only takes batches of {fixed}.",
                "The model's code fixes the batch size somewhere, such as in x.view(1, -1).",
            )
        for case in parent.cases:
            inputs = _inputs_for(process.signature, case.inputs, parent.order, name)
            try:
                outputs = process.infer(inputs)
            except CompressError as error:
                raise StageError(
                    f"{name} opens, but doesn't run at {case.what}: {error.message}", error.hint
                ) from error
            try:
                accumulator.add(case.outputs, outputs)
            except MismatchError as error:
                raise StageError(f"{name} differs from the model it was made of at {case.what}: {error}.") from error
            if accumulator.not_finite:
                raise StageError(
                    f"{name} makes NaN or infinity in output {', '.join(accumulator.not_finite)} at {case.what}, where "
                    "the model it was made of doesn't."
                )
    try:
        return accumulator.result()
    except MismatchError as error:
        raise StageError(f"{name} cannot be compared with the model it was made of: {error}.") from error


def _inputs_for(
    signature: Signature, inputs: Mapping[str, Array], order: tuple[str, ...], name: str
) -> dict[str, Array]:
    """Return the parent's inputs as the child calls and types them; those it doesn't take are left out."""
    names = {spec.name: spec.name for spec in signature.inputs}
    if not names.keys() <= inputs.keys():
        if len(names) != len(order):
            raise StageError(
                f"{name} takes {', '.join(names) or 'no input'}, but the model it was made of takes {', '.join(order)}."
            )
        names = dict(zip(names, order, strict=True))
    return {spec.name: _typed(inputs[names[spec.name]], spec) for spec in signature.inputs}


def _typed(array: Array, spec: TensorSpec) -> Array:
    """Return ``array`` as the child takes it: a half precision file may take half precision inputs."""
    wanted = np.dtype(spec.dtype)
    return array.astype(wanted) if array.dtype != wanted and wanted.kind == array.dtype.kind else array


def _second_lengths(signature: Signature, sample: Mapping[str, Any] | None) -> dict[str, int]:
    """Return another size for every symbol that is neither the batch's nor a side of an image."""
    from compress.load.probe import default_sizes, is_image_axis

    tried = default_sizes(signature, sample)
    sides = {d for spec in signature.inputs for axis, d in enumerate(spec.shape) if is_image_axis(spec, axis)}
    first = {spec.shape[0] for spec in signature.inputs if spec.shape}
    others = [s for s in signature.symbols if s != BATCH and s not in sides and s not in first]
    return {symbol: next(length for length in LENGTHS if length != tried[symbol]) for symbol in others}


def _is_low(artifact: Artifact) -> bool:
    asked = artifact.execution.get("inference_precision", "")
    return bool(_LOW.search(asked)) or any(record.stage in _LOW_STAGES for record in artifact.lineage)


def _check_close(child: Artifact, parent: Artifact, difference: Difference, least: float) -> None:
    if difference.sqnr_db < least:
        raise StageError(
            f"The exported {child.path.name} disagrees with {_name(parent)}: {difference.sqnr_db:.1f} dB, where at "
            f"least {least:g} dB are expected (largest difference {difference.max_abs:.3g}).",
            "The exporter does not reproduce the model; look for code that depends on the data or on the batch size.",
        )


def _name(artifact: Artifact) -> str:
    return artifact.path.name or (artifact.source.code if artifact.source else "") or "the model"
