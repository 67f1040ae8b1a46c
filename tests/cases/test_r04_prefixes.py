"""R04: a wrapper's prefix on keys, and lenient loading that keeps random weights (pytorch/examples#1029)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compress.artifact import ModelSource
from compress.errors import ModelError
from compress.load.loader import load_model

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(4, 4)
        self.net = nn.Linear(4, 3)
    def forward(self, x):
        return self.net(self.model(x))

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Net()
    def forward(self, x):
        return self.model(x)

def plain():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
"""


@pytest.fixture
def code(tmp_path: Path) -> str:
    (tmp_path / "prefix_net.py").write_text(CODE)
    return f"{tmp_path}/prefix_net.py"


def load(tmp_path: Path, weights: dict[str, Any], code: str, factory: str) -> Any:
    torch.save(weights, tmp_path / "m.pt")
    return load_model(ModelSource(str(tmp_path / "m.pt"), f"{code}:{factory}", ("1x4",)))


def trained() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()


@pytest.mark.parametrize(
    "prefix", ["module.", "model.", "_orig_mod.", "net.", "module._orig_mod.", "model.module.net."]
)
def test_a_prefix_on_every_key_is_dropped_and_told(prefix: str, code: str, tmp_path: Path) -> None:
    network = trained()
    weights = {prefix + key: value for key, value in network.state_dict().items()}
    loaded = load(tmp_path, weights, code, "plain")
    assert f"prefix {prefix!r} dropped from every key" in loaded.notes
    x = torch.randn(3, 4)
    with torch.no_grad():
        assert torch.equal(loaded.module(x)[0], network(x))


def test_a_prefix_on_some_keys_is_kept(code: str, tmp_path: Path) -> None:
    weights = {("module." if "weight" in k else "") + k: v for k, v in trained().state_dict().items()}
    with pytest.raises(
        ModelError, match=r"2 missing \(0.weight, 1.weight\), 2 unexpected \(module.0.weight, module.1.weight\)"
    ):
        load(tmp_path, weights, code, "plain")


@pytest.mark.parametrize(("saved", "notes"), [("", ()), ("module.", ("prefix 'module.' dropped from every key",))])
def test_a_prefix_that_the_network_needs_is_kept(saved: str, notes: tuple[str, ...], code: str, tmp_path: Path) -> None:
    for factory, own in (("Inner", "model."), ("Net", "")):
        keys = {"model.weight": (4, 4), "model.bias": (4,), "net.weight": (3, 4), "net.bias": (3,)}
        weights = {f"{saved}{own}{k}": torch.full(shape, 0.5) for k, shape in keys.items()}
        loaded = load(tmp_path, weights, code, factory)
        assert loaded.notes == notes
        assert loaded.module(torch.ones(1, 4))[0].tolist() == [[5.5] * 3]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop("0.bias"), "1 missing (0.bias)"),
        (lambda w: w.update(extra=torch.ones(1)), "1 unexpected (extra)"),
        (lambda w: w.update({"0.weight": torch.ones(4, 5)}), "1 of another shape (0.weight [4, 5] (needs [4, 4]))"),
        (lambda w: w.update({f"x{i}": torch.ones(1) for i in range(9)}), "9 unexpected (x0, x1, x2, x3, x4, … 4 more)"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "module."])
def test_one_wrong_key_stops_the_load(change: Any, said: str, prefix: str, code: str, tmp_path: Path) -> None:
    weights = dict(trained().state_dict())
    change(weights)
    with pytest.raises(ModelError) as caught:
        load(tmp_path, {prefix + k: v for k, v in weights.items()}, code, "plain")
    assert said in str(caught.value)


def test_weights_of_another_network_never_leave_random_ones(code: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"against the network's 7; 6 missing"):
        load(tmp_path, {"module.other.weight": torch.ones(2)}, code, "plain")


def test_batch_norm_from_before_its_counter(code: str, tmp_path: Path) -> None:
    weights = {k: v for k, v in trained().state_dict().items() if "num_batches" not in k}
    assert load(tmp_path, weights, code, "plain").kind == "state_dict"
