"""Percentiles, ratios and intervals."""

from __future__ import annotations

import numpy as np
import pytest

from compress.results import Ratio
from evaluators.statistics import inside_noise, latency, outcome, paired_interval, paired_ratio, throughput


def rounds_of(median: float, spread: float, rounds: int, seed: int, runs: int = 21) -> list[list[float]]:
    """Rounds whose medians scatter around ``median`` by ``spread`` (relative)."""
    rng = np.random.default_rng(seed)
    return [list(median * np.exp(rng.normal(0, spread)) * np.linspace(0.9, 1.1, runs)) for _ in range(rounds)]


def test_latency_by_hand() -> None:
    found = latency([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]])
    assert (found.median, found.runs, found.rounds) == (4.0, 7, [2.0, 5.5])
    assert found.p90 == pytest.approx(6.4)
    assert found.p99 == pytest.approx(6.94)


def test_throughput_by_hand() -> None:
    found = throughput([[10.0, 10.0], [10.0, 30.0]], batch=4)
    assert found.value == pytest.approx(16 / 0.060)
    assert found.low == pytest.approx(8 / 0.040)
    assert found.high == pytest.approx(8 / 0.020)
    assert throughput([[10.0, 30.0]] * 5, batch=1).low == pytest.approx(50)


def test_ratio_is_the_geometric_mean_of_pairs() -> None:
    found = paired_ratio([[4.0], [9.0]], [[1.0], [9.0]], batch=3)
    assert (found.ratio, found.batch) == (pytest.approx(2.0), 3)
    assert found.low == pytest.approx(1)
    assert found.high == pytest.approx(4)


def test_what_hits_both_sides_of_a_round_cancels() -> None:
    rng = np.random.default_rng(1)
    load = np.exp(rng.normal(0, 0.5, 7))
    base, variant = [[2 * x] * 5 for x in load], [[x] * 5 for x in load]
    found = paired_ratio(base, variant, batch=1)
    assert found.ratio == pytest.approx(2)
    assert found.high - found.low < 1e-9


def test_the_same_seed_gives_the_same_interval() -> None:
    base, variant = rounds_of(2, 0.1, 7, 0), rounds_of(1, 0.1, 7, 1)
    assert paired_ratio(base, variant, 1, seed=3) == paired_ratio(base, variant, 1, seed=3)


@pytest.mark.parametrize("rounds", [5, 7, 20])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(rounds: int) -> None:
    hits = 0
    for seed in range(200):
        found = paired_ratio(rounds_of(1.3, 0.05, rounds, seed), rounds_of(1, 0.05, rounds, 10_000 + seed), 1, seed)
        hits += found.low <= 1.3 <= found.high
    assert hits / 200 > 0.9


@pytest.mark.parametrize(
    ("low", "high", "noise", "words"),
    [(0.9, 1.1, True, "no difference shown"), (1.02, 1.3, False, "faster"), (0.5, 0.98, False, "slower"),
     (1.0, 1.2, True, "no difference shown")],
)  # fmt: skip
def test_outcome(low: float, high: float, noise: bool, words: str) -> None:
    ratio = Ratio(ratio=(low + high) / 2, low=low, high=high, batch=1)
    assert (inside_noise(ratio), outcome(ratio)) == (noise, words)


@pytest.mark.parametrize(("base", "variant"), [(3, 2), (1, 1), (0, 0)])
def test_rounds_that_dont_pair_are_refused(base: int, variant: int) -> None:
    with pytest.raises(ValueError, match="rounds"):
        paired_ratio([[1.0]] * base, [[1.0]] * variant, 1)


def test_pairing_makes_the_interval_of_a_drop_narrow() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(2000) < 0.8
    variant = base.copy()
    variant[:40] = ~variant[:40]
    paired = paired_interval(lambda i: 100 * float(np.mean(base[i]) - np.mean(variant[i])), 2000, 0)
    error = 100 * np.std(base.astype(float) - variant) / np.sqrt(2000)
    drop = 100 * float(np.mean(base) - np.mean(variant))
    assert paired[0] == pytest.approx(drop - 1.96 * error, abs=0.1)
    assert paired[1] == pytest.approx(drop + 1.96 * error, abs=0.1)
