"""The exporter from torch to ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from compress.artifact import BATCH, Artifact, Form, Signature
from compress.data.base import Array
from compress.errors import StageError
from compress.load.probe import default_sizes, probe_inputs
from compress.progress import Progress
from compress.runners.onnx_file import external_files, read_signature
from compress.stage import Context, Exporter, Produced
from exporters.capture import Captured, capture
from exporters.onnx_names import tidy

if TYPE_CHECKING:
    import onnx_ir
    import torch


class OnnxExporter(Exporter):
    """Export to ONNX with open batch and sequence axes, the model's own names, and weights in the file or beside it.

    Capture is torch.export's; TorchScript's exporter is used where that fails, and the notes say so.

    Attributes:
        opset: ONNX opset; None: the exporter's own.
        optimize: Fold constants and fuse.
        external_data_mb: Weights above this, in MB (10^6 bytes), go into ``model.onnx.data``; an ONNX file cannot
            exceed 2 GB.
    """

    kind: ClassVar[str] = "export-onnx"
    consumes: ClassVar[Form] = Form.TORCH
    produces: ClassVar[Form] = Form.ONNX

    opset: int | None = Field(default=None, ge=17, le=25)
    optimize: bool = True
    external_data_mb: float = Field(default=1900, ge=0, le=1900)

    def _apply(self, artifact: Artifact, context: Context) -> Produced:
        from compress.load.loader import load_model

        if artifact.source is None:
            raise StageError(f"{artifact.path} comes without word on how to load it.")
        loaded = load_model(artifact.source, context.sample, signature=artifact.signature)
        return self.export(
            loaded.module,
            loaded.signature,
            context.work,
            sample=context.sample,
            seed=context.seed,
            progress=context.progress,
        )

    def export(
        self,
        module: torch.nn.Module,
        signature: Signature,
        folder: Path,
        *,
        sample: Mapping[str, Array] | None,
        seed: int,
        progress: Progress,
    ) -> Produced:
        """Write ``model.onnx`` into ``folder``.

        Args:
            module: In eval mode; takes tensors in the signature's order and returns a tuple of tensors.
            signature: Names, types and shapes; its symbols are axes that stay open.
            folder: Where the file goes.
            sample: Real inputs by name, to export with; None: random ones.
            seed: Seeds the example inputs.
            progress: Where to report.

        Raises:
            StageError: The module fixes an axis that must stay open, cannot be exported, or has weights that aren't
                finite.
        """
        inputs = example_inputs(signature, seed, sample)
        captured = capture(module, signature, inputs, opset=self.opset, optimize=self.optimize, progress=progress)
        notes = (*captured.notes, *tidy(captured.model, signature, captured.kept))
        for note in notes[len(captured.notes) :]:
            progress.line(note)
        _check_finite(captured.model)
        path = folder / "model.onnx"
        self._write(captured.model, path)
        _check_file(path, signature)
        if captured.traced:
            _check_open_batch(captured, path, module, signature, seed, sample)
        return Produced(path, read_signature(path), side_files=external_files(path), notes=notes, execution={})

    def _write(self, model: onnx_ir.Model, path: Path) -> None:
        import onnx_ir

        weights = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
        external = weights > self.external_data_mb * 1e6
        onnx_ir.save(model, path, external_data=f"{path.name}.data" if external else None)


def example_inputs(signature: Signature, seed: int, sample: Mapping[str, Array] | None) -> dict[str, Array]:
    """Return inputs to export with: no open axis has size 0 or 1, and no two symbols share a size.

    torch.export fixes axes of size 0 or 1, and could take two axes of one size for one and the same.
    """
    sizes: dict[str, int] = {}
    for symbol, size in default_sizes(signature, sample).items():
        sizes[symbol] = next(s for s in range(max(size, 4), 1 << 20) if s not in sizes.values())
    return probe_inputs(signature, 2, seed, sample, sizes)


def _check_finite(model: onnx_ir.Model) -> None:
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.dtype.is_floating_point() and not np.isfinite(tensor.numpy()).all():
            raise StageError(
                f"Weight {name} holds NaN or infinity.",
                "Training has most likely diverged; use a checkpoint from before.",
            )


def _check_file(path: Path, wanted: Signature) -> None:
    """Read the axes back from the file.

    Raises:
        StageError: The file breaks ONNX's rules, or an axis that must be open is fixed.
    """
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        raise StageError(f"The exported graph breaks ONNX's rules: {str(error).splitlines()[0]}") from error
    made = read_signature(path)
    known = {s.name: s for s in (*wanted.inputs, *wanted.outputs)}
    for spec in (*made.inputs, *made.outputs):
        asked = known[spec.name].shape if spec.name in known else ()
        for axis, (have, want) in enumerate(zip(spec.shape, asked, strict=False)):
            if isinstance(want, str) and isinstance(have, int):
                raise _frozen(spec.name, axis, want, have)


def _frozen(name: str, axis: int, symbol: str, size: int) -> StageError:
    if symbol == BATCH:
        return StageError(
            f"The exported graph is frozen to batch size {size} (axis {axis} of {name}), likely by a reshape with a "
            "fixed batch size in forward().",
            "Use x.flatten(1) or x.view(x.shape[0], -1).",
        )
    return StageError(f"The exported graph is frozen to size {size} on axis {axis} ({symbol}) of {name}.")


def _check_open_batch(
    captured: Captured,
    path: Path,
    module: torch.nn.Module,
    signature: Signature,
    seed: int,
    sample: Mapping[str, Array] | None,
) -> None:
    """Run a traced graph at another batch size: its open axes were only declared.

    Raises:
        StageError: It doesn't run there, or its outputs have other shapes than the module's.
    """
    import onnxruntime
    import torch

    from compress.runners.onnxruntime import ORT_ERRORS, session_options

    if BATCH not in signature.symbols:
        return
    inputs = probe_inputs(signature, 3, seed, sample)
    with torch.no_grad():
        shapes = [tuple(o.shape) for o in module(*(torch.from_numpy(inputs[s.name]) for s in signature.inputs))]
    options = session_options(1)
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    try:
        made = [o.shape for o in session.run(None, {i.name: inputs[i.name] for i in session.get_inputs()})]
    except ORT_ERRORS as error:
        raise _frozen(session.get_inputs()[0].name, 0, BATCH, 2) from error
    if made != shapes:
        raise _frozen(session.get_outputs()[0].name, 0, BATCH, made[0][0] if made[0] else 1)
