"""A network as a plain function of tensors: tensors in, in the signature's order, and a tuple of tensors out."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from compress.errors import ModelError
from compress.load.spec import InputSpec

Slot = Any
"""Where a tensor goes: its position, or a dict or tuple of slots."""


def numpy_name(dtype: torch.dtype) -> str:
    """Return NumPy's name of an element type; bfloat16, which NumPy lacks, keeps torch's."""
    return str(dtype).removeprefix("torch.")


@dataclasses.dataclass(frozen=True)
class Binding:
    """How tensors become the arguments of ``forward``.

    Attributes:
        names: Names of the inputs, in order.
        positional: Slots of positional arguments.
        keyword: Slots of keyword arguments by name.
    """

    names: tuple[str, ...]
    positional: tuple[Slot, ...]
    keyword: Mapping[str, Slot]


class Flat(nn.Module):
    """Calls a network with tensors by position and returns a tuple of its output tensors; never trains.

    Outputs inside dicts, tuples, lists and dataclasses are taken out in their order; None and non-tensors are dropped.
    """

    def __init__(self, inner: nn.Module, binding: Binding | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.binding = binding
        self.training = False

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the network."""
        return tuple(tensor for _, tensor in flatten(self.call(*tensors)))

    def call(self, *tensors: torch.Tensor) -> Any:
        """Run the network and return its output as it is."""
        if self.binding is None:
            return self.inner(*tensors)
        args = [_fill(slot, tensors) for slot in self.binding.positional]
        return self.inner(*args, **{name: _fill(slot, tensors) for name, slot in self.binding.keyword.items()})

    def train(self, mode: bool = True) -> Flat:
        """Keep evaluation mode, whatever is asked."""
        return self


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors inside an output with their dotted paths (``logits``, ``0``, ``hidden.1``)."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key in value._fields:
            yield from flatten(getattr(value, key), f"{path}.{key}" if path else key)
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from flatten(item, f"{path}.{index}" if path else str(index))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from flatten(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)


def dropped(value: Any) -> list[str]:
    """Return the types of what :func:`flatten` leaves out of an output, None aside."""
    if value is None or isinstance(value, torch.Tensor):
        return []
    items: Sequence[Any]
    if isinstance(value, Mapping):
        items = list(value.values())
    elif isinstance(value, (tuple, list)):
        items = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [getattr(value, f.name) for f in dataclasses.fields(value)]
    else:
        return [type(value).__name__]
    return [name for item in items for name in dropped(item)]


def bind(module: nn.Module, specs: Sequence[InputSpec], what: str) -> Binding:
    """Decide how inputs reach ``forward``: by keyword where it has a parameter of that name, else by position.

    Args:
        module: The network.
        specs: Its inputs; those without a name get the name of the parameter at their position.
        what: The model's name, for messages.

    Raises:
        ModelError: ``forward`` has no parameter of a name, needs another one, or takes fewer inputs.
    """
    parameters = parameters_of(module)
    by_name = {p.name: p for p in parameters}
    open_names = any(p.kind is p.VAR_KEYWORD for p in parameters)
    in_order = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = _names(specs, in_order)
    roots: dict[str, Slot] = {}
    for index, name in enumerate(names):
        root, *rest = name.split(".")
        roots[root] = _placed(roots.get(root), rest, index)
    roots = {root: _tuples(slot) for root, slot in roots.items()}
    positional: list[Slot] = []
    keyword: dict[str, Slot] = {}
    strangers = [root for root in roots if root not in by_name and not open_names] if parameters else list(roots)
    variable = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for root, slot in roots.items():
        parameter = by_name.get(root)
        if parameter is None:
            by_position = root in strangers
        else:
            by_position = parameter.kind is parameter.POSITIONAL_ONLY or (
                # What comes before *args can only be given by position where *args is given anything.
                variable and bool(strangers) and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            )
        if by_position:
            positional.append(slot)
        else:
            keyword[root] = slot
    taken = ", ".join(p.name for p in parameters) or "nothing"
    if parameters and strangers and not variable:
        unnamed = [s for s in specs if not s.name]
        if len(unnamed) > len(in_order):
            known = f" ({', '.join(in_order)})" if in_order else ""
            raise ModelError(f"forward of {what} takes {len(in_order)} inputs by position{known}, not {len(unnamed)}.")
        if keyword or len(strangers) > max(len(in_order), 1):
            raise ModelError(f"forward of {what} has no parameter '{strangers[0]}'; it takes {taken}.", "Mend --input.")
    if parameters:
        try:
            inspect.Signature(parameters).bind(*positional, **keyword)
        except TypeError as error:
            raise ModelError(
                f"forward of {what} takes {taken}, which doesn't suit the inputs {', '.join(names)}: {error}.",
                "Give each with --input NAME:DTYPE:SHAPE.",
            ) from error
    return Binding(tuple(names), tuple(positional), keyword)


def parameters_of(module: nn.Module) -> list[inspect.Parameter]:
    """Return the parameters of ``forward``; none where it doesn't tell."""
    if isinstance(module, torch.jit.ScriptModule):
        arguments = list(module.forward.schema.arguments)[1:]  # type: ignore[attr-defined]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        empty = inspect.Parameter.empty
        return [
            inspect.Parameter(a.name, kind, default=a.default_value if a.has_default_value() else empty)
            for a in arguments
        ]
    try:
        return list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return []


def _names(specs: Sequence[InputSpec], in_order: list[str]) -> list[str]:
    given = {s.name for s in specs}
    names = []
    for index, spec in enumerate(specs):
        plain = "input" if len(specs) == 1 else f"input_{index}"
        free = index < len(in_order) and in_order[index] not in given
        names.append(spec.name or (in_order[index] if free else plain))
    return names


def _placed(slot: Slot, rest: list[str], index: int) -> Slot:
    if not rest:
        return index
    inside = dict(slot) if isinstance(slot, dict) else {}
    inside[rest[0]] = _placed(inside.get(rest[0]), rest[1:], index)
    return inside


def _tuples(slot: Slot) -> Slot:
    """Turn dicts whose keys are 0, 1, … into tuples."""
    if not isinstance(slot, dict):
        return slot
    inside = {key: _tuples(item) for key, item in slot.items()}
    if set(inside) == {str(i) for i in range(len(inside))}:
        return tuple(inside[str(i)] for i in range(len(inside)))
    return inside


def _fill(slot: Slot, tensors: tuple[torch.Tensor, ...]) -> Any:
    if isinstance(slot, int):
        return tensors[slot]
    if isinstance(slot, dict):
        return {key: _fill(item, tensors) for key, item in slot.items()}
    return tuple(_fill(item, tensors) for item in slot)
