"""A layer as a matrix product: rows of its inputs, and its weight as matrices, group by group."""

from __future__ import annotations

import abc
import dataclasses

import numpy as np
import onnx

from compress.data.base import Array
from compress.passes.int8.weights import attributes, output_axis


@dataclasses.dataclass(frozen=True)
class Rows(abc.ABC):
    """How inputs and weight of one layer become matrices: ``[rows, groups, taps]`` times ``[groups, taps, outputs]``.

    Attributes:
        groups: Groups of a grouped convolution, else 1.
        taps: Inputs of one output.
    """

    groups: int
    taps: int

    @abc.abstractmethod
    def sample(self, values: Array, count: int, chance: np.random.Generator) -> Array:
        """Return float32 ``[count or fewer, groups, taps]``: what some outputs are made of."""

    @abc.abstractmethod
    def as_matrix(self, weight: Array) -> Array:
        """Return a weight, or something of its shape, as ``[groups, taps, outputs]``."""

    @abc.abstractmethod
    def from_matrix(self, matrix: Array, shape: tuple[int, ...]) -> Array:
        """Undo :meth:`as_matrix`."""


def layer_rows(node: onnx.NodeProto, shape: tuple[int, ...]) -> Rows | None:
    """Return how a layer becomes a matrix product; None for layers of other kinds.

    Args:
        node: A Conv, Gemm or MatMul whose second input is its weight.
        shape: The weight's shape.
    """
    settings = attributes(node)
    if node.op_type == "Conv" and len(shape) == 4 and settings.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID"):
        group = int(str(settings.get("group", 1)))
        pads, strides, dilations = (settings.get(k) for k in ("pads", "strides", "dilations"))
        return _Patches(
            group,
            int(np.prod(shape[1:])),
            shape[2:],
            tuple(pads) if isinstance(pads, list) else (0, 0, 0, 0),
            tuple(strides) if isinstance(strides, list) else (1, 1),
            tuple(dilations) if isinstance(dilations, list) else (1, 1),
        )
    if node.op_type == "Gemm" and not settings.get("transA") and settings.get("alpha", 1.0) == 1.0:
        return _Vectors(1, shape[1 - output_axis(node, 2)], output_axis(node, 2) == 0)
    if node.op_type == "MatMul" and len(shape) == 2:
        return _Vectors(1, shape[0], transposed=False)
    return None


@dataclasses.dataclass(frozen=True)
class _Vectors(Rows):
    transposed: bool

    def sample(self, values: Array, count: int, chance: np.random.Generator) -> Array:
        rows = values.reshape(-1, self.taps)
        chosen = chance.choice(len(rows), min(count, len(rows)), replace=False)
        return np.asarray(rows[chosen], np.float32).reshape(-1, 1, self.taps)

    def as_matrix(self, weight: Array) -> Array:
        return np.ascontiguousarray(weight.T if self.transposed else weight)[None]

    def from_matrix(self, matrix: Array, shape: tuple[int, ...]) -> Array:
        return np.asarray(matrix[0].T if self.transposed else matrix[0])


@dataclasses.dataclass(frozen=True)
class _Patches(Rows):
    kernel: tuple[int, ...]
    pads: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    def sample(self, values: Array, count: int, chance: np.random.Generator) -> Array:
        top, left, bottom, right = self.pads
        padded = np.pad(values, ((0, 0), (0, 0), (top, bottom), (left, right)))
        reach = [(k - 1) * d for k, d in zip(self.kernel, self.dilations, strict=True)]
        sizes = [(s - r - 1) // t + 1 for s, r, t in zip(padded.shape[2:], reach, self.strides, strict=True)]
        places = len(values) * sizes[0] * sizes[1]
        if min(places, *sizes) <= 0:
            return np.zeros((0, self.groups, self.taps), np.float32)
        chosen = chance.choice(places, min(count, places), replace=False)
        image, row, column = np.unravel_index(chosen, (len(values), *sizes))
        down = row[:, None] * self.strides[0] + np.arange(self.kernel[0]) * self.dilations[0]
        across = column[:, None] * self.strides[1] + np.arange(self.kernel[1]) * self.dilations[1]
        # Index arrays on both sides of the channels' slice put the channels last: [count, height, width, channels].
        found = padded[image[:, None, None], :, down[:, :, None], across[:, None, :]]
        found = found.transpose(0, 3, 1, 2).reshape(len(chosen), self.groups, self.taps)
        return np.asarray(found, np.float32)

    def as_matrix(self, weight: Array) -> Array:
        parts = weight.reshape(self.groups, weight.shape[0] // self.groups, self.taps)
        return np.ascontiguousarray(parts.transpose(0, 2, 1))

    def from_matrix(self, matrix: Array, shape: tuple[int, ...]) -> Array:
        return np.asarray(matrix.transpose(0, 2, 1).reshape(shape))
