"""R40 (babysor/MockingBird#267, pytorch/pytorch#10577): a save on a full disk leaves a truncated file.

A write goes under a temporary name; on a full disk the final name is untouched and the message names path and space.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compress.atomic import write_bytes
from compress.errors import StageError

pytest.importorskip("resource", reason="limits on file size are POSIX's")

_LIMITED = """
import resource, signal, sys
from pathlib import Path
from compress.atomic import write_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
write_bytes(Path(sys.argv[1]), bytes(int(sys.argv[2])))
"""


@pytest.mark.parametrize("size", [100_001, 5_000_000])
def test_a_real_shortage_leaves_nothing_under_the_final_name(tmp_path: Path, size: int) -> None:
    file = tmp_path / "weights.bin"
    done = subprocess.run([sys.executable, "-c", _LIMITED, str(file), str(size)], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"No space left to write {file}: it needs {size / 1e6:.3g} MB" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_an_earlier_run_survives(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(b"earlier")
    subprocess.run([sys.executable, "-c", _LIMITED, str(file), "200000"], capture_output=True)
    assert file.read_bytes() == b"earlier"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_path_and_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def full(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        StageError, match=r"No space left to write .*a\.bin: it needs 2 MB, .* are free\. Free some space"
    ):
        write_bytes(tmp_path / "a.bin", bytes(2_000_000))
    assert list(tmp_path.iterdir()) == []
