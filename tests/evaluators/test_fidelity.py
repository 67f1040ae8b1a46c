"""Closeness to the baseline, batch by batch, whatever the batch sizes."""

from __future__ import annotations

import numpy as np
import pytest

from compress.errors import StageError
from evaluators.fidelity import Comparison, Reference, compare_outputs

RNG = np.random.default_rng(0)
BASE, OTHER = RNG.standard_normal((2, 12, 5))


def reference_of(sizes: list[int], **settings: int) -> Reference:
    reference = Reference(**settings)
    for part in np.split(BASE, np.cumsum(sizes)[:-1]):
        reference({"y": part})
    return reference


@pytest.mark.parametrize("ours", [[12], [4, 4, 4], [1] * 12, [5, 5, 2], [8, 4]])
@pytest.mark.parametrize("theirs", [[12], [5, 5, 2], [4, 4, 4]])
def test_rows_line_up_whatever_the_batches(theirs: list[int], ours: list[int]) -> None:
    comparison = Comparison(reference_of(theirs), "variant")
    for part in np.split(OTHER, np.cumsum(ours)[:-1]):
        comparison({"y": part})
    wanted, found = compare_outputs({"y": BASE}, {"y": OTHER}), comparison.result()
    assert found.sqnr_db == pytest.approx(wanted.sqnr_db)
    assert found.cosine == pytest.approx(wanted.cosine)
    assert (found.top1_agreement, found.samples) == (wanted.top1_agreement, 12)


def test_what_wasnt_kept_isnt_compared() -> None:
    comparison = Comparison(reference_of([4, 4, 4], limit_bytes=5 * 5 * 8), "variant")
    for part in np.split(BASE, [5, 10]):
        comparison({"y": part})
    found = comparison.result()
    assert (found.samples, found.sqnr_db) == (4, 200)


def test_agreement_is_for_classes() -> None:
    comparison = Comparison(reference_of([12]), "variant")
    comparison({"y": BASE})
    assert comparison.result(classes=False).top1_agreement is None


def test_other_shapes_are_an_error() -> None:
    comparison = Comparison(reference_of([12]), "variant")
    with pytest.raises(StageError, match="variant cannot be compared with the baseline: there are 2 outputs"):
        comparison({"y": BASE, "z": BASE})
    with pytest.raises(StageError, match="no output"):
        Comparison(Reference(), "variant").result()


def test_outputs_that_never_change_are_found():
    same, other, one = Reference(), Reference(), Reference()
    for _ in range(2):
        same({"y": np.ones((3, 4), np.float32)})
        other({"y": np.arange(12, dtype=np.float32).reshape(3, 4)})
    one({"y": np.ones((1, 4), np.float32)})
    assert same.constant
    assert not other.constant
    assert not one.constant
