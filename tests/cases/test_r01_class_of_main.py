"""R01: a module pickled whole by a script, whose class lives in that script's ``__main__`` (pytorch/pytorch#2762)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from compress.artifact import ModelSource
from compress.errors import ModelError
from compress.load.loader import load_model

TRAIN = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
    def forward(self, x):
        return self.body(x)

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

def build():
    return Net()

if __name__ == "__main__":
    torch.manual_seed(0)
    net = Net()
    torch.save(net, "m.pt")
    torch.save({"model": net, "epoch": 3}, "checkpoint.pt")
    torch.save(net(torch.ones(1, 4)), "expected.pt")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("r01")
    (folder / "train.py").write_text(TRAIN)
    subprocess.run([sys.executable, "train.py"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("name", ["m.pt", "checkpoint.pt"])
def test_without_code_the_missing_class_is_named(name: str, folder: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(ModelSource(str(folder / name), "", ("1x4",)))
    message = str(caught.value)
    assert "__main__.Net" in message
    assert "__main__.Block" in message
    assert "--code FILE.py:Net" in message
    assert ".pt2" in message
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("name", ["m.pt", "checkpoint.pt"])
@pytest.mark.parametrize("factory", [":Net", ":build", ""])
@pytest.mark.parametrize("trust", [False, True])
def test_with_code_it_loads(name: str, factory: str, trust: bool, folder: Path) -> None:
    source = ModelSource(str(folder / name), f"{folder}/train.py{factory}", ("1x4",), trust_pickle=trust)
    loaded = load_model(source)
    assert torch.equal(loaded.module(torch.ones(1, 4))[0], torch.load(folder / "expected.pt"))


def test_code_without_the_class_is_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("from torch import nn\nclass Other(nn.Module): ...\n")
    with pytest.raises(ModelError, match=r"other.py:Other doesn't define it"):
        load_model(ModelSource(str(folder / "m.pt"), f"{tmp_path}/other.py:Other", ("1x4",)))


@pytest.mark.data
def test_a_class_of_a_module_that_isnt_here(shared_data: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(ModelSource(str(shared_data / "user_models" / "resnet20_module.pt"), "", ("1x3x32x32",)))
    assert "resnet_cifar.CifarResNet" in str(caught.value)
    assert "--code resnet_cifar.py:" in str(caught.value)
