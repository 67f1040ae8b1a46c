"""Mixed precision: FP16 in the file, or BF16 as the way the runtime computes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import onnx

from compress.artifact import Artifact, Form
from compress.data.base import Array
from compress.errors import StageError, UsageError
from compress.passes.feeds import feeds
from compress.passes.half.agree import agreement, culprits
from compress.passes.half.convert import convert
from compress.passes.half.types import Slots, element_types, half_slots, lift_constants
from compress.passes.half.unfit import unfit_nodes
from compress.passes.int8.graph import name_nodes
from compress.passes.onnx_models import opset_of, save_model
from compress.results import Layer, StageDetails
from compress.runners.onnx_file import external_files, read_signature
from compress.stage import Context, Pass, Produced

ERROR = 1e-2
"""Size of the outputs' difference that is looked for, relative to theirs; FP16 alone makes about 1e-3."""
ROUNDS = 4
QDQ_OPSET = 19
"""The opset that gave QuantizeLinear and DequantizeLinear FP16."""
_CHECKED_SAMPLES = 64
_NAMED = 5


class MixedPrecision(Pass):
    """Convert to FP16 what FP16 can hold, or have the runtime compute in BF16.

    On calibration data, operators are found that FP16 cannot do: values near or beyond its range, sums inside
    reductions and normalizations that go beyond it, exponents that it rounds too coarsely, values that become
    subnormal. They stay in FP32 and are named with the reason. Then the outputs are compared with FP32's with every
    value rounded to FP16 where the file holds FP16; operators at which the error rises are kept as well.

    Attributes:
        precision: ``fp16`` or ``bf16``.
        keep_float: Names of nodes, or whole op types, that stay in FP32 (FP16 only).
        io_types: ``keep``: inputs and outputs keep their types; ``low``: they become FP16 too (FP16 only).
    """

    kind: ClassVar[str] = "mixed_precision"
    consumes: ClassVar[Form] = Form.ONNX
    produces: ClassVar[Form] = Form.ONNX

    precision: Literal["fp16", "bf16"] = "fp16"
    keep_float: tuple[str, ...] = ()
    io_types: Literal["keep", "low"] = "keep"

    def _apply(self, artifact: Artifact, context: Context) -> Produced:
        meaning = context.target.precisions.get(self.precision)
        if meaning is None:
            raise UsageError(
                f"{self.precision} is not to be had on target {context.target.name}.",
                f"It can do {', '.join(context.target.precisions)}.",
            )
        note = f"{self.precision} on {context.target.name}: {meaning}."
        context.progress.line(note)
        if self.precision == "bf16":
            return self._bf16(artifact, context, note)
        return self._fp16(artifact, context, note)

    def _bf16(self, artifact: Artifact, context: Context, note: str) -> Produced:
        files = []
        for source in artifact.files:
            copy = context.work / source.name
            try:
                os.link(source, copy)
            except OSError:
                shutil.copyfile(source, copy)
            files.append(copy)
        return Produced(
            files[0],
            artifact.signature,
            side_files=tuple(files[1:]),
            notes=(note,),
            execution={**artifact.execution, "inference_precision": "bf16"},
        )

    def _fp16(self, artifact: Artifact, context: Context, note: str) -> Produced:
        model = _read(artifact.path)
        slots = half_slots(model, element_types(model))
        if not slots:
            raise StageError(
                f"fp16 found nothing to convert in {artifact.path.name}: no operator of it computes in float32."
            )
        kept = {n.name: "kept in float by keep_float" for n in model.graph.node
                if n.name in slots and (n.name in self.keep_float or n.op_type in self.keep_float)}  # fmt: skip
        kept = {**self._unfit(model, slots, artifact, context), **kept}
        notes = [note]
        if context.calibration is None:
            notes.append("No data was given, so only constants were checked for what FP16 cannot hold.")
        else:
            kept, error = self._agree(model, slots, kept, artifact, context)
            notes.append(f"FP16 moves the outputs by {100 * error:.2g} % of their size on calibration data.")
            if error > ERROR:
                notes.append(f"That is more than the {100 * ERROR:g} % looked for; keeping more in FP32 didn't help.")
        output = context.work / "model.onnx"
        converted = convert(model, slots, kept, low_io=self.io_types == "low")
        save_model(converted, output)
        if kept:
            notes.append(_named(kept, len(slots)))
        return Produced(
            output,
            read_signature(output),
            side_files=tuple(external_files(output)),
            notes=tuple(notes),
            details=StageDetails(layers=_layers(model, slots, kept)).model_dump(mode="json"),
        )

    def _batches(self, artifact: Artifact, context: Context) -> Iterator[dict[str, Array]]:
        if context.calibration is not None:
            yield from feeds(context.calibration, artifact.signature, 8, _CHECKED_SAMPLES)

    def _unfit(
        self, model: onnx.ModelProto, slots: Mapping[str, Slots], artifact: Artifact, context: Context
    ) -> dict[str, str]:
        scratch = context.work / "scratch"
        scratch.mkdir()
        batches = None if context.calibration is None else lambda: self._batches(artifact, context)
        with context.progress.task("fp16: looking for what it cannot hold", None) as advance:
            return unfit_nodes(model, slots, batches, work=scratch, threads=context.threads, advance=advance)

    def _agree(
        self,
        model: onnx.ModelProto,
        slots: Mapping[str, Slots],
        kept: Mapping[str, str],
        artifact: Artifact,
        context: Context,
    ) -> tuple[dict[str, str], float]:
        """Return what is kept in FP32 in the end, and the outputs' error with that.

        Raises:
            StageError: Outputs are NaN or infinite whatever is kept.
        """
        tried, best, least = dict(kept), dict(kept), np.inf
        scratch = context.work / "scratch"
        for left in reversed(range(ROUNDS)):
            emulated = convert(model, slots, tried, low_io=False, emulate=True)
            found = agreement(model, emulated, self._batches(artifact, context), context.threads, scratch)
            context.progress.detail(f"fp16: {len(tried)} operators in FP32: error {found.error:.2g}")
            if found.error < least:
                best, least = dict(tried), found.error
            if found.error <= ERROR or not left:
                break
            more = culprits(model, emulated, slots, tried, found.worst, context.threads, scratch)
            if not more:
                break
            tried |= more
        if not np.isfinite(least):
            raise StageError(
                f"fp16: output {found.output} is NaN or infinite on calibration data, in FP32 it isn't.",
                "Name the operators to keep with keep_float, or use bf16.",
            )
        return best, float(least)


