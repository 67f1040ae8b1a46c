import math

import numpy as np
import pytest

from compress.data.chance import near_chance

BALANCED = np.arange(1000) % 10
SKEWED = np.array([0] * 900 + [1] * 100)


@pytest.mark.parametrize(
    ("name", "value", "classes", "targets", "samples"),
    [
        ("top1", 10.0, 10, BALANCED, 1000),
        ("accuracy", 0.0, 10, BALANCED, 1000),
        ("top1", 12.0, 10, BALANCED, 1000),  # two standard deviations: within noise at 1 %
        ("top1", 90.0, 2, SKEWED, 1000),  # always the most frequent class
        ("top1", 0.2, 1000, None, 1000),
        ("top5", 50.0, 10, BALANCED, 1000),
        ("top1", math.nan, 10, BALANCED, 1000),
        ("spearman", 3.0, None, None, 1500),
        ("spearman", -8.0, None, None, 1500),
        ("pearson", 20.0, None, None, 100),
        ("spearman", math.nan, None, None, 100),
        ("mse", 0.25, None, np.array([0.0, 1.0] * 50), 100),
        ("rmse", 0.5, None, np.array([0.0, 1.0] * 50), 100),
        ("mae", 0.6, None, np.array([0.0, 1.0] * 50), 100),
    ],
)
def test_guessing_is_found_out(name, value, classes, targets, samples):
    message = near_chance(name, value, classes, targets, samples)
    assert message is not None
    assert name in message
    assert "preprocessing" in message
    assert "labels" in message


@pytest.mark.parametrize(
    ("name", "value", "classes", "targets", "samples"),
    [
        ("top1", 13.0, 10, BALANCED, 1000),
        ("top1", 88.0, 10, BALANCED, 1000),
        ("top1", 93.0, 2, SKEWED, 1000),
        ("top1", 30.0, 1000, None, 50),
        ("top1", 100.0, 10, np.array([3, 5]), 2),  # too few samples to tell
        ("top1", 80.0, 10, np.full(50, 4), 50),  # one class only: measured against uniform guessing
        ("top5", 90.0, 10, BALANCED, 1000),
        ("spearman", 82.0, None, None, 1500),
        ("spearman", -40.0, None, None, 1500),
        ("spearman", 10.0, None, None, 5),
        ("mse", 0.2, None, np.array([0.0, 1.0] * 50), 100),
        ("my_metric", 0.0, 10, BALANCED, 1000),
        ("top1", 0.0, 10, None, 0),
    ],
)
def test_better_than_guessing_or_too_few_to_tell_passes(name, value, classes, targets, samples):
    assert near_chance(name, value, classes, targets, samples) is None


def test_message_has_the_numbers():
    message = near_chance("top1", 90.0, 2, SKEWED, 1000)
    assert "90.0 % on 1000 samples" in message
    assert "always answering the most frequent class (90.0 %)" in message
