"""Loading exported programs (``torch.export.save``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from compress.artifact import BATCH, Dim, TensorSpec
from compress.errors import ModelError
from compress.load.archives import Archive
from compress.load.exported_guard import unsafe_parts
from compress.load.flat import Flat, numpy_name
from compress.load.kinds import damaged

_NO_END = 1 << 30


def load_exported(path: Path, trust: bool) -> tuple[torch.nn.Module, Flat, tuple[TensorSpec, ...], tuple[str, ...]]:
    """Load an exported program.

    Returns:
        The module, its flat form, the inputs as the file describes them, and notes.

    Raises:
        ModelError: The file is damaged, from torch 2.7 or earlier, or, without ``trust``, holds what could run code.
    """
    archive = Archive(path) if not trust else None
    if archive and "serialized_exported_program.json" in archive.names:
        raise ModelError(f"{path} has the layout of torch 2.7 and earlier.", "Export it again with a current torch.")
    unsafe = unsafe_parts(archive) if archive else []
    if unsafe:
        raise ModelError(
            f"{path} is refused and nothing of it was run: it holds {', '.join(unsafe[:5])}, which could run code.",
            "Only if you trust whoever made it, pass --trust-pickle.",
        )
    try:
        with path.open("rb") as file:  # by name, torch would warn of files that aren't called .pt2
            program = torch.export.load(file)
    except (
        RuntimeError,
        KeyError,
        AssertionError,
        ValueError,
        TypeError,
        AttributeError,
        NotImplementedError,
    ) as error:
        raise damaged(path, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:160]}") from error
    module = program.module(check_guards=False)
    inputs, notes = _inputs(program)
    return module, Flat(_Called(module, program.call_spec.in_spec)), inputs, notes


class _Called(torch.nn.Module):
    """An exported module that is called with its tensors in order instead of its original arguments."""

    def __init__(self, module: torch.nn.Module, spec: Any) -> None:
        super().__init__()
        self.module = module
        self.spec = spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        args, kwargs = _pytree.tree_unflatten(list(tensors), self.spec)
        return self.module(*args, **kwargs)


def _inputs(program: torch.export.ExportedProgram) -> tuple[tuple[TensorSpec, ...], tuple[str, ...]]:
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    inputs, notes, renamed = [], [], dict[str, str]()
    for name in program.graph_signature.user_inputs:
        value = values.get(str(name))
        if not isinstance(value, torch.Tensor):
            raise ModelError(
                f"The exported program takes '{name}', which is no tensor.", "Export it with tensors alone."
            )
        shape: list[Dim] = []
        for axis, size in enumerate(list[Any](value.shape)):
            if not isinstance(size, torch.SymInt):
                shape.append(int(size))
                continue
            symbol = str(size)
            if symbol not in renamed:
                renamed[symbol] = BATCH if axis == 0 and BATCH not in renamed.values() else f"{name}_dim{axis}"
            shape.append(renamed[symbol])
        inputs.append(TensorSpec(str(name), numpy_name(value.dtype), tuple(shape)))
    if BATCH not in renamed.values():
        notes.append("the exported program was captured with a fixed batch size and takes no other")
    for symbol, bounds in program.range_constraints.items():
        if str(symbol) in renamed and int(min(bounds.upper, _NO_END)) < _NO_END:
            lower, upper = int(bounds.lower), int(bounds.upper)
            notes.append(f"the exported program takes {renamed[str(symbol)]} sizes from {lower} to {upper} only")
    return tuple(inputs), tuple(notes)
