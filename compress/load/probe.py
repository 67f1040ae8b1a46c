"""Inputs to try a model on: real ones where there are any, else random. For checking only, never for calibration."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compress.artifact import BATCH, Signature, TensorSpec
from compress.data.base import Array

_IMAGE_SIDE = 64
_SEQUENCE = 16
_SMALL_INTEGERS = 10


def probe_inputs(
    signature: Signature,
    batch: int,
    seed: int,
    sample: Mapping[str, Array] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """Make one batch of inputs.

    With a ``sample`` its rows are drawn (repeated where it has too few) and its axes keep their sizes unless ``sizes``
    says otherwise. Without one: standard normal floats, integers from 0 to 9, ones where the name holds ``mask``.

    Args:
        signature: What to make; an array for each of its inputs.
        batch: Size of the axis ``"batch"``; a fixed first axis keeps its own.
        seed: Seeds the values and the order of rows.
        sample: Real inputs by name, or by position (``"0"``, ``"1"``, …).
        sizes: Size of each further symbol; :func:`default_sizes` fills what is missing.

    Returns:
        Arrays by input name, in the signature's dtypes.
    """
    rng = np.random.default_rng(seed)
    known = dict(sizes or {})
    known[BATCH] = batch
    defaults = default_sizes(signature, sample)
    rows: dict[tuple[int, int], Array] = {}
    made: dict[str, Array] = {}
    for position, spec in enumerate(signature.inputs):
        shape = spec.concrete({**defaults, **known})
        real = _real(sample, spec.name, position)
        if real is None or real.ndim != len(shape) or not real.size:
            made[spec.name] = _random(spec, shape, rng)
            continue
        if shape:
            # The same rows of every input: a mask must stay with its text.
            key = (len(real), shape[0])
            if key not in rows:
                rows[key] = np.resize(rng.permutation(len(real)), shape[0])
            real = real[rows[key]]
            for axis in range(1, real.ndim):
                if real.shape[axis] != shape[axis]:
                    real = np.take(real, np.arange(shape[axis]) % real.shape[axis], axis=axis)
        made[spec.name] = np.ascontiguousarray(real, dtype=spec.dtype)
    return made


def default_sizes(signature: Signature, sample: Mapping[str, Array] | None = None) -> dict[str, int]:
    """Return a size for each symbol but the batch's: the sample's, else 64 a side of an image, 16 elsewhere."""
    sizes: dict[str, int] = {}
    for position, spec in enumerate(signature.inputs):
        real = _real(sample, spec.name, position)
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, int) or dim == BATCH or dim in sizes:
                continue
            if real is not None and real.ndim == len(spec.shape) and real.shape[axis]:
                sizes[dim] = real.shape[axis]
            else:
                sizes[dim] = _IMAGE_SIDE if is_image_axis(spec, axis) else _SEQUENCE
    return sizes


def is_image_axis(spec: TensorSpec, axis: int) -> bool:
    """Whether an axis looks like a side of an image: one of the last two or three of a 4- or 5-axis float input."""
    return len(spec.shape) >= 4 and axis >= 2 and spec.dtype.startswith("float")


def _real(sample: Mapping[str, Array] | None, name: str, position: int) -> Array | None:
    if not sample:
        return None
    found = sample.get(name, sample.get(str(position)))
    return None if found is None else np.asarray(found)


def _random(spec: TensorSpec, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if "mask" in spec.name.lower():
        return np.ones(shape, spec.dtype)
    if spec.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if spec.dtype.startswith("float"):
        return rng.standard_normal(shape).astype(spec.dtype)
    return rng.integers(0, _SMALL_INTEGERS, shape).astype(spec.dtype)
