"""What a user's own loader may hand over, turned into arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from compress.data.arrays import LABEL_KEYS
from compress.data.base import Array
from compress.data.labels import tidy_labels
from compress.errors import DataError

_ALLOWED = "Give arrays or tensors: (inputs, targets), inputs alone, or a dict by input name with 'labels'."


@dataclasses.dataclass(frozen=True)
class Item:
    """Some samples: inputs by name, tidy labels or None, and their number."""

    inputs: Mapping[str, Array]
    targets: Array | None
    count: int

    def rows(self, start: int, stop: int) -> Item:
        """Return a range of its samples."""
        return self.take(np.arange(start, min(stop, self.count)))

    def take(self, rows: Array) -> Item:
        """Return the samples at these rows."""
        targets = None if self.targets is None else self.targets[rows]
        return Item({k: a[rows] for k, a in self.inputs.items()}, targets, len(rows))

    def fits(self, other: Item) -> bool:
        """Tell whether two items can be put into one batch."""
        mine = {k: (a.shape[1:], a.dtype) for k, a in self.inputs.items()}
        return mine == {k: (a.shape[1:], a.dtype) for k, a in other.inputs.items()}


def join(items: list[Item]) -> Item:
    """Return one item with the samples of all; they must fit."""
    if len(items) == 1:
        return items[0]
    targets = [i.targets for i in items if i.targets is not None]
    return Item(
        {k: np.concatenate([i.inputs[k] for i in items]) for k in items[0].inputs},
        np.concatenate(targets) if targets else None,
        sum(i.count for i in items),
    )


def to_item(value: Any, where: str, *, sample: bool) -> Item:
    """Read one thing that a loader yields.

    Args:
        value: ``(inputs, targets)``, inputs alone, or a dict with the labels under ``labels``, ``y``, … ; inputs are an
            array, several in a tuple or list (bound by position), or a dict by name.
        where: Names it, for messages.
        sample: It is one sample without a batch axis; also assumed where the target is a single number.

    Raises:
        DataError: It is none of these, or its arrays differ in their number of samples.
    """
    targets: Any = None
    if isinstance(value, (tuple, list)) and len(value) == 2 and not isinstance(value[0], (int, float)):
        value, targets = value
    elif isinstance(value, (tuple, list)) and len(value) == 1:
        value = value[0]
    elif isinstance(value, (tuple, list)):
        raise DataError(f"{where} is a {type(value).__name__} of {len(value)}, not (inputs, targets).", _ALLOWED)
    if isinstance(value, Mapping):
        keys = [k for k in LABEL_KEYS if k in value]
        if keys and targets is None:
            targets = value[keys[0]]
        named = {str(k): v for k, v in value.items() if k not in keys}
    elif isinstance(value, (tuple, list)):
        named = {str(i): v for i, v in enumerate(value)}
    else:
        named = {"0": value}
    inputs = {k: _array(v, f"{where}, input '{k}'") for k, v in named.items()}
    labels = None if targets is None else _array(targets, f"{where}, target")
    if not inputs:
        raise DataError(f"{where} has no inputs.", _ALLOWED)
    if sample or (labels is not None and labels.ndim == 0):
        inputs = {k: a[None] for k, a in inputs.items()}
        labels = None if labels is None else labels[None]
    sizes = {k: len(a) if a.ndim else 0 for k, a in inputs.items()}
    if labels is not None:
        sizes["targets"] = len(labels)
    if len(set(sizes.values())) > 1:
        raise DataError(
            f"{where}: arrays differ in their number of samples: {', '.join(f'{k} {n}' for k, n in sizes.items())}.",
            _ALLOWED,
        )
    return Item(inputs, None if labels is None else tidy_labels(labels, where), next(iter(sizes.values())))


def _array(value: Any, where: str) -> Array:
    if hasattr(value, "detach"):  # a torch tensor, recognized without loading torch
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        value = value.numpy()
    try:
        array: Array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{where} is no regular array ({error}).", _ALLOWED) from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{where} is a {type(value).__name__}, not an array of numbers.", _ALLOWED)
    return array
