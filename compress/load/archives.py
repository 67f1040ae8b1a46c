"""Reading torch's zip archives member by member, through the reader that torch itself will use."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch

from compress.errors import ModelError
from compress.load.kinds import damaged


class Archive:
    """The members of an archive by name, without the folder that all of them lie in.

    Raises:
        ModelError: The file is damaged, or is laid out so that what is checked might not be what torch loads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = torch._C.PyTorchFileReader(str(path))
            self.names: tuple[str, ...] = tuple(self._reader.get_all_records())
            with zipfile.ZipFile(path) as archive:
                listed = archive.namelist()
        except (RuntimeError, zipfile.BadZipFile, OSError) as error:
            raise damaged(path, "its table of contents is broken") from error
        folders = {name.partition("/")[0] for name in listed}
        short = [name.partition("/")[2] for name in listed]
        # Two entries of one name, or two archives in one file, would let a checked member hide another.
        if len(folders) != 1 or sorted(short) != sorted(self.names) or len({n.lower() for n in short}) != len(short):
            raise ModelError(
                f"{path} is refused: it isn't laid out as torch writes archives.", "Save it again with torch."
            )

    def read(self, name: str) -> bytes:
        """Return a member's bytes.

        Raises:
            ModelError: The member is damaged.
        """
        try:
            content: bytes = self._reader.get_record(name)
        except RuntimeError as error:
            raise damaged(self.path, f"its part {name} is broken") from error
        return content
