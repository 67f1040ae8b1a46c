"""Fixtures of the data tests: small real and made images, and a progress that keeps what it is told."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


class Recorder:
    """A progress that keeps lines and warnings."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def detail(self, text: str) -> None:
        pass

    @contextlib.contextmanager
    def task(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        yield lambda n: None


@pytest.fixture
def told() -> Recorder:
    return Recorder()


@pytest.fixture(scope="session")
def cifar(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve real test images of each class, in class folders."""
    folder = tmp_path_factory.mktemp("cifar")
    taken: dict[str, int] = {}
    with tarfile.open(shared_data / "cifar10" / "test.tar.gz") as archive:
        for member in archive:
            _, *inner = Path(member.name).parts
            if member.isfile() and len(inner) == 2 and taken.setdefault(inner[0], 0) < 12:
                taken[inner[0]] += 1
                archive.extract(member, folder, filter="data")
    assert sum(taken.values()) == 120
    return folder / "test"


@pytest.fixture
def make_image() -> Callable[..., Path]:
    """Write an image of random pixels; ``size`` is (width, height)."""

    def make(path: Path, seed: int = 0, size: tuple[int, int] = (8, 6), mode: str = "RGB") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        channels = {"RGB": (3,), "RGBA": (4,), "L": ()}[mode]
        pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], *channels), dtype=np.uint8)
        Image.fromarray(pixels, mode=mode).save(path)
        return path

    return make


@pytest.fixture
def folder(tmp_path: Path, make_image: Callable[..., Path]) -> Path:
    """Two classes, ``cat`` (4 images) and ``dog`` (3), 8 by 6 pixels."""
    for name, count, offset in (("cat", 4, 0), ("dog", 3, 10)):
        for i in range(count):
            make_image(tmp_path / "pets" / name / f"{i}.png", seed=offset + i)
    return tmp_path / "pets"
