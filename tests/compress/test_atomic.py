from __future__ import annotations

import os
from pathlib import Path

import pytest

from compress.atomic import write_bytes, write_text
from compress.errors import StageError


def test_text_is_utf8_with_its_newlines_as_they_are(tmp_path: Path) -> None:
    write_text(tmp_path / "ü.txt", "ü\nb\r\n")
    assert (tmp_path / "ü.txt").read_bytes() == "ü\nb\r\n".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["ü.txt"]


def test_the_old_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    write_bytes(file, b"old" * 100)
    write_bytes(file, b"new")
    assert file.read_bytes() == b"new"


def test_an_interrupt_leaves_the_old_file_and_no_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.bin"
    write_bytes(file, b"old")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(file, b"new")
    assert file.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"none/a\.txt cannot be written: No such file or directory"):
        write_text(tmp_path / "none" / "a.txt", "x")


def test_a_folder_under_the_final_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(StageError, match="cannot be written"):
        write_text(tmp_path / "a.txt", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
