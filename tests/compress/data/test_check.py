import numpy as np
import pytest

from compress.data.open import check_classes, open_dataset, require
from compress.errors import DataError, UsageError


def test_fewer_than_wanted_is_a_line_and_enough_is_silent(folder):
    dataset = open_dataset(str(folder), None)
    assert require(dataset, 7, "calibration") is None
    assert require(dataset, None, "evaluation") is None
    line = require(dataset, 300, "calibration")
    assert "Calibration uses 7 samples" in line
    assert "300 were wanted" in line


@pytest.mark.parametrize("wanted", [0, -1])
def test_senseless_numbers_are_refused(folder, wanted):
    with pytest.raises(UsageError, match=f"calibration samples must be 1 or more, not {wanted}"):
        require(open_dataset(str(folder), None), wanted, "calibration")


def test_named_classes_must_be_as_many_as_outputs(folder):
    dataset = open_dataset(str(folder), None)
    check_classes(dataset, 2)
    check_classes(dataset, None)
    for outputs in (1, 3, 1000):
        with pytest.raises(DataError, match=f"2 classes, the model has {outputs} outputs.*classes.txt"):
            check_classes(dataset, outputs)


def test_a_classes_file_lets_folders_be_some_of_the_classes(folder):
    (folder / "classes.txt").write_text("bird\ncat\ndog\n")
    check_classes(open_dataset(str(folder), None), 3)


def test_numbered_labels_must_have_an_output(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2), np.float32), y=np.array([1, 2, 3]))
    dataset = open_dataset(str(tmp_path / "d.npz"), None)
    check_classes(dataset, 10)
    with pytest.raises(DataError, match=r"labels from 1 to 3, the model has 3 outputs.*from 0"):
        check_classes(dataset, 3)


def test_other_tasks_have_no_classes(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2), np.float32), y=np.array([1.0, 2, 300]))
    check_classes(open_dataset(str(tmp_path / "d.npz"), None), 1)
