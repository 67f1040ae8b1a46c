"""From the arrays of a batch to the inputs of a model, by name or by position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compress.artifact import Signature, TensorSpec
from compress.data.base import Array, Batch
from compress.data.text import TENSORS
from compress.errors import DataError, ModelError

_PREPROCESS = "Preprocessing is set with --preprocess."


def bind(batch: Batch | Mapping[str, Array], signature: Signature) -> dict[str, Array]:
    """Return the arrays that a model takes, by its input names, in its types.

    Names decide where all inputs are found by name. Else arrays called ``0``, ``1``, … bind in that order, token arrays
    in the order ids, mask, types, and a single array to a single input. Token arrays that the model doesn't take are
    left out; any other surplus is an error, but for batches that were bound to the model that was handed over: a file
    made of it drops inputs that nothing reads. Types change only where no value does (integers that fit, float32 from
    float64, floating point from booleans), and to half precision where the input is of it.

    Args:
        batch: Inputs by name.
        signature: What the model takes.

    Raises:
        DataError: Arrays and inputs don't match in names, number, type or shape.
    """
    inputs = batch.inputs if isinstance(batch, Batch) else batch
    names = {spec.name for spec in signature.inputs}
    if isinstance(batch, Batch) and batch.bound and names <= set(inputs):
        inputs = {name: array for name, array in inputs.items() if name in names}
    matched = _match(inputs, signature.inputs)
    bound = {spec.name: _cast(array, spec) for spec, array in matched}
    sizes: dict[str, tuple[int, str]] = {}
    for spec, _ in matched:
        _check_shape(bound[spec.name], spec, sizes, any_rows=isinstance(batch, Batch))
    return bound


def _match(inputs: Mapping[str, Array], specs: tuple[TensorSpec, ...]) -> list[tuple[TensorSpec, Array]]:
    names = [s.name for s in specs]
    text = set(inputs) <= set(TENSORS)
    if set(names) <= set(inputs) and (text or len(inputs) == len(names)):
        return [(s, inputs[s.name]) for s in specs]
    if len(inputs) == len(specs) == 1:
        return [(specs[0], next(iter(inputs.values())))]
    if len(inputs) == len(specs) and set(inputs) == {str(i) for i in range(len(specs))}:
        return [(s, inputs[str(i)]) for i, s in enumerate(specs)]
    if text and not set(names) & set(inputs) and len(specs) <= len(inputs):
        ordered = [inputs[t] for t in TENSORS if t in inputs]
        return list(zip(specs, ordered, strict=False))
    raise DataError(
        f"The data has {_listed(list(inputs))}, the model takes {_listed(names)}.",
        "Call the arrays as the model's inputs are called, or 0, 1, … in their order.",
    )


def _listed(names: list[str]) -> str:
    return f"{len(names)} input{'' if len(names) == 1 else 's'} ({', '.join(names)})"


def _cast(array: Array, spec: TensorSpec) -> Array:
    wanted = _dtype(spec)
    have = array.dtype
    if have == wanted:
        return array
    float_like = wanted.kind == "f" or spec.dtype == "bfloat16"
    if have.kind in "iu" and wanted.kind in "iu":
        limits = np.iinfo(wanted.name)
        if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
            raise DataError(
                f"Input {spec.name} is {spec.dtype}, but the data has values from {array.min()} to {array.max()}."
            )
        return array.astype(wanted)
    if have.kind == "f" and float_like:
        with np.errstate(over="ignore"):
            cast: Array = array.astype(wanted)
        if array.size and bool(np.isfinite(array).all()) and not bool(np.isfinite(cast.astype(np.float32)).all()):
            raise DataError(
                f"Input {spec.name} is {spec.dtype}, which cannot hold the data's values (to {np.abs(array).max():g}).",
                "Scale the data, or keep the model's inputs in float32.",
            )
        return cast
    if have.kind == "b":
        return array.astype(wanted)
    hint = (
        "Set scale, mean and std as the model was trained with, or preprocess 'none' for pixels as they are."
        if have.kind in "iu" and float_like
        else ""
    )
    raise DataError(f"Input {spec.name} takes {spec.dtype}, the data is {have}.", f"{hint} {_PREPROCESS}".strip())


def _dtype(spec: TensorSpec) -> np.dtype[Any]:
    try:
        return np.dtype(spec.dtype)
    except TypeError:
        import ml_dtypes

        if not hasattr(ml_dtypes, spec.dtype):
            raise ModelError(f"Input {spec.name} has the unknown type {spec.dtype}.") from None
        made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, spec.dtype))
        return made


def _check_shape(array: Array, spec: TensorSpec, sizes: dict[str, tuple[int, str]], *, any_rows: bool) -> None:
    """Compare with the fixed dimensions, and the sizes of symbols with those met before.

    With ``any_rows`` a fixed batch axis isn't compared: who runs the batch cuts and fills it to that size.
    """
    pairs = list(zip(spec.shape, array.shape, strict=False))[1 if any_rows else 0 :]
    fits = array.ndim == len(spec.shape) and all(d == n for d, n in pairs if isinstance(d, int))
    if not fits:
        raise DataError(
            f"Input {spec.name} takes [{', '.join(map(str, spec.shape))}], the data is "
            f"[{', '.join(map(str, array.shape))}].",
            _shape_hint(array.shape, spec),
        )
    for dimension, size in zip(spec.shape, array.shape, strict=True):
        if isinstance(dimension, int):
            continue
        known, name = sizes.setdefault(dimension, (size, spec.name))
        if known != size:
            raise DataError(f"Inputs {name} and {spec.name} differ in size along '{dimension}': {known} and {size}.")


def _shape_hint(shape: tuple[int, ...], spec: TensorSpec) -> str:
    wanted = spec.shape
    if len(shape) != len(wanted):
        return f"The number of axes differs. {_PREPROCESS}"
    different = [axis for axis, (d, n) in enumerate(zip(wanted, shape, strict=True)) if isinstance(d, int) and d != n]
    if different == [0]:
        return f"The model takes batches of {wanted[0]} only."
    if len(shape) != 4:
        return _PREPROCESS
    for layout, moved in (("NHWC", (0, 2, 3, 1)), ("NCHW", (0, 3, 1, 2))):
        turned = [shape[a] for a in moved]
        if all(d == n for d, n in zip(wanted[1:], turned[1:], strict=True) if isinstance(d, int)):
            return f"Set layout: {layout} in the preprocess settings. {_PREPROCESS}"
    channels_last = wanted[3] in (1, 3) and wanted[1] not in (1, 3)
    if (wanted[3] if channels_last else wanted[1]) == (shape[3] if channels_last else shape[1]):
        height, width = wanted[1:3] if channels_last else wanted[2:4]
        return f"Set resize: [{height}, {width}] (or resize and crop) in the preprocess settings. {_PREPROCESS}"
    return f"Set channels in the preprocess settings to what the model takes. {_PREPROCESS}"
