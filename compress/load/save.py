"""Putting a module that only lives in memory on disk, so that fresh processes can load it."""

from __future__ import annotations

import copy
import hashlib
import inspect
from pathlib import Path

import torch

from compress.artifact import Signature, TensorSpec
from compress.errors import ModelError, UsageError
from compress.load.probe import probe_inputs
from compress.load.spec import parse_inputs


def save_module(module: torch.nn.Module, inputs: tuple[str, ...], folder: Path) -> Path:
    """Export ``module`` in eval mode to ``<folder>/<class>-<digest>.pt2``; the module itself is left as it is.

    Args:
        module: Any module that torch.export takes.
        inputs: Input specs, as ``--input`` takes them; named ones go to ``forward`` by keyword.
        folder: Made where it isn't there. A module with the same class and weights is exported once.

    Raises:
        UsageError: No input specs, or one inside a dict or tuple.
        ModelError: torch.export cannot capture the module.
    """
    if not inputs:
        raise UsageError("A module doesn't say what it takes.", "Give the recipe input=['1x3x224x224'] or the like.")
    specs = parse_inputs(inputs)
    if any("." in s.name for s in specs):
        raise UsageError("Inputs inside a dict or tuple need a file.", "Save the weights and give the recipe 'code'.")
    digest = hashlib.sha256(repr((module, inputs)).encode())
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    path = folder / f"{type(module).__name__}-{digest.hexdigest()[:12]}.pt2"
    if path.is_file():
        return path
    signature = Signature(tuple(TensorSpec(s.name or str(i), s.dtype, s.shape) for i, s in enumerate(specs)))
    probes = {n: torch.from_numpy(a) for n, a in probe_inputs(signature, 2, 0).items()}
    axes = {
        s.name: {axis: torch.export.Dim.AUTO for axis, d in enumerate(s.shape) if isinstance(d, str)}
        for s in signature.inputs
    }
    parameters = list(inspect.signature(module.forward).parameters)
    by_name = {s.name or parameters[i]: str(i) if not s.name else s.name for i, s in enumerate(specs)}
    in_order = list(by_name) == parameters[: len(by_name)]
    evaluated = copy.deepcopy(module).eval().cpu()
    try:
        program = torch.export.export(
            evaluated,
            tuple(probes[key] for key in by_name.values()) if in_order else (),
            {} if in_order else {name: probes[key] for name, key in by_name.items()},
            dynamic_shapes={name: axes[key] for name, key in by_name.items()},
        )
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelError(
            f"torch.export cannot capture {type(module).__name__}: {reason}", "Save it to a file and give 'code'."
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.tmp")
    with part.open("wb") as file:
        torch.export.save(program, file)
    part.replace(path)
    return path
