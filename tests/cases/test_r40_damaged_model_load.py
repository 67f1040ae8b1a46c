"""R40, damaged model files: a cut save says so, with its size (babysor/MockingBird#267, pytorch/pytorch#10577)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from compress.artifact import ModelSource
from compress.errors import ModelError
from compress.load.inspect import inspect_file
from compress.load.loader import load_model, open_source


def write(path: Path, kind: str) -> None:
    net = nn.Linear(40, 20)
    if kind == "zip":
        torch.save(net.state_dict(), path)
    elif kind == "legacy":
        torch.save(net.state_dict(), path, _use_new_zipfile_serialization=False)
    elif kind == "module":
        torch.save(net, path)
    elif kind == "torchscript":
        torch.jit.script(net).save(path)
    elif kind == "safetensors":
        save_file(net.state_dict(), path)


@pytest.mark.parametrize("kind", ["zip", "legacy", "module", "torchscript", "safetensors"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.97])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_cut_file(kind: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    write(path, kind)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ModelError) as caught:
        load_model(ModelSource(str(path), "", ("1x40",)))
    message = str(caught.value)
    assert "damaged or incomplete file" in message
    assert f"{path.stat().st_size:,} bytes" in message
    assert "\n" not in message
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("share", [0.3, 0.6, 0.97])
@pytest.mark.data
def test_a_cut_exported_program(share: float, shared_data: Path, tmp_path: Path) -> None:
    content = (shared_data / "user_models" / "resnet20.pt2").read_bytes()
    path = tmp_path / "m.pt2"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ModelError, match="damaged or incomplete file of"):
        load_model(ModelSource(str(path)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "of 0 bytes (it is empty)"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "an HTML page"),
        (b"\n <html lang='en'>", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
        (b"\x00" * 4096, "(4,096 bytes) is a damaged or incomplete file"),
        (b"PK\x03\x04" + b"\x00" * 100, "of 104 bytes"),
        (b"PK\x05\x06" + b"\x00" * 18, "(22 bytes)"),
        (b"\x80\x02", "of 2 bytes"),
        (b"just some text", "(14 bytes)"),
    ],
)
@pytest.mark.parametrize("name", ["m.pt", "m.safetensors", "m"])
def test_files_that_are_no_model(content: bytes, said: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for look in (load_model, inspect_file, open_source):
        with pytest.raises(ModelError) as caught:
            look(ModelSource(str(path), "", ("1x4",)))
        assert said in str(caught.value)


def test_one_changed_byte_inside(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    write(path, "module")
    content = bytearray(path.read_bytes())
    at = content.index(b"torch.nn.modules.linear")
    content[at - 1] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ModelError):
        load_model(ModelSource(str(path), "", ("1x40",)))


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="doesn't exist"):
        load_model(ModelSource(str(tmp_path / "m.pt"), "", ("1x4",)))
    with pytest.raises(ModelError, match="is a folder"):
        load_model(ModelSource(str(tmp_path), "", ("1x4",)))
