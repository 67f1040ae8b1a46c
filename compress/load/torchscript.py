"""Loading TorchScript files (``torch.jit.save``)."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import torch

from compress.errors import ModelError
from compress.load.archives import Archive
from compress.load.kinds import damaged

_TOUCHES_FILES = re.compile(rb"\b(save|from_file|load_tensor)\b")
"""TorchScript's operators that read or write files; a module may even call them while it is being loaded."""


def load_torchscript(path: Path, trust: bool) -> torch.nn.Module:
    """Load a TorchScript file to the CPU.

    Raises:
        ModelError: The file is damaged, or its program uses operators that read or write files and ``trust`` is off.
    """
    unsafe = [] if trust else unsafe_operators(Archive(path))
    if unsafe:
        raise ModelError(
            f"{path} is refused and nothing of it was run: it uses {', '.join(unsafe)} to read or write files.",
            "Only if you trust whoever made it, pass --trust-pickle.",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch deprecates the format; the files are there
            module: torch.nn.Module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError) as error:
        raise damaged(path, str(error).strip().partition("\n")[0][:160]) from error
    return module


def unsafe_operators(archive: Archive) -> list[str]:
    """Return the operators of a TorchScript file that read or write files."""
    code = (archive.read(name) for name in archive.names if name.startswith("code/") and name.endswith(".py"))
    return sorted({found.decode() for text in code for found in _TOUCHES_FILES.findall(text)})
