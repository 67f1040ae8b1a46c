"""A user's own loader: ``FILE.py:factory`` returns the batches."""

from __future__ import annotations

import copy
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from compress.artifact import sha256_of
from compress.data.base import Array, Batch
from compress.data.items import Item, join, to_item
from compress.data.labels import choose, task_of
from compress.data.screen import Screen, find_not_finite
from compress.data.user_code import UserIterable
from compress.errors import DataError, UsageError


class FactoryDataset:
    """Batches from an iterable of the user's own, gone through once when opened to count and look at them.

    The factory returns something that can be gone through again (a list, a torch ``Dataset`` or ``DataLoader``), or an
    iterator; then it is called anew for every pass. Samples are taken as they are and in the order in which they come,
    and put into batches of the size asked; where their shapes differ from item to item (padded text), only within an
    item. They aren't read ahead: a ``DataLoader`` has workers of its own.

    Args:
        path: The Python file.
        function: The factory's name in it.
        screen: Decides on bad samples.

    Raises:
        UsageError: The file or the function isn't there.
        DataError: It fails, hands over what isn't a batch, no samples, or an iterator that can be used only once.
    """

    def __init__(self, path: Path, function: str, screen: Screen) -> None:
        self.name = f"{path}:{function}"
        self._path = path
        self._screen = screen
        self._iterable = UserIterable(path, function)
        self._selected: Sequence[int] | None = None
        self._count()

    def _count(self) -> None:
        digest = hashlib.sha256(sha256_of(self._path).encode())
        self._sizes: list[int] = []
        shapes: dict[str, list[tuple[int, ...]]] = {}
        targets: list[Array] = []
        self._first_mark = 0
        for item in self._items():
            mark = _mark(item)
            self._first_mark = self._first_mark if self._sizes else mark
            digest.update(f"{item.count} {mark}\n".encode())
            self._sizes.append(item.count)
            for key, array in item.inputs.items():
                shapes.setdefault(key, []).append(array.shape[1:])
            if item.targets is not None:
                targets.append(item.targets)
        self._total = sum(self._sizes)
        if not self._total:
            raise DataError(
                f"{self.name} gave no samples: 0 found, at least 1 wanted.",
                "A generator is used up after one pass: make it inside the factory.",
            )
        if targets and sum(map(len, targets)) != self._total:
            raise DataError(f"{self.name} gives targets for {sum(map(len, targets))} of {self._total} samples only.")
        self._labels = np.concatenate(targets) if targets else None
        self._digest = digest.hexdigest()
        self.dynamic_axes: Mapping[str, tuple[str, ...]] = {k: s for k, v in shapes.items() if (s := _varying(k, v))}

    @property
    def labelled(self) -> bool:
        """Whether its batches have targets."""
        return self._labels is not None

    @property
    def labels(self) -> Array | None:
        """Labels of its samples, in order, without those known to be bad; None where there are none."""
        return None if self._labels is None else self._labels[np.array(self._good(), dtype=np.int64)]

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names where what the factory returned has ``classes``, as torchvision's data sets do."""
        return self._iterable.classes

    @property
    def task(self) -> str:
        """``classification`` or ``regression``; ``unknown`` without labels."""
        return task_of(self._labels)

    @property
    def skipped(self) -> int:
        """Samples found bad so far and left out; they don't count in ``len``."""
        return len(self._indices()) - len(self._good())

    def __len__(self) -> int:
        return len(self._good())

    def batches(self, size: int, limit: int | None = None) -> Iterator[Batch]:
        """Yield batches of ``size`` samples (the last may be short), each sample once, ``limit`` samples at most.

        Raises:
            DataError: A sample is bad and the policy is to stop, none is left, or the factory gives another number of
                samples than before.
            UsageError: ``size`` or ``limit`` is below 1.
        """
        if size < 1 or (limit is not None and limit < 1):
            raise UsageError(
                f"{self.name}: batch size and number of samples must be 1 or more, not {size} and {limit}."
            )
        return self._batches(size, len(self) if limit is None else min(limit, len(self)))

    def _batches(self, size: int, left: int) -> Iterator[Batch]:
        waiting: list[Item] = []
        given = 0
        try:
            for item in self._sound_items():
                if waiting and not waiting[0].fits(item):
                    yield _batch(join(waiting))
                    waiting = []
                kept = item.rows(0, left - given)
                given += kept.count
                waiting.append(kept)
                held = sum(i.count for i in waiting)
                if held >= size:
                    joined = join(waiting)
                    whole = held - held % size
                    for start in range(0, whole, size):
                        yield _batch(joined.rows(start, start + size))
                    waiting = [joined.rows(whole, held)] if whole < held else []
                if given >= left:
                    break
            if waiting:
                yield _batch(join(waiting))
            if not given:
                raise self._screen.none_left(self.name, len(self._indices()))
        finally:
            self._screen.tell()

    def subset(self, samples: int, seed: int) -> FactoryDataset:
        """Return ``samples`` of it (all where it has fewer), spread evenly over the classes where it has labels.

        They keep the order in which the factory gives them. The same seed gives the same samples.

        Raises:
            UsageError: ``samples`` is below 1.
        """
        if samples < 1:
            raise UsageError(f"{self.name}: the number of samples must be 1 or more, not {samples}.")
        good = self._good()
        part = copy.copy(self)
        part._selected = sorted(good[i] for i in choose(self.labels, len(good), samples, seed))
        return part

    def fingerprint(self) -> str:
        """Return a digest of the file, of all samples as they came when it was opened, and of the selection."""
        return hashlib.sha256(json.dumps([self._digest, self._selected or "all"]).encode()).hexdigest()

    def _indices(self) -> Sequence[int]:
        return range(self._total) if self._selected is None else self._selected

    def _good(self) -> Sequence[int]:
        bad = self._screen.bad
        return [i for i in self._indices() if i not in bad] if bad else self._indices()

    def _sound_items(self) -> Iterator[Item]:
        """Yield, of every item, the selected samples that hold neither NaN nor infinity."""
        selected = None if self._selected is None else np.array(self._selected)
        offset = 0
        for number, item in enumerate(self._items()):
            if number == 0 and _mark(item) != self._first_mark:
                self._screen.warn_once(
                    f"{self.name} gives other batches on every pass (shuffling or random changes): fine for training, "
                    "but comparisons need the same samples in the same order."
                )
            wanted = np.arange(item.count)
            if selected is not None:
                wanted = selected[(selected >= offset) & (selected < offset + item.count)] - offset
            sound = self._sound(item, wanted.tolist(), offset, number)
            offset += item.count
            if sound:
                yield item.take(np.array(sound))
        if offset != self._total:
            raise DataError(
                f"{self.name} gave {offset} samples on this pass and {self._total} when it was opened.",
                "A generator is used up after one pass: make it inside the factory.",
            )

    def _sound(self, item: Item, rows: list[int], offset: int, number: int) -> list[int]:
        """Return those of ``rows`` whose samples are good; judge the others."""
        rows = [r for r in rows if r + offset not in self._screen.bad]
        arrays = item.inputs if item.targets is None else {**item.inputs, "labels": item.targets}
        if all(np.isfinite(a).all() for a in arrays.values() if a.dtype.kind == "f"):
            return rows
        sound = []
        for row in rows:
            where = f"sample {row + offset} (batch {number}) of {self.name}"
            bad = find_not_finite({k: np.asarray(a[row]) for k, a in arrays.items()}, where)
            if bad is None:
                sound.append(row)
            else:
                self._screen.judge(row + offset, bad)
        return sound

    def _items(self) -> Iterator[Item]:
        for number, (value, sample) in enumerate(self._iterable):
            item = to_item(value, f"Batch {number} of {self.name}", sample=sample)
            if item.count:
                yield item


def _batch(item: Item) -> Batch:
    return Batch(inputs=dict(item.inputs), targets=item.targets, count=item.count)


def _mark(item: Item) -> int:
    """Return a checksum of all arrays of an item."""
    arrays = [*item.inputs.values(), *([] if item.targets is None else [item.targets])]
    mark = 0
    for array in arrays:
        mark = zlib.crc32(np.ascontiguousarray(array).tobytes(), mark)
    return mark


def _varying(name: str, shapes: list[tuple[int, ...]]) -> tuple[str, ...]:
    """Return a symbol for each axis from 1 on where any axis varies; an empty tuple where none does."""
    if len(set(shapes)) == 1:
        return ()
    if len(shapes[0]) == 1:
        return ("sequence",)
    return tuple(f"{name}_{axis}" for axis in range(1, len(shapes[0]) + 1))
