"""The batch axis: whether a file fixes its size, and how to run any number of rows through it all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from compress.artifact import Signature
from compress.data.base import Array
from compress.errors import ModelError


class Inferring(Protocol):
    """What runs a model: a runner, or the process that holds one."""

    @property
    def signature(self) -> Signature:
        """Inputs and outputs."""

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once."""


def fixed_batch(signature: Signature) -> int | None:
    """Return the batch size that a file is fixed to; None where it takes any."""
    first = [spec.shape[0] for spec in signature.inputs if spec.shape]
    if not first or any(isinstance(size, str) for size in first):
        return None
    return int(first[0])


def filled(inputs: Mapping[str, Array], rows: int, size: int) -> Iterator[dict[str, Array]]:
    """Yield ``rows`` rows in pieces of ``size``; the last piece is filled up by repeating its last row.

    Args:
        inputs: Arrays by name; those whose first axis has ``rows`` entries are cut.
        rows: Rows there are.
        size: Rows a piece.
    """
    batched = {name for name, array in inputs.items() if array.ndim and array.shape[0] == rows}
    for start in range(0, rows, size):
        index = np.minimum(np.arange(start, start + size), rows - 1)
        yield {name: array[index] if name in batched else array for name, array in inputs.items()}


def infer_rows(process: Inferring, inputs: Mapping[str, Array], rows: int) -> dict[str, Array]:
    """Run ``rows`` rows, whatever batch size the file is fixed to.

    A file with a fixed batch size gets them in pieces of that size. The last piece is filled up by repeating its last
    row, and what that adds to the outputs is cut off.

    Args:
        process: Runs the model.
        inputs: Arrays by input name; those whose first axis has ``rows`` entries are batched.
        rows: Rows in the batch.

    Raises:
        ModelError: An output of a model with a fixed batch size has no batch axis to put the pieces together along.
    """
    size = fixed_batch(process.signature)
    if size is None or size == rows:
        return process.infer(inputs)
    pieces: dict[str, list[Array]] = {}
    for start, piece in zip(range(0, rows, size), filled(inputs, rows, size), strict=True):
        for name, output in process.infer(piece).items():
            if not output.ndim or output.shape[0] != size:
                raise ModelError(
                    f"The batch size is fixed at {size}, and output {name} with shape {list(output.shape)} has no axis "
                    f"of that size, so {rows} samples cannot be run through it.",
                    f"Use a batch size of {size}.",
                )
            pieces.setdefault(name, []).append(output[: rows - start])
    return {name: np.concatenate(parts) for name, parts in pieces.items()}
