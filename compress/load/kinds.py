"""Telling what a model file is by its content; its name doesn't count."""

from __future__ import annotations

import enum
import zipfile
from pathlib import Path

from compress.errors import ModelError

_HEAD = 4096


class Kind(str, enum.Enum):
    """What a file holds, as far as its first bytes and its table of contents tell."""

    PICKLE = "pickle"
    LEGACY_PICKLE = "legacy pickle"
    TORCHSCRIPT = "torchscript"
    EXPORTED = "exported program"
    SAFETENSORS = "safetensors"
    ONNX = "onnx"
    OPENVINO = "openvino"


def damaged(path: Path, reason: str = "") -> ModelError:
    """Return the error for a file that was cut or spoilt; ``reason`` is what the reader said of it."""
    said = f" ({reason})" if reason else ""
    return ModelError(
        f"{path} is a damaged or incomplete file of {path.stat().st_size:,} bytes{said}.",
        "Copy, download or save it again.",
    )


def kind_of(path: Path) -> Kind:
    """Return what a file is.

    Raises:
        ModelError: There is no such file, it is a folder, empty, damaged, or nothing known; the message gives its size.
    """
    if path.is_dir():
        raise ModelError(f"{path} is a folder, not a model file.", "Name the file inside it.")
    if not path.exists():
        raise ModelError(f"{path} doesn't exist.", "Check the path; architectures are written as torchvision:resnet50.")
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    if not head:
        raise damaged(path, "it is empty")
    if head.startswith(b"PK\x03\x04"):
        return _kind_of_zip(path)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html")):
        raise damaged(path, "an HTML page: the download brought a web page instead of the model")
    if text.startswith(b"version https://git-lfs"):
        raise damaged(path, "a Git LFS pointer: run 'git lfs pull' to get the model itself")
    if text.startswith(b"<?xml") and b"<net" in text:
        return Kind.OPENVINO
    if head[8:9] == b"{" and 0 < int.from_bytes(head[:8], "little") < 1 << 28:
        return Kind.SAFETENSORS
    if head[:1] == b"\x80" and len(head) > 1 and head[1] <= 5:
        return Kind.LEGACY_PICKLE
    # An ONNX file is a protocol buffer whose first field is ir_version (tag 0x08) or, rarely, another low one.
    if head[:1] == b"\x08" or path.suffix.lower() == ".onnx":
        return Kind.ONNX
    raise ModelError(
        f"{path} ({path.stat().st_size:,} bytes) is a damaged or incomplete file, or no model.",
        "Known are files of torch.save, torch.jit.save and torch.export.save, safetensors, ONNX and OpenVINO's .xml.",
    )


def _kind_of_zip(path: Path) -> Kind:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise damaged(path, "the table of contents at its end is missing") from error
    inside = {name.partition("/")[2] for name in names} | set(names)
    if "constants.pkl" in inside:
        return Kind.TORCHSCRIPT
    if "serialized_exported_program.json" in inside or "archive_format" in inside:
        return Kind.EXPORTED
    if "data.pkl" in inside:
        return Kind.PICKLE
    raise ModelError(
        f"{path} is a zip archive, but not one of torch.save, torch.jit.save or torch.export.save.",
        "Unpack it and name the model file inside it.",
    )
