"""Running a network a few times to learn what it gives back and which of its axes vary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from compress.artifact import BATCH, Dim, Signature, TensorSpec
from compress.data.base import Array
from compress.errors import ModelError
from compress.load.flat import Flat, dropped, flatten, numpy_name
from compress.load.probe import default_sizes, is_image_axis, probe_inputs

_SAME = 1e-6  # of the largest output; repeated passes on one machine differ by less


@dataclasses.dataclass(frozen=True)
class _Run:
    sizes: Mapping[str, int]
    outputs: tuple[tuple[str, torch.Tensor], ...]
    dropped: tuple[str, ...]


def dry_run(
    flat: Flat, inputs: tuple[TensorSpec, ...], what: str, sample: Mapping[str, Array] | None = None, seed: int = 0
) -> tuple[Signature, tuple[str, ...]]:
    """Run a network at two batch sizes (and two sizes of each further symbol) and describe its outputs.

    Args:
        flat: The network.
        inputs: Its inputs.
        what: Its name, for messages.
        sample: Real inputs to use where there are any.
        seed: Seeds random inputs.

    Returns:
        The signature with outputs; an axis that follows a symbol has that symbol. Where the batch size cannot be
        varied, the axis is a number and a note says so. Also notes: outputs that change between two identical passes,
        values dropped.

    Raises:
        ModelError: The network doesn't run on such inputs, or gives no tensor.
    """
    signature = Signature(inputs)
    notes: list[str] = []
    runs, fixed = _at_two_batch_sizes(flat, signature, what, sample, seed)
    first = runs[0]
    if fixed is not None:
        shapes = [tuple(fixed if d == BATCH else d for d in spec.shape) for spec in inputs]
        inputs = tuple(dataclasses.replace(s, shape=shape) for s, shape in zip(inputs, shapes, strict=True))
        signature = Signature(inputs)
        notes.append(f"the batch size cannot be varied: the model runs with a batch of {fixed} only")
    if not first.outputs:
        raise ModelError(
            f"{what} gives no tensor, but {', '.join(first.dropped) or 'None'}.", "Its forward must return one."
        )
    if first.dropped:
        notes.append(f"outputs that are no tensors are left out ({', '.join(dict.fromkeys(first.dropped))})")
    notes += _determinism(flat, signature, first, sample, seed)
    for symbol in (s for s in signature.symbols if s != BATCH):
        step = 32 if any(is_image_axis(s, s.shape.index(symbol)) for s in inputs if symbol in s.shape) else 1
        other = {**first.sizes, symbol: first.sizes[symbol] + step}
        try:
            runs.append(_run(flat, signature, other, sample, seed))
        except Exception as error:  # the network's own code: any error means that this size doesn't suit it
            raise ModelError(
                f"{what} doesn't run with {symbol}={other[symbol]}, though it does with {first.sizes[symbol]}: "
                f"{_said(error)}.",
                "Write a number instead of the name in --input.",
            ) from error
    return Signature(inputs, _outputs(runs, {s.name for s in inputs})), tuple(notes)


def _at_two_batch_sizes(
    flat: Flat, signature: Signature, what: str, sample: Mapping[str, Array] | None, seed: int
) -> tuple[list[_Run], int | None]:
    """Return runs at two batch sizes; or one run, and the only size that works."""
    defaults = default_sizes(signature, sample)
    sizes = (2, 3, 4, 1) if BATCH in signature.symbols else (1,)
    runs: list[_Run] = []
    failure: Exception | None = None
    for size in sizes:
        try:
            runs.append(_run(flat, signature, {**defaults, BATCH: size}, sample, seed))
        except Exception as error:  # noqa: BLE001 - kept, and raised below where no size works
            failure = failure or error
        if len(runs) == 2:
            break
    if not runs:
        raise ModelError(
            f"{what} doesn't run on inputs {', '.join(map(str, signature.inputs))}: {_said(failure)}.",
            "Check the shape and element type of --input.",
        ) from failure
    lone = len(runs) == 1 and BATCH in signature.symbols
    return runs, runs[0].sizes[BATCH] if lone else None


def _run(
    flat: Flat, signature: Signature, sizes: Mapping[str, int], sample: Mapping[str, Array] | None, seed: int
) -> _Run:
    arrays = probe_inputs(signature, sizes[BATCH], seed, sample, sizes)
    tensors = [torch.from_numpy(arrays[s.name]) for s in signature.inputs]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        result: Any = flat.call(*tensors)
    return _Run(dict(sizes), tuple(flatten(result)), tuple(dropped(result)))


def _determinism(
    flat: Flat, signature: Signature, first: _Run, sample: Mapping[str, Array] | None, seed: int
) -> list[str]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)  # a network that draws random numbers must draw others than before
        again = _run(flat, signature, first.sizes, sample, seed)
    worst = 0.0
    for (_, a), (_, b) in zip(first.outputs, again.outputs, strict=False):
        if a.shape == b.shape and a.numel() and a.dtype.is_floating_point:
            difference = (a.double() - b.double()).abs().max().item()
            worst = max(worst, difference if difference > _SAME * a.double().abs().max().item() else 0.0)
    if worst == 0.0:
        return []
    return [
        f"outputs change between identical passes (max difference {worst:.3g}), in evaluation mode: dropout without "
        "training=self.training, or another source of randomness"
    ]


def _outputs(runs: list[_Run], inputs: set[str]) -> tuple[TensorSpec, ...]:
    first = runs[0]
    specs = []
    for index, (path, tensor) in enumerate(first.outputs):
        name = _output_name(path)
        name = f"{name}_out" if name in inputs else name
        shape: list[Dim] = []
        for axis, size in enumerate(tensor.shape):
            followed: list[str | None] = []
            for other in runs[1:]:
                changed = _size(other, index, axis)
                if changed == size:
                    continue
                symbol = next(s for s in other.sizes if other.sizes[s] != first.sizes[s])
                same = size == first.sizes[symbol] and changed == other.sizes[symbol]
                followed.append(symbol if same else None)
            shape.append(
                size if not followed else followed[0] if len(followed) == 1 and followed[0] else f"{name}_dim{axis}"
            )
        dtype = "float32" if tensor.dtype == torch.bfloat16 else numpy_name(tensor.dtype)
        specs.append(TensorSpec(name, dtype, tuple(shape)))
    return tuple(specs)


def _size(run: _Run, output: int, axis: int) -> int:
    """Return the size of an output's axis; -1 where that run gave no such axis."""
    if output >= len(run.outputs) or axis >= run.outputs[output][1].dim():
        return -1
    return run.outputs[output][1].shape[axis]


def _output_name(path: str) -> str:
    if not path:
        return "output"
    return f"output_{path}" if path[0].isdigit() else path


def _said(error: BaseException | None) -> str:
    first = next(iter(str(error).strip().splitlines()), "").rstrip(".")
    return f"{type(error).__name__}: {first}"
