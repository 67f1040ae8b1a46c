"""Which class folder has which label: from a classes file, else by the alphabet."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.errors import DataError


@dataclasses.dataclass(frozen=True)
class ClassMap:
    """Labels of class folders.

    Attributes:
        names: Class names in label order.
        labels: Folder name → label.
        file: Where it was read; None for alphabetical order.
    """

    names: tuple[str, ...]
    labels: Mapping[str, int]
    file: Path | None = None


def read_class_map(folder: Path) -> ClassMap | None:
    """Read ``classes.txt`` or ``classes.json`` in ``folder``, else beside it; None where there is neither.

    ``classes.txt`` has one name a line. ``classes.json`` is a list of names, ``{name: label}``, ``{label: name}``, or
    ``{label: [folder name, class name]}`` as ImageNet's is passed around.

    Raises:
        DataError: The file cannot be read, names a class twice, or leaves a label out.
    """
    for file in (place / name for place in (folder, folder.parent) for name in ("classes.txt", "classes.json")):
        if file.is_file():
            return _read(file)
    return None


def alphabetical(folders: list[str]) -> ClassMap:
    """Return labels by the order of code points, as torchvision's ``ImageFolder`` gives them."""
    names = tuple(sorted(folders))
    return ClassMap(names, {name: label for label, name in enumerate(names)})


def _read(file: Path) -> ClassMap:
    try:
        text = file.read_text(encoding="utf-8-sig")
        content = json.loads(text) if file.suffix == ".json" else [n.strip() for n in text.splitlines() if n.strip()]
    except (OSError, ValueError) as error:
        raise DataError(f"Classes file {file} cannot be read: {error}.") from error
    pairs = _pairs(content, file)
    names = tuple(names[-1] for names in pairs)
    labels: dict[str, int] = {}
    for label, (folder_name, *_) in enumerate(pairs):
        if folder_name in labels:
            raise DataError(f"Classes file {file} names '{folder_name}' twice.")
        labels[folder_name] = label
    for label, name in enumerate(names):  # folders may be called by the class name, too, where it is unique
        if names.count(name) == 1:
            labels.setdefault(name, label)
    return ClassMap(names, labels, file)


def _pairs(content: Any, file: Path) -> list[tuple[str, ...]]:
    """Return, in label order, the names of each class: the folder's first, the shown one last."""
    if isinstance(content, Mapping) and content:
        if all(isinstance(v, int) for v in content.values()):
            by_label: dict[int, Any] = {}
            for name, label in content.items():
                if label in by_label:
                    raise DataError(f"Classes file {file} gives label {label} to '{by_label[label]}' and to '{name}'.")
                by_label[label] = name
        elif all(str(k).isdecimal() for k in content):
            by_label = {int(k): v for k, v in content.items()}
        else:
            raise DataError(f"Classes file {file} maps neither names to labels nor labels to names.")
        missing = sorted(set(range(len(by_label))) - set(by_label))
        if missing:
            raise DataError(f"Classes file {file} has {len(by_label)} classes but no label {missing[0]}.")
        content = [by_label[label] for label in range(len(by_label))]
    if isinstance(content, list) and content:
        entries = [tuple(e) if isinstance(e, list) else (e,) for e in content]
        if all(e and all(isinstance(name, str) for name in e) for e in entries):
            return entries
    raise DataError(f"Classes file {file} holds no class names.", "Write one name a line (.txt) or a list (.json).")
