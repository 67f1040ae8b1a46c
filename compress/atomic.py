"""Writing a file so that it is either whole under its name or not there at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from compress.errors import StageError

_FULL = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 with its newlines unchanged; see :func:`write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` under a temporary name beside ``path``, flush it to the disk, then rename.

    A file that was at ``path`` stays as it was until the new one is whole. The temporary file is ``.NAME.PID.tmp``.

    Raises:
        StageError: The disk is full (the message names the path and the space needed), or the folder cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _explained(error, path, len(data)) from error
        raise
    _sync_folder(path.parent)


def _explained(error: OSError, path: Path, size: int) -> StageError:
    if error.errno in _FULL:
        return StageError(
            f"No space left to write {path}: it needs {_megabytes(size)}, {_free(path.parent)}.",
            "Free some space or choose another folder.",
        )
    return StageError(f"{path} cannot be written: {error.strerror or error}.", "Check the folder and its permissions.")


def _free(folder: Path) -> str:
    try:
        return f"{_megabytes(shutil.disk_usage(folder).free)} are free"
    except OSError:
        return "the free space is unknown"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB"


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can (Windows cannot open folders)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
