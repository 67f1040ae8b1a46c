"""R40, sml2h3/dddd_trainer#36: a disk that is too small ends the run with the path and the space, and nothing half."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 5 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not sys.platform.startswith("linux"):
        pytest.skip("mounts a tmpfs")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_too_little_space_is_said_with_path_and_size(cli, small_model, small_disk, tmp_path):
    done = cli(
        "run", small_model, "--target", "openvino", "--variants", "fp32", "--out", small_disk / "r", cwd=tmp_path
    )
    assert done.returncode == 4
    assert str(small_disk) in done.stderr
    assert "MB may be needed" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((small_disk / "r").glob("artifacts/*"))
