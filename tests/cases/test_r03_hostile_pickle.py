"""R03: a model file whose pickle runs code (Synthefy/synthefy-nori PR 54, protectai/modelscan#338)."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compress.artifact import ModelSource
from compress.errors import ModelError
from compress.load.inspect import inspect_file
from compress.load.loader import load_model


class Call:
    def __init__(self, function: Any, *args: Any) -> None:
        self.what = (function, args)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what


def attacks(marker: Path) -> dict[str, Any]:
    write = f"open({str(marker)!r}, 'w')"
    return {
        "system": Call(os.system, f"touch {marker}"),
        "eval": Call(eval, write),
        "exec": Call(exec, write),
        "open": Call(open, str(marker), "w"),
        "popen": Call(subprocess.Popen, ["touch", str(marker)]),
        "getattr": Call(getattr(builtins, "exec"), write),  # noqa: B009
        "path": Call(Path.touch, marker),
        "nested": {"state_dict": {"w": torch.ones(1), "x": [Call(os.system, f"touch {marker}")]}},
        "in a module": nn.Sequential(nn.Linear(1, 1)),
    }


@pytest.mark.parametrize("name", list(attacks(Path("x"))))
@pytest.mark.parametrize("layout", ["zip", "legacy", "plain pickle"])
def test_refused_and_not_run(name: str, layout: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    value = attacks(marker)[name]
    if name == "in a module":
        value[0].extra = Call(os.system, f"touch {marker}")
    path = tmp_path / "m.pt"
    if layout == "plain pickle":
        path.write_bytes(pickle.dumps(value))
    else:
        torch.save(value, path, _use_new_zipfile_serialization=layout == "zip")
    with pytest.raises(ModelError) as caught:
        load_model(ModelSource(str(path), "", ("1x4",)))
    assert "nothing of it was run" in str(caught.value)
    assert caught.value.exit_code == 3
    if layout != "plain pickle":
        assert inspect_file(ModelSource(str(path))).refused
    assert not marker.exists()
    if layout == "zip":  # the attack is one: full unpickling, which the user must ask for, runs it
        with pytest.raises(ModelError):
            load_model(ModelSource(str(path), trust_pickle=True))


OPCODES = {
    "stack_global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "inst": b"(S'true'\nios\nsystem\n.",
    "obj": b"(cos\nsystem\nS'true'\no.",
    "dotted name": b"\x80\x04\x8c\x05torch\x8c\x09os.system\x93\x8c\x04true\x85R.",
    "python 2 name": b"c__builtin__\neval\n(S'1'\ntR.",
    "call of a made thing": b"\x80\x02cargparse\nNamespace\n)\x81)R.",
    "name with a line break": b"\x80\x04\x8c\x02os\x8c\x08sys\ntem.\x93.",
}


@pytest.mark.parametrize("name", list(OPCODES))
def test_hand_made_pickles(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", OPCODES[name])
        archive.writestr("m/version", "3\n")
        archive.writestr("m/byteorder", "little")
    with pytest.raises(ModelError, match="nothing of it was run"):
        load_model(ModelSource(str(path), "", ("1x4",)))


def test_the_oldest_format_is_no_way_round(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    with tarfile.open(path, "w") as archive:
        content = b"cos\nsystem\n(S'true'\ntR."
        entry = tarfile.TarInfo("pickle")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    with pytest.raises(ModelError):
        load_model(ModelSource(str(path), "", ("1x4",)))


@pytest.mark.data
@pytest.mark.parametrize("code", ["", "resnet_cifar.py:resnet20"])
def test_the_hostile_checkpoint(code: str, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shared_data / "user_models"
    source = ModelSource(str(folder / "hostile.pt"), f"{folder}/{code}" if code else "", ("1x3x32x32",))
    with pytest.raises(ModelError, match=r"posix\.system.*--trust-pickle"):
        load_model(source)
    assert list(tmp_path.iterdir()) == []
    assert not (folder / "hostile_marker.txt").exists()
