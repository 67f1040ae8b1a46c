"""A user's own metric from a file of theirs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from compress.data.base import Batch
from compress.errors import UsageError
from evaluators.metrics import Scores, metric_for


def run(path: Path, code: str, views: int = 1) -> Scores:
    """Score four samples in two batches with the function ``score`` of ``code``."""
    path.write_text(code)
    metric = metric_for(f"{path}:score", "classification")
    assert metric is not None
    tally = metric.start()
    for start in (0, 2):
        out = np.concatenate([np.arange(start, start + 2) + 10 * view for view in range(views)])
        tally.update({"out": out}, Batch({}, np.arange(start, start + 2), 2, views))
    return tally.finish()


def test_it_gets_everything_at_once(tmp_path: Path) -> None:
    found = run(tmp_path / "m.py", "def score(outputs, targets): return (outputs['out'] == targets).mean() * 7")
    assert (found.value, found.higher_is_better, found.samples, found.name) == (7, True, 4, "score")
    assert found.per_sample is None


def test_lower_may_be_better(tmp_path: Path) -> None:
    assert not run(tmp_path / "m.py", "def score(o, t): return 1.5, False").higher_is_better


def test_views_are_an_axis(tmp_path: Path) -> None:
    code = "def score(o, t): return float((o['out'][:, 1] - o['out'][:, 0]).sum()) + 100 * o['out'].shape[1]"
    assert run(tmp_path / "m.py", code, views=2).value == 40 + 200


def test_a_file_beside_it_can_be_imported_and_the_path_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "beside_the_metric.py").write_text("VALUE = 3")
    before = list(sys.path)
    assert run(tmp_path / "m.py", "from beside_the_metric import VALUE\ndef score(o, t): return VALUE").value == 3
    assert sys.path == before


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def score(o, t): return 'good'", "returned str, not a number"),
        ("def score(o, t): return float('nan')", "returned nan"),
        ("def score(o, t):\n    return o['logits']", r"failed \(line 2\): KeyError"),
        ("import nothing_of_the_kind", r"cannot be loaded \(line 1\): ModuleNotFoundError"),
        ("def score(o, t:", "cannot be loaded: SyntaxError"),
        ("def other(o, t): return 1", "has no function 'score'. It has: other"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(tmp_path / "m.py", code)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no file .*m\.py"):
        metric_for(f"{tmp_path}/m.py:score", "classification")
