"""Opening a data set by what the user wrote: the one table of kinds."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from compress.data.arrays import ArraySource
from compress.data.base import Dataset
from compress.data.check import check_classes as check_classes
from compress.data.check import require as require
from compress.data.factory import FactoryDataset
from compress.data.folder import FolderSource
from compress.data.indexed import IndexedDataset, Source
from compress.data.preprocess import PRESETS, AnyPreprocess, Preprocess, TextPreprocess
from compress.data.remote import fetch, is_url, local_path, shown
from compress.data.screen import Policy, Screen
from compress.data.text import TextSource
from compress.errors import DataError, UsageError
from compress.progress import Progress, Quiet

ARRAYS = (".npz", ".npy")
TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz")
_KINDS = (
    "Data is a folder of class folders with images, a flat folder of images, a .npz, a .csv, .tsv or .jsonl of "
    "sentence pairs, FILE.py:factory, or an fsspec URL of one of these."
)


def open_dataset(
    spec: str,
    preprocess: AnyPreprocess | None,
    *,
    workers: int = 2,
    bad_samples: Policy = "stop",
    progress: Progress | None = None,
    cache: Path | None = None,
) -> Dataset:
    """Open data and count its samples; nothing is preprocessed yet.

    Args:
        spec: A folder, a file, ``FILE.py:factory``, or an fsspec URL.
        preprocess: What turns samples into inputs; None: as they are.
        workers: Threads that read ahead; 0: none.
        bad_samples: What to do with samples that cannot be read or hold NaN or infinity.
        progress: Where choices and warnings are told.
        cache: Folder for copies of remote data; None: a temporary one that goes away with the data set.

    Raises:
        DataError: Nothing is there, it is damaged, or it holds no samples.
        UsageError: The kind of data isn't known, or doesn't go with the preprocessing.
    """
    tell = progress or Quiet()
    screen = Screen(bad_samples, tell)
    factory = re.fullmatch(r"(.+\.py):([A-Za-z_]\w*)", spec)
    if factory:
        if preprocess is not None:
            tell.line(
                f"{spec}: batches of your own are taken as they are; the preprocess settings aren't applied to them."
            )
        return FactoryDataset(Path(factory[1]).expanduser(), factory[2], screen)
    if not is_url(spec):
        path = Path(spec).expanduser()
        return IndexedDataset(_source(path, preprocess, tell, spec, remote=False), screen, workers)
    local = local_path(spec)
    if local is not None:
        return IndexedDataset(_source(local, preprocess, tell, str(local), remote=False), screen, workers)
    holder = None if cache is not None else tempfile.TemporaryDirectory(prefix="compress-data-")
    into = Path(holder.name) if holder is not None else _fresh(cache)
    path = fetch(spec, into, workers, tell)
    return IndexedDataset(_source(path, preprocess, tell, shown(spec), remote=True), screen, workers, holder=holder)


def _fresh(cache: Path | None) -> Path:
    """Return a new folder in the cache, so that copies of two URLs never mix."""
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="data-", dir=cache))


def _source(path: Path, preprocess: AnyPreprocess | None, progress: Progress, name: str, *, remote: bool) -> Source:
    suffix = path.suffix.lower()
    if not path.exists():
        raise DataError(f"No data at {name}: there is no such file or folder.", _KINDS)
    if suffix in TEXTS and path.is_file():
        if not isinstance(preprocess, TextPreprocess):
            raise UsageError(
                f"{name} is text, which needs a tokenizer.", "Give the model's with --preprocess PATH/tokenizer.json."
            )
        return TextSource(path, preprocess, name=name)
    if path.is_dir() or suffix in ARRAYS:
        images = _for_images(preprocess, name)
        if not path.is_dir():
            return ArraySource(path, images, progress, name=name)
        if images is None:
            progress.line(f"{name}: no preprocessing given, pixels go in as they are (0–255, RGB, float32, NCHW).")
        return FolderSource(path, images or PRESETS["none"], progress, name=name, by_content=remote)
    if suffix in _ARCHIVES:
        raise UsageError(f"{name} is an archive.", f"Unpack it, or give zip://::file://{path.absolute()} for a .zip.")
    raise UsageError(f"{name} is of no known kind of data.", _KINDS)


def _for_images(preprocess: AnyPreprocess | None, name: str) -> Preprocess | None:
    if isinstance(preprocess, TextPreprocess):
        raise UsageError(f"{name} isn't text, but the preprocess settings hold a tokenizer.", "Give image settings.")
    return preprocess
