"""Data bound to the model that was handed over also suits a file that dropped an input nothing reads."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from compress.artifact import Signature, TensorSpec
from compress.data.base import Batch
from compress.data.bind import bind
from compress.errors import DataError
from compress.pipeline.samples import Bound, Probes, TimingInputs

FULL = Signature((TensorSpec("ids", "int64", ("batch", 2)), TensorSpec("mask", "float32", ("batch", 2))))
LESS = Signature((TensorSpec("ids", "int64", ("batch", 2)),))


class _Two:
    name, labelled, classes, task, dynamic_axes = "two", False, None, "unknown", MappingProxyType({})

    def __len__(self):
        return 3

    def batches(self, size, limit=None):
        for start in range(0, min(3, limit or 3), size):
            rows = np.arange(start, min(start + size, limit or 3, 3))[:, None] + np.zeros((1, 2), np.int64)
            yield Batch({"0": rows, "1": rows.astype(np.float32)}, None, len(rows))

    def subset(self, samples, seed):
        return self

    def fingerprint(self):
        return "two"


def test_a_dropped_input_is_not_fed():
    """pytorch/pytorch#104949: feed by the names in the graph."""
    (batch,) = Bound(_Two(), FULL).batches(3)
    assert list(bind(batch, FULL)) == ["ids", "mask"]
    assert list(bind(batch, LESS)) == ["ids"]
    assert bind(batch, LESS)["ids"][:, 0].tolist() == [0, 1, 2]


def test_data_that_was_never_bound_must_fit():
    batch = next(_Two().batches(3))
    with pytest.raises(DataError, match="2 inputs"):
        bind(batch, LESS)


@pytest.mark.parametrize("dataset", [Bound(_Two(), FULL), Probes(FULL, 0)])
def test_timing_inputs_repeat_samples_and_suit_both(dataset):
    inputs = TimingInputs(dataset)
    assert {n: a.shape for n, a in inputs(FULL, 5).items()} == {"ids": (5, 2), "mask": (5, 2)}
    assert list(inputs(LESS, 5)) == ["ids"]
    assert inputs(LESS, 5)["ids"][3, 0] == inputs(LESS, 5)["ids"][0, 0] or isinstance(dataset, Probes)
