"""Checks made before any work starts: is there data, and does it fit the model's classes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from compress.data.base import Array, Dataset
from compress.errors import DataError, UsageError


@runtime_checkable
class HasLabels(Protocol):
    """A data set that knows all its labels without reading its inputs."""

    @property
    def labels(self) -> Array | None:
        """Labels in order; None where there are none."""


def require(dataset: Dataset, wanted: int | None, role: str) -> str | None:
    """Check that there is data for a purpose.

    Args:
        dataset: The data.
        wanted: Samples wanted; None: all there are.
        role: What for, such as ``calibration``.

    Returns:
        A line for the user where there are fewer samples than wanted, else None.

    Raises:
        UsageError: ``wanted`` is below 1.
        DataError: There is no sample.
    """
    if wanted is not None and wanted < 1:
        raise UsageError(f"The number of {role} samples must be 1 or more, not {wanted}.")
    found = len(dataset)
    if found == 0:
        raise DataError(f"No {role} samples in {dataset.name}: 0 found, {wanted or 'at least 1'} wanted.")
    if wanted is not None and found < wanted:
        return f"{role.capitalize()} uses {found} samples, all of {dataset.name}; {wanted} were wanted."
    return None


def check_classes(dataset: Dataset, outputs: int | None) -> None:
    """Check that labels mean the same to the data and to a classifier with ``outputs`` outputs (None: not known).

    Data that names its classes must name as many. Data that only numbers them may lack some, but have none above.

    Raises:
        DataError: They differ; the message has both numbers.
    """
    if outputs is None or dataset.task != "classification":
        return
    if dataset.classes is not None and len(dataset.classes) != outputs:
        raise DataError(
            f"{dataset.name} has {len(dataset.classes)} classes, the model has {outputs} outputs.",
            "Give the data the model was trained for; where folders are only some of its classes, list all of them in "
            "label order in a classes.txt there.",
        )
    labels = dataset.labels if isinstance(dataset, HasLabels) else None
    if labels is not None and labels.size and int(labels.max()) >= outputs:
        low, high = int(labels.min()), int(labels.max())
        raise DataError(
            f"{dataset.name} has labels from {low} to {high}, the model has {outputs} outputs (0 to {outputs - 1}).",
            "Number the classes from 0."
            if low == 1 and high == outputs
            else "Give the data the model was trained for.",
        )
