"""R07, the loading half: inputs keep their names, order and types, even one without effect (pytorch/pytorch#104949)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from compress.artifact import ModelSource, TensorSpec
from compress.load.loader import open_source
from compress.runners.base import RunOptions
from compress.runners.torch import TorchRunner

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, as_dict):
        super().__init__()
        self.table = nn.Embedding(10, 3)
        nn.init.constant_(self.table.weight, 1.0)
        self.as_dict = as_dict
    def forward(self, ids: torch.Tensor, feats: torch.Tensor, mask=None):
        logits = self.table(ids).mean(1) + feats
        return {"logits": logits, "norm": feats.sum(1)} if self.as_dict else logits

def plain():
    return Net(False)

def two():
    return Net(True)
"""


@pytest.mark.parametrize("factory", ["plain", "two"])
@pytest.mark.parametrize("order", [("ids", "feats", "mask"), ("mask", "feats", "ids")])
def test_inputs_bind_by_name(factory: str, order: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "unused_net.py").write_text(CODE)
    texts = {"ids": "ids:int64:1x5", "feats": "feats:float32:1x3", "mask": "mask:float32:1x5"}
    artifact, loaded = open_source(
        ModelSource(f"{tmp_path}/unused_net.py:{factory}", "", tuple(texts[name] for name in order))
    )
    assert loaded is not None
    assert tuple(s.name for s in artifact.signature.inputs) == order
    assert {s.name: s.dtype for s in artifact.signature.inputs} == {
        "ids": "int64",
        "feats": "float32",
        "mask": "float32",
    }
    logits = TensorSpec("logits" if factory == "two" else "output", "float32", ("batch", 3))
    outputs = (logits, TensorSpec("norm", "float32", ("batch",))) if factory == "two" else (logits,)
    assert artifact.signature.outputs == outputs
    given = {
        "mask": np.zeros((2, 5), np.float32),
        "ids": np.full((2, 5), 7),
        "feats": np.array([[1, 2, 3], [4, 5, 6]], np.float32),
    }
    with TorchRunner(artifact, RunOptions(threads=1)) as runner:
        result = runner.infer(given)
    assert list(result) == [s.name for s in outputs]
    assert result[logits.name].tolist() == [[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]
    if factory == "two":
        assert result["norm"].tolist() == [6.0, 15.0]


def test_data_without_names_binds_by_position(tmp_path: Path) -> None:
    (tmp_path / "unused_net.py").write_text(CODE)
    sample = {"0": np.ones((2, 5), np.int64), "1": np.ones((2, 3), np.float32)}
    artifact, loaded = open_source(ModelSource(f"{tmp_path}/unused_net.py:plain"), sample)
    assert loaded is not None
    assert [str(s) for s in artifact.signature.inputs] == ["ids: int64[batch, 5]", "feats: float32[batch, 3]"]
    assert loaded.module(torch.ones(1, 5, dtype=torch.int64), torch.zeros(1, 3))[0].tolist() == [[1.0] * 3]
