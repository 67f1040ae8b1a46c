"""R08: a reference that ran in training mode, or with dropout that never sleeps (microsoft/onnxruntime#4589)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from compress.artifact import ModelSource
from compress.load.loader import load_model

ALWAYS = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 64)
    def forward(self, x):
        return F.dropout(self.body(x), 0.5)

class Noise(Net):
    def forward(self, x):
        return self.body(x) + torch.randn_like(self.body(x))

class Stubborn(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
    def train(self, mode=True):
        return super().train(True)
    def forward(self, x):
        return self.drop(x)
"""


def whole() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))


@pytest.mark.parametrize("kind", ["module", "checkpoint", "torchscript"])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_saved_in_training_mode_runs_in_evaluation_mode(kind: str, tmp_path: Path) -> None:
    net = whole().train()
    for _ in range(3):
        net(torch.randn(16, 4) * 3 + 1)
    path = tmp_path / "m.pt"
    if kind == "torchscript":
        torch.jit.script(net).save(path)
    else:
        torch.save(net if kind == "module" else {"model": net}, path)
    loaded = load_model(ModelSource(str(path), "", ("1x4",)))
    assert any("saved in training mode" in note for note in loaded.notes)
    assert not any("identical passes" in note for note in loaded.notes)
    x = torch.randn(5, 4)
    with torch.no_grad():
        assert torch.equal(loaded.module(x)[0], net.eval()(x))
        loaded.module.train()
        assert torch.equal(loaded.module(x)[0], net(x))
        assert torch.allclose(loaded.module(x[:1])[0], net(x)[:1], atol=1e-6)


@pytest.mark.parametrize("name", ["Net", "Noise", "Stubborn"])
def test_outputs_that_change_are_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "always_net.py").write_text(ALWAYS)
    state = torch.get_rng_state()
    loaded = load_model(ModelSource(f"{tmp_path}/always_net.py:{name}", "", ("1x4",)))
    (note,) = [n for n in loaded.notes if "outputs change between identical passes (max difference" in n]
    assert "training=" in note
    assert any("stays in training mode" in n for n in loaded.notes) == (name == "Stubborn")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_quiet_network_gets_no_note(tmp_path: Path) -> None:
    torch.save(whole().eval(), tmp_path / "m.pt")
    assert load_model(ModelSource(str(tmp_path / "m.pt"), "", ("1x4",))).notes == ()
