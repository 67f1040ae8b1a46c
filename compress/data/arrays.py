"""Arrays from a ``.npz`` (or one array from a ``.npy``), held in memory."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compress.artifact import sha256_of
from compress.data.base import Array
from compress.data.indexed import stack
from compress.data.labels import task_of, tidy_labels
from compress.data.preprocess import Preprocess
from compress.errors import DataError
from compress.progress import Progress

LABEL_KEYS = ("y", "labels", "label", "targets", "target")
_CLASS_KEYS = ("classes", "class_names")


class ArraySource:
    """Samples along the first axis of arrays.

    One array may be called anything (``x``, ``images``, ``inputs``, …); several are called as the model's inputs are.
    ``y``, ``labels`` or ``targets`` hold the labels, ``classes`` the class names. Arrays of images go through
    ``preprocess``: unsigned integers [N, H, W], [N, H, W, C] or [N, C, H, W] with 1 or 3 channels, and floating-point
    numbers [N, H, W, C]. Everything else, and everything where ``preprocess`` is None, is handed on as it is; floating
    point in [N, C, H, W] counts as preprocessed already, and that is said.

    Args:
        path: The file.
        preprocess: What turns an image into a sample.
        progress: Where choices are told.
        name: What to call it in messages.

    Raises:
        DataError: The file is damaged, holds Python objects, no inputs, or arrays of different lengths.
    """

    def __init__(self, path: Path, preprocess: Preprocess | None, progress: Progress, *, name: str = "") -> None:
        self.name = name or str(path)
        self.dynamic_axes: Mapping[str, tuple[str, ...]] = {}
        self.views = 1
        self._path = path
        self._preprocess = preprocess
        arrays = _read(path, self.name)
        label_keys = [k for k in LABEL_KEYS if k in arrays]
        if len(label_keys) > 1:
            raise DataError(f"{self.name} has labels twice: {' and '.join(label_keys)}.", "Keep one of them.")
        labels = arrays.pop(label_keys[0]) if label_keys else None
        names = next((arrays.pop(k) for k in _CLASS_KEYS if k in arrays), None)
        self.classes = None if names is None else tuple(map(str, names.tolist()))
        self._inputs = {k.removeprefix("arr_") if k.startswith("arr_") else k: a for k, a in arrays.items()}
        self._count = self._checked_length(labels)
        self.labels = None if labels is None else tidy_labels(labels, self.name)
        self.task = task_of(self.labels)
        self._to_hwc = {k: self._image_layout(k, a, progress) for k, a in self._inputs.items()}

    def __len__(self) -> int:
        return self._count

    def where(self, index: int) -> str:
        """Return the sample's number."""
        return f"sample {index} of {self.name}"

    def read(self, index: int) -> Mapping[str, Array]:
        """Return one sample of each array."""
        sample = {}
        for key, array in self._inputs.items():
            axes = self._to_hwc[key]
            if axes is None or self._preprocess is None:
                sample[key] = array[index]
                continue
            try:
                sample[key] = self._preprocess(array[index].transpose(axes))
            except DataError as error:
                raise DataError(f"{self.where(index)}: {error.message}", error.hint) from error
        return sample

    def collate(self, indices: Sequence[int], samples: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Stack samples."""
        return stack([self.where(i) for i in indices], samples, self.name)

    def digest(self) -> str:
        """Digest the file's content and the preprocessing."""
        settings = self._preprocess.model_dump_json() if self._preprocess else "none"
        return hashlib.sha256(f"{sha256_of(self._path)}\0{settings}".encode()).hexdigest()

    def _checked_length(self, labels: Array | None) -> int:
        if not self._inputs:
            raise DataError(
                f"{self.name} holds no inputs.", "Store them as 'x', or by the names of the model's inputs."
            )
        arrays = self._inputs if labels is None else {**self._inputs, "labels": labels}
        scalars = [k for k, a in arrays.items() if a.ndim == 0]
        wrong = [k for k, a in self._inputs.items() if a.dtype.kind not in "biuf"]
        if scalars or wrong:
            raise DataError(
                f"{self.name}: array '{(scalars + wrong)[0]}' is {'a single value' if scalars else 'not of numbers'}.",
                "Every array but 'classes' must hold numbers, one sample a row.",
            )
        lengths = {k: len(a) for k, a in arrays.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{k} {n}" for k, n in lengths.items())
            raise DataError(
                f"{self.name}: arrays differ in their number of samples: {listed}.",
                "Store inputs and labels of one split a file.",
            )
        count = next(iter(lengths.values()))
        if count == 0:
            raise DataError(f"{self.name}: 0 samples found, at least 1 wanted.")
        return count

    def _image_layout(self, key: str, array: Array, progress: Progress) -> tuple[int, ...] | None:
        """Return the axes that bring one sample to [H, W(, C)], or None where it is no image or goes in as it is."""
        if self._preprocess is None:
            return None
        if array.ndim == 4 and array.shape[3] in (1, 3):
            return (0, 1, 2)
        if array.dtype.kind == "u" and array.ndim == 3:
            return (0, 1)
        if array.dtype.kind == "u" and array.ndim == 4 and array.shape[1] in (1, 3):
            return (1, 2, 0)
        kind = f"{array.dtype}[{', '.join(map(str, ('N', *array.shape[1:])))}]"
        progress.line(f"{self.name}: '{key}' ({kind}) counts as preprocessed already and goes in as it is.")
        return None


def _read(path: Path, name: str) -> dict[str, Array]:
    """Read every array at once: a lazily opened archive would be decompressed again for every access."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"x": loaded}
            return {key: loaded[key] for key in loaded.files}
    except ValueError as error:
        if "pickle" in str(error):
            raise DataError(
                f"{name} holds Python objects, which are not loaded because unpickling can run code.",
                "Store plain arrays of numbers.",
            ) from error
        raise DataError(f"{name} is damaged or no NumPy file ({error}).") from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{name} is damaged or no NumPy file ({error}).") from error
