"""ONNX models in memory: their opset, copies, sessions, and files of those beyond protobuf's limit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx

LARGE = 1 << 30
"""Bytes from which weights go into a side file: well below protobuf's limit of 2 GB, which the rest must fit into."""


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that a model uses; 0 where it uses none."""
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy that may be changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Return a copy in which tensors inside the graph are outputs too, those that aren't yet."""
    shown = copy_of(model)
    present = {o.name for o in shown.graph.output}
    shown.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in present)
    return shown


def save_model(model: onnx.ModelProto, path: Path, *, large: bool | None = None) -> None:
    """Write a model; a large one's weights go into ``<name>.data`` beside it, and out of ``model``.

    Args:
        model: Pass a copy of a large one that is needed again.
        path: File to write.
        large: Use a side file; None: where the model's size asks for it.
    """
    if not (model.ByteSize() > LARGE if large is None else large):
        onnx.save(model, path)
        return
    data = f"{path.name}.data"
    (path.parent / data).unlink(missing_ok=True)  # else the new values are appended to the old
    onnx.save(model, path, save_as_external_data=True, location=data)


def open_model(model: Path | onnx.ModelProto, threads: int, work: Path) -> Any:
    """Return an onnxruntime session on the CPU for a file or a model in memory.

    Args:
        model: Not changed.
        threads: Threads for the runtime.
        work: Folder for a model that is too large to be handed over in memory.
    """
    import onnxruntime

    from compress.runners.onnxruntime import session_options

    source: str | bytes
    if isinstance(model, Path):
        source = str(model)
    elif model.ByteSize() <= LARGE:
        source = model.SerializeToString()
    else:
        source = str(work / "large.onnx")
        save_model(copy_of(model), work / "large.onnx")
    return onnxruntime.InferenceSession(source, session_options(threads), providers=["CPUExecutionProvider"])
