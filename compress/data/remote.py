"""Data behind an fsspec URL (``s3://``, ``memory://``, ``zip://…::file://…``): copied once, then local files."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from compress.errors import DataError, UsageError
from compress.progress import Progress


def is_url(spec: str) -> bool:
    """Tell whether ``spec`` is a URL for fsspec, not a path."""
    return "://" in spec


def shown(url: str) -> str:
    """Return the URL without a password, for messages."""
    return re.sub(r"//[^/@\s]*:[^/@\s]*@", "//***@", url)


def local_path(url: str) -> Path | None:
    """Return the path that a plain ``file://`` URL names; None for other URLs."""
    protocol, _, rest = url.partition("://")
    return Path(rest) if protocol in ("file", "local") and "::" not in rest else None


def fetch(url: str, into: Path, workers: int, progress: Progress) -> Path:
    """Copy a remote file or folder below ``into`` and return its path there.

    Raises:
        UsageError: No such protocol, or the package that speaks it isn't installed.
        DataError: Nothing is there, or it cannot be read.
    """
    name = shown(url)
    filesystem, root = _open(url, name)
    try:
        if filesystem.isfile(root):
            files = [root]
            base = str(PurePosixPath(root).parent)
        else:
            files = filesystem.find(root)
            base = root
        if not files:
            raise DataError(f"{name}: 0 files found, at least 1 wanted.", "Check the URL and your access rights.")
        pairs = [(f, into / _relative(f, base, name)) for f in files]
        for folder in {target.parent for _, target in pairs}:
            folder.mkdir(parents=True, exist_ok=True)
        # Archives are one stream: their members can only be read one after another.
        threads = 1 if "::" in url or url.startswith(("zip://", "tar://")) else max(1, workers)
        progress.line(f"Copying {len(files)} file(s) from {name}.")
        with progress.task("Copying data", len(files)) as advance, ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(lambda pair: filesystem.get_file(pair[0], str(pair[1])), pairs):
                advance(1)
    except (OSError, ValueError) as error:
        raise DataError(f"{name} cannot be read: {type(error).__name__}: {error}.") from error
    return pairs[0][1] if files == [root] else into


def _open(url: str, name: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    try:
        filesystem, root = url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{name}: {error}.") from error
    except ValueError as error:
        raise UsageError(f"{name}: no file system for this URL ({error}).") from error
    except OSError as error:
        raise DataError(f"{name} cannot be opened: {type(error).__name__}: {error}.") from error
    return filesystem, str(root)


def _relative(file: str, base: str, name: str) -> Path:
    parts = PurePosixPath(file.lstrip("/")).parts
    skip = len(PurePosixPath(base.lstrip("/")).parts) if base not in ("", ".") else 0
    inner = parts[skip:]
    if ".." in inner or not inner:
        raise DataError(f"{name} holds a file with an unsafe name: {file}.")
    return Path(*inner)
