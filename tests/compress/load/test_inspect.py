"""Looking at models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from compress.artifact import ModelSource
from compress.load.inspect import count_macs, inspect_file
from compress.load.loader import load_model


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "code", "inputs"),
    [
        ("resnet20_module.pt", True, True),
        ("resnet20_checkpoint.pth", True, True),
        ("resnet20_torchscript.pt", False, True),
        ("resnet20.pt2", False, False),
    ],
)
def test_a_network(name: str, code: bool, inputs: bool, shared_data: Path) -> None:
    folder = shared_data / "user_models"
    source = ModelSource(
        str(folder / name), f"{folder}/resnet_cifar.py:resnet20" if code else "", ("1x3x32x32",) if inputs else ()
    )
    seen = inspect_file(source)
    assert seen.size_bytes == (folder / name).stat().st_size
    assert seen.parameters == 269_722
    assert seen.macs == 40_551_040  # 40.55 M, convolutions and the linear layer counted by hand
    assert dict(seen.dtypes) == {"float32": 269_722}
    assert seen.refused == ()
    assert seen.signature is not None
    assert seen.signature.outputs[0].shape == ("batch", 10)
    assert json.loads(json.dumps(seen.to_json()))["parameters"] == 269_722
    if code:
        layers = {layer.name: layer for layer in seen.layers}
        assert (layers["conv1"].type, layers["conv1"].shape) == ("Conv2d", (16, 3, 3, 3))


@pytest.mark.data
def test_a_hostile_file_is_read_and_not_run(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen = inspect_file(ModelSource(str(shared_data / "user_models" / "hostile.pt")))
    assert seen.refused == ("posix.system",)
    assert "nothing of the file was run" in seen.notes[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.data
def test_a_module_without_its_code_still_shows_its_tensors(shared_data: Path) -> None:
    seen = inspect_file(ModelSource(str(shared_data / "user_models" / "resnet20_module.pt")))
    assert seen.kind == "module"
    assert set(seen.refused) == {"resnet_cifar.CifarResNet", "resnet_cifar.Block"}
    shapes = [layer.shape for layer in seen.layers]
    assert (16, 3, 3, 3) in shapes
    assert (10, 64) in shapes


def test_weights_alone(tmp_path: Path) -> None:
    weights = {"a.weight": torch.ones(2, 3), "a.steps": torch.ones((), dtype=torch.int64)}
    torch.save(weights, tmp_path / "m.pt")
    torch.save({"model": weights, "epoch": 2}, tmp_path / "c.pt")
    save_file(weights, tmp_path / "m.safetensors")
    plain, nested, tensors = (inspect_file(ModelSource(str(tmp_path / n))) for n in ("m.pt", "c.pt", "m.safetensors"))
    assert (plain.kind, nested.kind, tensors.kind) == ("state_dict", "checkpoint", "safetensors")
    assert [(layer.name, layer.shape) for layer in plain.layers] == [("a.weight", (2, 3)), ("a.steps", ())]
    assert [layer.name for layer in nested.layers] == ["model.a.weight", "model.a.steps"]
    assert "top-level keys: model, epoch" in nested.notes
    assert {layer.name: layer.shape for layer in tensors.layers} == {"a.weight": (2, 3), "a.steps": ()}
    assert dict(plain.dtypes) == {"float32": 6, "int64": 1}


def test_without_inputs_the_rest_is_still_told(tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Linear(4, 2), nn.ReLU()).half(), tmp_path / "m.pt")
    seen = inspect_file(ModelSource(str(tmp_path / "m.pt")))
    assert (seen.parameters, seen.signature, seen.macs) == (10, None, None)
    assert dict(seen.dtypes) == {"float16": 10}
    assert [(layer.name, layer.type) for layer in seen.layers] == [("0", "Linear"), ("1", "ReLU")]
    assert any("--input" in note for note in seen.notes)


def test_macs_by_hand(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, groups=1), nn.Flatten(), nn.Linear(8 * 16, 5))
    torch.save(net, tmp_path / "m.pt")
    loaded = load_model(ModelSource(str(tmp_path / "m.pt"), "", ("1x3x4x4",)))
    assert count_macs(loaded) == 8 * 16 * 27 + 128 * 5
    torch.save(nn.ReLU(), tmp_path / "r.pt")
    assert count_macs(load_model(ModelSource(str(tmp_path / "r.pt"), "", ("1x3",)))) is None
