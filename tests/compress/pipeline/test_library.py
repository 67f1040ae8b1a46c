"""``compress.run`` as a library."""

from __future__ import annotations

import pytest
import torch

import compress
from compress.errors import UsageError


@pytest.fixture
def network():
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Dropout(0.5), torch.nn.Linear(8, 4)).train()


def test_a_module_in_memory(network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"input": ["1x3x16x16"], "target": "ort-cpu", "variants": ["fp32"], "batch": [1], "rounds": 3}
    results = compress.run(network, settings, out="run")
    assert network.training, "the caller's module is left as it was"
    assert results.variants[0].fidelity.sqnr_db > 90
    assert results.variants[0].speedup.vs_torch.ratio > 0
    assert results.baseline.facts["runtime"].startswith("torch")
    # The recipe that is kept says where the module went, so that it can be run again.
    assert results.recipe["model"].endswith(".pt2")
    assert (tmp_path / "run" / "artifacts" / "fp32.onnx").is_file()


def test_a_module_does_not_say_what_it_takes(network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="input="):
        compress.run(network)
    assert list(tmp_path.iterdir()) == []


def test_settings_are_checked(tmp_path):
    with pytest.raises(UsageError, match="'traget' is no setting"):
        compress.run("m.pt", {"traget": "openvino"})
