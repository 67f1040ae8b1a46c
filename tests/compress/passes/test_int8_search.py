"""The search for the fewest layers in float."""

from __future__ import annotations

import math

import pytest

from compress.passes.int8.search import bound, search_layers
from compress.stage import Drop


def _measure(needed, calls, error=0.0):
    """The drop is 1 until ``needed`` layers are in float, then 0.1."""

    def measure(head):
        calls.append(len(head))
        return Drop(0.1 if len(head) >= needed else 1.0, error, 0.0, 500, "points of top1", "samples of train")

    return measure


@pytest.mark.parametrize("needed", [0, 1, 2, 3, 7, 8, 31, 63, 98])
def test_the_fewest_are_found_in_logarithmic_time(needed):
    order, calls = [f"l{i}" for i in range(100)], []
    found = search_layers(order, 0.5, _measure(needed, calls))
    assert found.left == tuple(order[:needed])
    assert found.search.met
    assert len(calls) == len(set(calls)) == found.search.evaluations <= 2 * math.log2(100) + 2
    assert found.search.explanation == (
        f"{needed} of 100 layers in float keep the drop within 0.5: 0.10 ± 0.00 points of top1 on 500 samples of train."
    )


def test_what_cannot_be_met_is_said_and_the_best_is_taken():
    calls: list[int] = []
    found = search_layers([f"l{i}" for i in range(10)], 0.05, _measure(4, calls))
    assert not found.search.met
    assert found.search.drop == 0.1
    assert len(found.left) == min(c for c in calls if c >= 4)
    assert "No choice of layers was sure to keep the drop within 0.05" in found.search.explanation


def test_an_uncertain_drop_counts_with_its_bound_and_a_gain_as_none():
    assert bound(Drop(0.2, 0.1, 0, 1, "", "")) == pytest.approx(0.2 + 1.645 * 0.1)
    assert bound(Drop(-0.5, 0.1, 0, 1, "", "")) == pytest.approx(0.1645)
    found = search_layers(["a", "b"], 0.15, lambda head: Drop(-0.5, 0.1, 0, 100, "points", "samples"))
    assert not found.search.met


def test_the_evaluation_s_own_scatter_is_met_where_few_layers_are_enough_for_it():
    def measure(head):
        return Drop(0.03, 0.01, 0.1 - 0.005 * len(head), 1000, "points of top1", "samples")

    found = search_layers([f"l{i}" for i in range(100)], 0.1, measure)
    assert len(found.left) == 6  # 0.03 + 0.07
    assert "chance" not in found.search.explanation
    few = search_layers([f"l{i}" for i in range(20)], 0.1, measure)  # five at most, and six would be needed
    assert few.left == ()
    assert few.search.met
    assert few.search.explanation.endswith(" By chance alone the evaluation may find 0.10 more or less.")
