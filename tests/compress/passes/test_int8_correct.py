"""Corrections: tried, judged on held-out samples, kept or dropped without a trace in the network, and reported."""

from __future__ import annotations

import numpy as np
import pytest

from compress.passes.int8.correct import GAIN, GAIN_INSERTED, choose_method, correct_float, correct_rounding
from compress.passes.int8.ranges import METHODS

IMAGES = np.random.default_rng(5).standard_normal((40, 8, 8, 8)).astype(np.float32)
RNG = np.random.default_rng(6)
# Four values mixed into 32: where inputs go together, which way weights are rounded together matters.
VECTORS = (RNG.standard_normal((80, 4)) @ RNG.standard_normal((4, 32))).astype(np.float32)


class _Judge:
    """Finds the errors it is given, one a candidate, and the last one from then on."""

    def __init__(self, *errors):
        self._errors = list(errors)

    def error(self, candidate, samples=None):
        return self._errors.pop(0) if len(self._errors) > 1 else self._errors[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Learn roundings in fewer steps: what is tested here is what becomes of them."""
    monkeypatch.setattr("compress.passes.int8.adaround.ITERATIONS", 100)


@pytest.mark.parametrize("least", [GAIN, GAIN_INSERTED])
def test_a_correction_is_kept_only_below_its_share_of_the_error(bench, network, outliers, least):
    made = bench(network(outliers, VECTORS), VECTORS)
    assert made.note("good", 2.0, 2.0 * least - 1e-9, 3, least)
    assert not made.note("no better", 2.0, 2.0 * least, 4, least)
    assert not made.note("broken", 2.0, float("nan"), 5, least)
    assert [(c.name, c.kept, c.layers) for c in made.tried] == [
        ("good", True, 3),
        ("no better", False, 4),
        ("broken", False, 5),
    ]
    assert [c.error_before for c in made.tried] == [2.0, 2.0, 2.0]
    assert made.tried[1].error_after == 2.0 * least


def test_the_ranges_with_the_least_error_are_taken_and_all_are_reported(bench, network, convolutions):
    values = IMAGES.copy()
    values[0, 0, 0, 0] = 40.0  # one outlier, which minimum and maximum cover at the cost of all else
    start = network(convolutions, values)
    made = bench(start, values)
    found = choose_method(made, start)
    assert [c.name for c in made.tried] == [f"{m} ranges" for m in METHODS]
    errors = dict(zip(METHODS, [c.error_after for c in made.tried], strict=True))
    assert len(set(errors.values())) > 2
    assert found.method == min(errors, key=errors.get)
    assert [c.kept for c in made.tried] == [m == found.method for m in METHODS]
    assert {c.error_before for c in made.tried} == {errors["minmax"]}  # what the network came with
    assert made.error(found) == errors[found.method]
    assert errors[found.method] < errors["minmax"]


def _as_it_was(found, start):
    return found is start and found.model.SerializeToString() == start.model.SerializeToString()


FLOAT = [("equalization", "convolutions", IMAGES, GAIN), ("smoothquant", "outliers", VECTORS, GAIN)]
ROUNDED = [("adaround", "outliers", VECTORS, GAIN), ("bias", "convolutions", IMAGES, GAIN)]


@pytest.mark.parametrize(("name", "model", "values", "gain"), FLOAT)
def test_a_float_correction_that_is_not_kept_leaves_the_network(request, bench, network, name, model, values, gain):
    start = network(request.getfixturevalue(model), values)
    made = bench(start, values, _Judge(1.0, gain))
    before = start.model.SerializeToString()
    found = correct_float(made, start, (name,))
    assert _as_it_was(found, start)
    assert start.model.SerializeToString() == before
    assert made.tried
    assert all((c.kept, c.error_before, c.error_after) == (False, 1.0, gain) for c in made.tried)


@pytest.mark.parametrize(("name", "model", "values", "gain"), ROUNDED)
def test_a_correction_of_weights_that_is_not_kept_leaves_the_network(
    request, bench, network, name, model, values, gain
):
    start = network(request.getfixturevalue(model), values)
    made = bench(start, values, _Judge(1.0, gain))
    before = start.model.SerializeToString()
    found = correct_rounding(made, start, (name,), frozenset())
    assert _as_it_was(found, start)
    assert start.model.SerializeToString() == before
    assert found.rounding == {}
    assert [(c.kept, c.error_before, c.error_after) for c in made.tried] == [(False, 1.0, gain)]


@pytest.mark.parametrize(("name", "model", "values", "gain"), [*FLOAT, *ROUNDED])
def test_just_below_the_threshold_it_is_kept(request, bench, network, name, model, values, gain):
    start = network(request.getfixturevalue(model), values)
    made = bench(start, values, _Judge(1.0, gain - 1e-6))
    correct = (lambda *a: correct_rounding(*a, frozenset())) if name in ("adaround", "bias") else correct_float
    found = correct(made, start, (name,))
    assert found is not start
    assert made.tried[0].kept
    assert made.tried[0].layers >= 1
    # Operators that SmoothQuant puts in have to bring more than this, once more.
    assert [c.kept for c in made.tried[1:]] == ([False] if name == "smoothquant" else [])


def test_equalization_lowers_the_held_out_error_and_says_by_how_much(bench, network, convolutions, run):
    start = network(convolutions, IMAGES)
    made = bench(start, IMAGES)
    found = correct_float(made, start, ("equalization",))
    (tried,) = made.tried
    assert (tried.name, tried.kept, tried.layers) == ("cross-layer equalization", True, 1)
    assert tried.error_before == made.error(start)
    assert tried.error_after == made.error(found) < 0.2 * tried.error_before
    before = run(start.model, IMAGES)
    np.testing.assert_allclose(run(found.model, IMAGES), before, rtol=1e-4, atol=1e-4 * np.abs(before).max())


def test_smoothquant_lowers_the_error_where_outliers_stand_out(bench, network, outliers, run):
    start = network(outliers, VECTORS)
    made = bench(start, VECTORS)
    found = correct_float(made, start, ("smoothquant",))
    first = made.tried[0]
    assert first.name.startswith("SmoothQuant (α 0.")
    assert first.kept
    assert first.error_before == made.error(start)
    assert made.error(found) == [c for c in made.tried if c.kept][-1].error_after < 0.5 * first.error_before
    before = run(start.model, VECTORS)
    np.testing.assert_allclose(run(found.model, VECTORS), before, rtol=1e-3, atol=1e-3 * np.abs(before).max())


def test_only_what_is_asked_for_is_tried(bench, network, convolutions):
    start = network(convolutions, IMAGES)
    made = bench(start, IMAGES, _Judge(1.0, 0.1))
    assert correct_float(made, start, ("bias", "adaround")) is start
    assert correct_rounding(made, start, ("smoothquant", "equalization"), frozenset()) is start
    assert made.tried == []


def test_layers_left_in_float_are_not_corrected(bench, network, convolutions, weights_of):
    start = network(convolutions, IMAGES)
    made = bench(start, IMAGES, _Judge(1.0, 0.1, 0.01))
    found = correct_rounding(made, start, ("adaround", "bias"), frozenset({"conv_a", "conv_c"}))
    assert [(c.name, c.layers) for c in made.tried] == [("AdaRound", 1), ("bias correction", 1)]
    before, after = weights_of(start.model), weights_of(found.model)
    assert [name for name in before if not np.array_equal(before[name], after[name])] == ["b3"]
    assert [name.removesuffix("_quantized") for name in found.rounding] == ["w3"]


@pytest.mark.parametrize(("second", "kept"), [(0.4, True), (0.49, False), (0.7, False)])
def test_each_correction_is_compared_with_what_the_one_before_reached(bench, network, convolutions, second, kept):
    start = network(convolutions, IMAGES)
    made = bench(start, IMAGES, _Judge(1.0, 0.5, second))
    found = correct_rounding(made, start, ("bias", "adaround"), frozenset())
    assert [(c.name, c.error_before, c.error_after, c.kept) for c in made.tried] == [
        ("AdaRound", 1.0, 0.5, True),
        ("bias correction", 0.5, second, kept),
    ]
    assert found.rounding
    assert (found.model is not start.model) == kept


def test_without_held_out_samples_no_error_can_be_asked_for(bench, network, outliers):
    start = network(outliers, VECTORS)
    made = bench(start, VECTORS)
    made.held = None
    with pytest.raises(RuntimeError, match="no samples were held out"):
        made.error(start)
