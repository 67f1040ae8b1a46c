"""Mixed precision: FP16 in the file, or BF16 as the way the runtime computes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import onnx

from compress.artifact import Artifact, Form
from compress.data.base import Array
from compress.errors import StageError, UsageError
from compress.passes.feeds import feeds
from compress.passes.observe import Histogram, observe
from compress.runners.onnx_file import external_files, read_signature
from compress.stage import Context, Pass, Produced

FP16_MAX = 65504.0
_CHECKED_SAMPLES = 64


class MixedPrecision(Pass):
    """Convert to FP16 what FP16 can hold, or have the runtime compute in BF16.

    FP16 goes through onnxruntime's own converter (``onnxruntime.transformers.float16``). Operators that touch a value
    or a weight beyond FP16's range on the calibration data stay in FP32 and are named. Inputs and outputs keep their
    types.

    Attributes:
        precision: ``fp16`` or ``bf16``.
        keep_float: Names of nodes, or whole op types, that stay in FP32 (FP16 only).
    """

    kind: ClassVar[str] = "mixed_precision"
    consumes: ClassVar[Form] = Form.ONNX
    produces: ClassVar[Form] = Form.ONNX

    precision: Literal["fp16", "bf16"] = "fp16"
    keep_float: tuple[str, ...] = ()

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
        from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

        model = onnx.load(artifact.path)
        histograms = self._observe(model, artifact, context)
        kept = _out_of_range(model, histograms) | {n.name for n in model.graph.node if n.name in self.keep_float}
        block_ops = [*DEFAULT_OP_BLOCK_LIST, *(op for op in self.keep_float)]
        converted = convert_float_to_float16(
            model, keep_io_types=True, op_block_list=block_ops, node_block_list=sorted(kept), disable_shape_infer=True
        )
        output = context.work / "model.onnx"
        large = converted.ByteSize() > 1 << 30
        onnx.save(converted, output, save_as_external_data=large, location="model.onnx.data" if large else None)
        self._check_finite(output, artifact, context)
        notes: tuple[str, ...] = (note,)
        if kept:
            shown = ", ".join(sorted(kept)[:5])
            more = f" and {len(kept) - 5} more" if len(kept) > 5 else ""
            notes += (
                f"{len(kept)} operators kept in FP32, since values or weights exceed FP16's range: {shown}{more}.",
            )
        if not histograms:
            notes += ("No data was given, so whether activations fit into FP16 was checked on the probe inputs only.",)
        return Produced(output, read_signature(output), side_files=tuple(external_files(output)), notes=notes)

    def _batches(self, artifact: Artifact, context: Context) -> Iterator[dict[str, Array]]:
        if context.calibration is not None:
            yield from feeds(context.calibration, artifact.signature, 8, _CHECKED_SAMPLES)

    def _observe(self, model: onnx.ModelProto, artifact: Artifact, context: Context) -> dict[str, Histogram]:
        if context.calibration is None:
            return {}
        scratch = context.work / "scratch"
        scratch.mkdir()
        tensors = [name for node in model.graph.node for name in node.output if name]
        with context.progress.task("fp16: looking for values beyond its range", None) as advance:
            return observe(
                model,
                tensors,
                lambda: self._batches(artifact, context),
                work=scratch,
                threads=context.threads,
                advance=advance,
                count=False,
            )

    def _check_finite(self, output: Path, artifact: Artifact, context: Context) -> None:
        import onnxruntime

        from compress.runners.onnxruntime import session_options

        options = session_options(context.threads)
        session = onnxruntime.InferenceSession(str(output), options, providers=["CPUExecutionProvider"])
        for number, inputs in enumerate(self._batches(artifact, context), start=1):
            for spec, value in zip(session.get_outputs(), session.run(None, inputs), strict=True):
                if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
                    raise StageError(
                        f"fp16: output {spec.name} is NaN or infinite on calibration batch {number}, in FP32 it isn't.",
                        "Name the operators to keep with keep_float, or use bf16.",
                    )


def _out_of_range(model: onnx.ModelProto, histograms: dict[str, Histogram]) -> set[str]:
    """Return names of nodes that read or write a value, or hold a weight, beyond FP16's range."""
    beyond = {name for name, h in histograms.items() if max(abs(h.low), abs(h.high)) > FP16_MAX}
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = onnx.numpy_helper.to_array(tensor)
            if array.size and np.abs(array).max() > FP16_MAX:
                beyond.add(tensor.name)
    return {n.name for n in model.graph.node if beyond.intersection((*n.input, *n.output))}
