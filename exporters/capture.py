"""From a torch module to an ONNX graph: torch.export where it works, TorchScript where it doesn't."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.artifact import BATCH, Signature
from compress.data.base import Array
from compress.errors import StageError
from compress.progress import Progress
from exporters.quiet import quiet

if TYPE_CHECKING:
    import onnx_ir
    import torch

TORCHSCRIPT_OPSETS = (17, 18, 19, 20)
"""Opsets from 17 on that torch's TorchScript exporter can write."""

_FIXED = re.compile(r"size\(\)\[(\d+)\].{0,80}?specialized it to be a constant \((\d+)\)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Captured:
    """An ONNX graph as the exporter left it: inputs and outputs in the signature's order, under any names.

    Attributes:
        model: The graph.
        kept: Position in the signature of each input of the graph; TorchScript leaves out those that nothing reads.
        notes: Sentences for the report: fall-backs, limits.
        traced: Whether TorchScript recorded it by running it, so that its axes are declared and not proven.
    """

    model: onnx_ir.Model
    kept: tuple[int, ...]
    notes: tuple[str, ...] = ()
    traced: bool = False


def capture(
    module: torch.nn.Module,
    signature: Signature,
    inputs: Mapping[str, Array],
    *,
    opset: int | None,
    optimize: bool,
    progress: Progress,
) -> Captured:
    """Make an ONNX graph of ``module``.

    Args:
        module: In eval mode; takes tensors in the signature's order and returns a tuple of tensors.
        signature: Symbols in it are axes whose size must stay open.
        inputs: Example inputs by name; the batch has 2 rows or more, since torch.export freezes axes of size 1.
        opset: ONNX opset; None: the exporter's own.
        optimize: Whether to fold constants and fuse.
        progress: Gets the exporters' chatter, and a line where it falls back.

    Raises:
        StageError: The module fixes an axis that must stay open, or neither exporter can take it.
    """
    import torch

    tensors = tuple(torch.from_numpy(inputs[s.name]) for s in signature.inputs)
    _check_runs(module, tensors)
    reason = "the file holds TorchScript, which torch.export doesn't take"
    if not any(isinstance(m, torch.jit.ScriptModule) for m in module.modules()):
        try:
            with quiet(progress):
                program = _program(module, signature, tensors)
                model = _translate(program, opset, optimize)
        except StageError:
            raise
        except _OpsetError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - torch.export raises whatever the code it traces trips over
            reason = f"torch.export failed ({_line(error)})"
        else:
            return Captured(model, tuple(range(len(tensors))), _limits(program, signature))
    note = f"Exported with torch's TorchScript exporter: {reason}."
    progress.line(note)
    return _by_tracing(module, signature, tensors, opset, optimize, progress, note)


def _check_runs(module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> None:
    import torch

    try:
        with torch.no_grad():
            module(*tensors)
    except Exception as error:
        size = tensors[0].shape[0] if tensors and tensors[0].ndim else 0
        raise StageError(
            f"The model doesn't run at batch size {size} ({_line(error)}): it is frozen to one batch size.",
            "Most likely forward() reshapes with a fixed batch size; use x.flatten(1) or x.view(x.shape[0], -1).",
        ) from error


class _OpsetError(Exception):
    """The opset asked for isn't to be had."""


def _translate(program: Any, opset: int | None, optimize: bool) -> onnx_ir.Model:
    import torch

    exported = torch.onnx.export(
        program, dynamo=True, opset_version=opset, optimize=optimize, verbose=False, external_data=False
    )
    model: onnx_ir.Model = exported.model  # type: ignore[union-attr]
    made = model.opset_imports.get("", 0)
    if opset is not None and made != opset:
        # torch writes opset 18 or later itself, and keeps that with no more than a log line where converting fails.
        raise _OpsetError(f"torch's newer exporter makes opset {made} of this model, not {opset}")
    return model


def _program(module: torch.nn.Module, signature: Signature, tensors: tuple[torch.Tensor, ...]) -> Any:
    """Capture without torch's tracer of Python code; with it where ``int(x.shape[0])`` or the like fixes an axis."""
    import torch

    def axes(spec: Any) -> dict[int, Any]:
        return {axis: torch.export.Dim.DYNAMIC for axis, dim in enumerate(spec.shape) if isinstance(dim, str)}

    shapes = _as_parameters(module, tuple(axes(s) for s in signature.inputs))
    for strict in (False, True):
        try:
            return torch.export.export(module, tensors, dynamic_shapes=shapes, strict=strict)
        except Exception as error:
            fixed = _FIXED.search(str(error))
            if fixed is None:
                raise
            if strict:
                raise _frozen(signature, int(fixed[1]), int(fixed[2])) from error
    raise RuntimeError  # pragma: no cover - both rounds return or raise


def _as_parameters(module: torch.nn.Module, shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Nest one entry an input as forward()'s parameters are: those that ``*args`` takes are a tuple of their own."""
    kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return shapes
    before = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*shapes[:before], shapes[before:])


def _frozen(signature: Signature, axis: int, size: int) -> StageError:
    symbols = {s.shape[axis] for s in signature.inputs if len(s.shape) > axis and isinstance(s.shape[axis], str)}
    if BATCH in symbols:
        return StageError(
            f"The exported graph would be frozen to batch size {size}, likely by a fixed size in a reshape or a "
            "loop over the batch in forward().",
            "Use x.flatten(1) or x.view(x.shape[0], -1), and operations on the whole batch.",
        )
    return StageError(
        f"The exported graph would be frozen to size {size} on axis {axis} ({', '.join(map(str, symbols))}).",
        "Something in forward() fixes that size; give --input with a fixed size there if it never varies.",
    )


def _limits(program: Any, signature: Signature) -> tuple[str, ...]:
    """Return a sentence for each axis whose size the model itself bounds from above."""
    names = list(program.graph_signature.user_inputs)
    shapes = {n.name: n.meta["val"].shape for n in program.graph.nodes if n.op == "placeholder" and n.name in names}
    symbols = {
        str(made): str(wanted)
        for name, spec in zip(names, signature.inputs, strict=True)
        for made, wanted in zip(shapes[name], spec.shape, strict=False)
    }
    bounds = ((symbols.get(str(symbol)), str(found.upper)) for symbol, found in program.range_constraints.items())
    return tuple(
        dict.fromkeys(
            f"Axis {name} takes at most {top}: the model says so." for name, top in bounds if name and top.isdigit()
        )
    )


def _by_tracing(
    module: torch.nn.Module,
    signature: Signature,
    tensors: tuple[torch.Tensor, ...],
    opset: int | None,
    optimize: bool,
    progress: Progress,
    note: str,
) -> Captured:
    import onnx
    import onnx_ir
    import onnxscript.optimizer
    import torch

    if opset is not None and opset not in TORCHSCRIPT_OPSETS:
        raise StageError(
            f"This model cannot be exported with opset {opset}: {note[0].lower()}{note[1:-1]}, which stops at opset "
            f"{TORCHSCRIPT_OPSETS[-1]}."
        )
    axes = {
        f"in{i}": {axis: dim for axis, dim in enumerate(spec.shape) if isinstance(dim, str)}
        for i, spec in enumerate(signature.inputs)
    }
    try:
        with quiet(progress) as warned, torch.no_grad(), tempfile.TemporaryDirectory(prefix="compress-") as folder:
            file = Path(folder) / "traced.onnx"
            traced = torch.jit.trace(module, tensors, check_trace=False, strict=False)  # type: ignore[no-untyped-call]
            torch.onnx.export(
                traced,
                tensors,
                file,
                dynamo=False,
                input_names=list(axes),
                dynamic_axes={name: dims for name, dims in axes.items() if dims},
                opset_version=opset or TORCHSCRIPT_OPSETS[-1],
            )
            model = onnx_ir.from_proto(onnx.load(file))  # into memory: the folder goes
            if optimize:
                onnxscript.optimizer.optimize(model)
    except Exception as error:
        raise StageError(f"{note[:-1]}, and that failed as well ({_line(error)}).") from error
    notes = [note]
    if any(text.startswith("TracerWarning") for text in warned):
        notes.append(
            "The model's Python code decides by values of its inputs; the graph keeps what the example input led to, "
            "and may be wrong for others."
        )
        progress.warn(notes[-1])
    kept = tuple(int(str(i.name).removeprefix("in")) for i in model.graph.inputs)
    return Captured(model, kept, tuple(notes), traced=True)


def _line(error: BaseException) -> str:
    text = next(iter(str(error).strip().splitlines()), "").strip().rstrip(".")
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
