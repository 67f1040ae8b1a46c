"""The expected drop agrees with what labels drawn from the float model's probabilities give, with less noise."""

from __future__ import annotations

import numpy as np
import pytest

from evaluators.expected import expected_drop, probabilities


def test_it_is_the_mean_of_what_labels_give():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2000, 10)) * 2
    noisy = logits + 0.3 * rng.standard_normal(logits.shape)
    found = expected_drop(logits, noisy)
    likely = probabilities(logits)
    counted = []
    for _ in range(300):
        labels = (rng.random((len(likely), 1)) < likely.cumsum(1)).argmax(1)
        counted.append(100 * ((logits.argmax(1) == labels).mean() - (noisy.argmax(1) == labels).mean()))
    assert found.points == pytest.approx(np.mean(counted), abs=4 * np.std(counted) / np.sqrt(300))
    assert found.scatter / np.sqrt(2000) == pytest.approx(np.std(counted), rel=0.15)
    assert found.error < np.std(counted) / 3
    assert found.changed == (logits.argmax(1) != noisy.argmax(1)).mean()


def test_equal_decisions_cost_nothing():
    logits = np.random.default_rng(1).standard_normal((50, 3))
    found = expected_drop(logits, logits * 1.5)
    assert (found.points, found.error, found.scatter, found.changed) == (0.0, 0.0, 0.0, 0.0)


def test_probabilities_are_taken_as_they_are():
    given = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
    np.testing.assert_array_equal(probabilities(given), given)
    found = expected_drop(given, given[:, [1, 0, 2]])
    # The first sample goes from 0.5 to 0.3, the second from 0.8 to 0.1.
    assert found.points == pytest.approx(100 * (0.2 + 0.7) / 2)
