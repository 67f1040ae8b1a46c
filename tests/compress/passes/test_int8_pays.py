"""Layers that INT8 slows down, on a target whose every operator has a known price."""

from __future__ import annotations

import json

import pytest

from compress.passes.int8.pays import STEPS, WORTH, layer_gains, leave_slow
from compress.progress import Quiet
from compress.results import OpTime, Profile


def _op(name, kind, layers, ms):
    return OpTime(name=name, op="Op", kind=kind, precision="", layers=layers, ms=ms)


def _profile(*ops, batch=1):
    return Profile(batch=batch, runs=1, total_ms=sum(o.ms for o in ops), ops=list(ops))


class _Priced:
    """Trials on a target where each layer has a price in float and in INT8, and a conversion's where it is in INT8.

    A candidate's file holds the names of the layers left in float. ``real`` are prices that the clock goes by where the
    profiler is wrong.
    """

    target = "a target"

    def __init__(self, prices, real=None, batches=(1,)):
        self.prices = prices
        self.real = real or prices
        self.batches = batches
        self.tried = []

    def write(self, path, left):
        path.write_text(json.dumps(sorted(left)))

    def plain(self, folder):
        self.write(folder / "plain.onnx", self.prices)
        return folder / "plain.onnx"

    def key(self):
        return []

    def drop(self, model):
        raise AssertionError("speed is all that is asked for")

    def profile(self, model):
        left = json.loads(model.read_text())
        ops = []
        for name, (slow, fast, moved) in self.prices.items():
            ops.append(_op(name, "compute", [name], slow if name in left else fast))
            if name not in left and moved:
                ops.append(_op(f"{name}_q", "conversion", [name], moved))
        return [_profile(*ops, batch=b) for b in self.batches]

    def speed(self, base, other):
        left = json.loads(other.read_text())
        self.tried.append(left)
        return self._time(base) / self._time(other)

    def _time(self, model):
        left = json.loads(model.read_text())
        return sum(slow if name in left else fast + moved for name, (slow, fast, moved) in self.real.items())


def _left(trials, folder):
    found = leave_slow(list(trials.prices), trials.plain(folder), trials.write, trials, folder, Quiet())
    return dict(found.left), found.note


def test_a_layer_that_costs_time_is_left_in_float_and_one_that_pays_is_not(tmp_path):
    trials = _Priced({"pays": (10.0, 4.0, 1.0), "costs": (2.0, 1.5, 3.0), "even": (5.0, 5.0, 0.0)})
    left, note = _left(trials, tmp_path)
    assert left == {
        "costs": "slower in INT8: 2.000 ms in float, 1.500 ms and 3.000 ms of conversions in INT8 (batch 1)"
    }
    # 17 ms in float; 5 + 2 + 5 with one layer left in float.
    assert note == (
        "1.42× the float file's speed in a short trial on a target, 1 of 3 layers left in float since they were slower "
        "in INT8."
    )


def test_where_all_pay_all_stay_in_int8_and_nothing_is_tried(tmp_path):
    trials = _Priced({"a": (10.0, 4.0, 1.0), "b": (3.0, 2.0, 0.5)})
    assert _left(trials, tmp_path) == ({}, "1.73× the float file's speed in a short trial on a target.")
    assert trials.tried == [[]]  # only for the note


def test_a_profile_that_misleads_is_not_followed(tmp_path):
    """The profiler says that a layer became slower, the clock says that the file didn't."""
    trials = _Priced(
        {"a": (10.0, 4.0, 0.0), "b": (2.0, 4.0, 0.0), "c": (1.0, 0.9, 0.0)},
        real={"a": (10.0, 4.0, 0.0), "b": (2.0, 1.0, 0.0), "c": (1.0, 0.9, 0.0)},
    )
    left, note = _left(trials, tmp_path)
    assert left == {}
    assert trials.tried == [["b"], []]  # once, though both sets that were to be tried hold the same layer
    assert note == "2.20× the float file's speed in a short trial on a target."


@pytest.mark.parametrize(("gain", "left"), [(WORTH + 1e-3, {"b"}), (WORTH - 1e-3, set())])
def test_it_counts_only_where_the_whole_file_is_faster(tmp_path, gain, left):
    # With b in float the rest takes 10 ms; its INT8 takes so much longer that the whole file is `gain` times slower.
    trials = _Priced({"a": (20.0, 9.0, 0.0), "b": (1.0, 10 * gain - 9, 0.0)})
    assert set(_left(trials, tmp_path)[0]) == left