def _read(path: Path) -> onnx.ModelProto:
    model = onnx.load(path)
    name_nodes(model)
    lift_constants(model)
    opset = opset_of(model)
    if opset < QDQ_OPSET and any(n.op_type == "DequantizeLinear" for n in model.graph.node):
        raise StageError(
            f"fp16: {path.name} is an INT8 file of opset {opset}; FP16 between Q/DQ pairs needs opset {QDQ_OPSET}.",
            "Export the model with --opset 19 or later.",
        )
    return model


def _named(kept: Mapping[str, str], total: int) -> str:
    groups: dict[str, list[str]] = {}
    for name, reason in kept.items():
        groups.setdefault(reason.partition(": ")[0], []).append(name)
    parts = []
    for reason, names in sorted(groups.items(), key=lambda g: -len(g[1])):
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        parts.append(f"{', '.join(names[:_NAMED])}{more} ({reason})")
    return f"{len(kept)} of {total} operators kept in FP32: {'; '.join(parts)}."


def _layers(model: onnx.ModelProto, slots: Mapping[str, Slots], kept: Mapping[str, str]) -> list[Layer]:
    return [
        Layer(name=n.name, op=n.op_type, precision="fp32" if n.name in kept else "fp16", reason=kept.get(n.name, ""))
        for n in model.graph.node
        if n.name in slots
    ]
