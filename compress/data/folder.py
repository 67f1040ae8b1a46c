"""Image folders: a folder a class, or a flat folder of unlabelled images."""

from __future__ import annotations

import collections
import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compress.data.base import Array
from compress.data.classes import ClassMap, alphabetical, read_class_map
from compress.data.indexed import stack
from compress.data.labels import task_of
from compress.data.preprocess import Preprocess
from compress.data.screen import BadSample
from compress.errors import DataError
from compress.progress import Progress

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".pbm", ".webp", ".tif", ".tiff")
_SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval"}


class FolderSource:
    """Images below a folder, in alphabetical order, class by class.

    Args:
        root: The folder.
        preprocess: What turns an image into a sample.
        progress: Where choices are told: which classes file was used, what was left out.
        name: What to call it in messages.
        by_content: Take the digest over the files' contents instead of their sizes and times (for downloaded copies).

    Raises:
        DataError: There are no images, the folder holds splits instead of classes, or a class folder is in no mapping.
    """

    def __init__(
        self, root: Path, preprocess: Preprocess, progress: Progress, *, name: str = "", by_content: bool = False
    ) -> None:
        self.name = name or str(root)
        self.dynamic_axes: Mapping[str, tuple[str, ...]] = {}
        self.views = 1
        self._root = root
        self._preprocess = preprocess
        self._by_content = by_content
        found = {d.name: _images_below(d) for d in _folders(root)}
        loose = sorted(f for f in root.iterdir() if _is_image(f))
        self.labels: Array | None = None
        self.classes: tuple[str, ...] | None = None
        if any(found.values()):
            self._refuse_wrong_level(found)
            if loose:
                progress.line(f"{self.name}: {len(loose)} image(s) beside the class folders are left out.")
            mapping = self._class_map(found, progress)
            self.classes = mapping.names
            self._files = [f for name in sorted(found) for f in found[name]]
            counted = [(mapping.labels[name], len(found[name])) for name in sorted(found) if found[name]]
            self.labels = np.repeat(*np.array(counted, dtype=np.int64).T)
        elif loose:
            self._files = loose
            progress.line(f"{self.name}: {len(loose)} images without class folders, so without labels.")
        else:
            raise self._nothing_found()
        self.task = task_of(self.labels)

    def __len__(self) -> int:
        return len(self._files)

    def where(self, index: int) -> str:
        """Return the image's path."""
        return f"{self.name}/{self._files[index].relative_to(self._root).as_posix()}"

    def read(self, index: int) -> Mapping[str, Array]:
        """Return the preprocessed image as input ``0``."""
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(self._files[index]) as image:
                image.load()
                return {"0": self._preprocess(image)}
        except DataError as error:
            raise DataError(f"{self.where(index)}: {error.message}", error.hint) from error
        # What Pillow's decoders raise on damaged files; its errors have no common base.
        except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
            reason = "not an image" if isinstance(error, UnidentifiedImageError) else str(error)
            raise BadSample("unreadable", f"{self.where(index)} cannot be read ({reason})") from error

    def collate(self, indices: Sequence[int], samples: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Stack images of one shape."""
        return stack([self.where(i) for i in indices], samples, self.name)

    def digest(self) -> str:
        """Digest names, sizes and times (or contents) of the images, their labels and the preprocessing."""
        digest = hashlib.sha256(self._preprocess.model_dump_json().encode())
        labels = self.labels.tolist() if self.labels is not None else [None] * len(self)
        for file, label in zip(self._files, labels, strict=True):
            state = file.stat()
            mark = hashlib.sha256(file.read_bytes()).hexdigest() if self._by_content else str(state.st_mtime_ns)
            relative = file.relative_to(self._root).as_posix()
            digest.update(f"{relative}\0{state.st_size}\0{mark}\0{label}\n".encode())
        return digest.hexdigest()

    def _class_map(self, found: Mapping[str, list[Path]], progress: Progress) -> ClassMap:
        mapping = read_class_map(self._root)
        empty = [name for name, files in found.items() if not files]
        if mapping is None:
            if empty:
                progress.line(f"{self.name}: class folder(s) without images: {_some(empty)}; they keep their labels.")
            names = sorted(found)
            if all(n.isdecimal() for n in names) and names != sorted(names, key=int):
                progress.warn(
                    f"{self.name}: class folders are numbers and labels follow the alphabet ({', '.join(names[:3])}, "
                    "…), as in torchvision; put a classes.txt there for another order."
                )
            return alphabetical(names)
        unknown = [name for name in sorted(found) if name not in mapping.labels and found[name]]
        if unknown:
            raise DataError(
                f"{self.name}: class folder(s) {_some(unknown)} not among the {len(mapping.names)} of {mapping.file}.",
                "Name every class folder there, or remove the file.",
            )
        used = sum(bool(files) for files in found.values())
        progress.line(
            f"{self.name}: labels from {mapping.file}; {used} of its {len(mapping.names)} classes have images."
        )
        return mapping

    def _refuse_wrong_level(self, found: Mapping[str, list[Path]]) -> None:
        names = sorted(n for n, files in found.items() if files)
        if {n.lower() for n in names} <= _SPLITS:
            likely = next((n for n in names if n.lower() not in ("train", "training")), names[0])
            raise DataError(
                f"{self.name} holds {_some(names)}: splits of a data set, not classes.",
                f"Give one of them, such as {self.name}/{likely}.",
            )
        if len(names) == 1 and all(len(f.relative_to(self._root).parts) > 2 for f in found[names[0]]):
            raise DataError(
                f"{self.name} holds only the folder '{names[0]}', which has folders of images in it.",
                f"Give {self.name}/{names[0]} if those are the classes.",
            )

    def _nothing_found(self) -> DataError:
        others = collections.Counter(
            Path(f).suffix.lower() or "no suffix" for _, _, files in os.walk(self._root) for f in files if f[0] != "."
        )
        if not others:
            there = "it is empty"
        else:
            there = "it holds " + ", ".join(f"{n} file(s) with {s}" for s, n in others.most_common(3))
        return DataError(
            f"No images in {self.name}: 0 found, at least 1 wanted; {there}.",
            f"Image files end in {', '.join(SUFFIXES)}.",
        )


def _folders(root: Path) -> list[Path]:
    return sorted(d for d in root.iterdir() if d.is_dir() and not _hidden(d.name))


def _images_below(folder: Path) -> list[Path]:
    images = []
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(f for f in folders if not _hidden(f))
        images += [path for name in files if _is_image(path := Path(place) / name)]
    return sorted(images)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not _hidden(path.name) and path.is_file()


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
