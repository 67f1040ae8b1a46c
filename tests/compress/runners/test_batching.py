"""Any number of rows through a file that fixes its batch size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from compress.artifact import Signature, TensorSpec
from compress.data.base import Array
from compress.errors import ModelError
from compress.runners.batching import fixed_batch, infer_rows


class Doubler:
    """Doubles ``x``, in batches of a fixed size only."""

    def __init__(self, size: int | str, *, scalar: bool = False) -> None:
        self.signature = Signature((TensorSpec("x", "float32", (size, 2)), TensorSpec("scale", "float32", (1,))))
        self.sizes: list[int] = []
        self._scalar = scalar

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        assert inputs["scale"].shape == (1,)
        self.sizes.append(len(x))
        return {"y": np.asarray(np.sum(x)) if self._scalar else x * 2}


@pytest.mark.parametrize(
    ("size", "rows", "sizes"),
    [(4, 4, [4]), (4, 3, [4]), (4, 9, [4, 4, 4]), (1, 3, [1, 1, 1]), (8, 2, [8])],
)
def test_pieces_are_filled_up_and_cut(size: int, rows: int, sizes: list[int]) -> None:
    model = Doubler(size)
    x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    outputs = infer_rows(model, {"x": x, "scale": np.ones(1, np.float32)}, rows)
    np.testing.assert_array_equal(outputs["y"], x * 2)
    assert model.sizes == sizes


def test_a_dynamic_batch_goes_through_whole() -> None:
    signature = Signature((TensorSpec("x", "float32", ("batch", 2)), TensorSpec("scale", "float32", (1,))))
    assert fixed_batch(signature) is None
    assert fixed_batch(Signature((TensorSpec("step", "int64", ()), TensorSpec("x", "float32", (6, 2))))) == 6


def test_an_output_without_a_batch_axis_is_refused() -> None:
    with pytest.raises(ModelError, match="fixed at 4, and output y"):
        infer_rows(Doubler(4, scalar=True), {"x": np.ones((6, 2), np.float32), "scale": np.ones(1, np.float32)}, 6)