def test_where_all_losers_together_do_not_pay_those_that_lose_most_do(tmp_path):
    prices = {"a": (20.0, 10.0, 0.0), "much": (2.0, 6.0, 0.0), "little": (3.0, 3.5, 0.0)}
    # In truth the small loser gains a lot.
    trials = _Priced(prices, real={**prices, "little": (8.0, 3.5, 0.0)})
    assert set(_left(trials, tmp_path)[0]) == {"much"}
    assert trials.tried[:2] == [["little", "much"], ["much"]]


def test_not_every_layer_is_left_in_float(tmp_path):
    """A file without INT8 is what the float variant is for."""
    trials = _Priced({"a": (1.0, 2.0, 0.0), "b": (1.0, 1.1, 0.0)})
    left, note = _left(trials, tmp_path)
    assert set(left) == {"a"}
    assert note.startswith("0.95×")
    assert _left(_Priced({"a": (1.0, 2.0, 0.0)}), tmp_path)[0] == {}


def test_steps_are_limited_and_each_starts_from_the_best_so_far(tmp_path):
    """Each layer looks bad only once the one before it is in float."""

    class Domino(_Priced):
        def profile(self, model):
            left = json.loads(model.read_text())
            order = list(self.prices)
            if len(left) == len(order):  # the float file
                return [_profile(*(_op(n, "compute", [n], 1.0) for n in order))]
            return [_profile(*(_op(n, "compute", [n], 5.0 if i == len(left) else 0.5) for i, n in enumerate(order)))]

    trials = Domino({f"l{i}": (1.0, 3.0, 0.0) for i in range(9)})
    left, _ = _left(trials, tmp_path)
    assert list(left) == [f"l{i}" for i in range(STEPS)]
    assert trials.tried[:-1] == [[f"l{i}" for i in range(n + 1)] for n in range(STEPS)]


def test_a_target_without_a_profiler_leaves_all_in_int8(tmp_path):
    trials = _Priced({"a": (1.0, 3.0, 0.0), "b": (1.0, 0.5, 0.0)}, batches=())
    assert _left(trials, tmp_path)[0] == {}


def test_gains_are_shares_of_the_float_file_s_time():
    before = [
        _profile(_op("1", "compute", ["a"], 6.0), _op("2", "compute", ["b"], 3.0), _op("3", "other", ["c"], 1.0)),
        _profile(_op("1", "compute", ["a"], 12.0), _op("2", "compute", ["b"], 8.0), batch=8),
    ]
    after = [
        _profile(
            _op("q", "conversion", ["a"], 0.5),
            _op("1", "compute", ["a"], 2.0),
            _op("qb", "conversion", ["a", "b"], 1.0),  # half of it each
            _op("2", "compute", ["b"], 4.0),
            _op("far", "conversion", [], 9.0),
        ),
        _profile(_op("1", "compute", ["a"], 4.0), _op("2", "compute", ["b"], 2.0), batch=8),
    ]
    found = layer_gains(["a", "b", "missing"], before, after)
    assert set(found) == {"a", "b"}
    assert found["a"][0] == pytest.approx(((6 - 2 - 1) / 10 + (12 - 4) / 20) / 2)
    assert found["b"][0] == pytest.approx(((3 - 4 - 0.5) / 10 + (8 - 2) / 20) / 2)
    assert found["b"][1].endswith("(batch 8)")


def test_an_operator_fused_of_several_layers_counts_for_each_in_part():
    before = [_profile(_op("ab", "compute", ["a", "b"], 4.0))]
    after = [_profile(_op("ab", "compute", ["a", "b"], 1.0), _op("q", "conversion", ["b"], 2.0))]
    found = layer_gains(["a", "b"], before, after)
    assert found["a"][0] == pytest.approx((2 - 0.5) / 4)
    assert found["b"][0] == pytest.approx((2 - 0.5 - 2) / 4)


def test_what_else_was_fused_into_a_layer_has_no_part_in_its_time():
    """In float a convolution takes up its Relu, in INT8 a pair as well: halves and thirds could not be compared."""
    before = [_profile(_op("a", "compute", ["a", "relu"], 6.0))]
    after = [_profile(_op("q", "conversion", ["a", "relu"], 1.0), _op("a", "compute", ["a", "relu", "pair"], 6.0))]
    found = layer_gains(["a"], before, after)
    assert found["a"][0] == pytest.approx(-1 / 6)
    assert found["a"][1].startswith("slower in INT8: 6.000 ms in float, 6.000 ms and 1.000 ms of conversions")


def test_profiles_of_different_batch_sizes_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        layer_gains(["a"], [_profile(), _profile()], [_profile()])
