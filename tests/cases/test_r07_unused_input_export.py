"""R07 (pytorch/pytorch#104949, rwth-i6/returnn#1517): an unused input vanishes from the graph, outputs swap names."""

from __future__ import annotations

import json
import textwrap

import numpy as np
import onnxruntime
import pytest
import torch

from compress.artifact import Artifact, Form, ModelSource, sha256_of
from compress.load.loader import load_model
from compress.progress import Quiet
from compress.runners.base import RunOptions
from compress.runners.onnxruntime import OrtRunner
from compress.runners.targets import TARGETS
from compress.stage import Context
from exporters.onnx import OnnxExporter

CODE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, result):
        super().__init__()
        self.embed, self.linear, self.result = nn.Embedding(50, 8), nn.Linear(8, 4), result

    def forward(self, ids, feats, mask=None):
        hidden = self.embed(ids).mean(1) + feats
        scores = self.linear(hidden)
        return {"tensor": scores, "tuple": (scores, hidden), "dict": {"zeta": scores, "alpha": hidden}}[self.result]


def tensor():
    return Net("tensor")


def pair():
    return Net("tuple")


def mapping():
    return Net("dict")
"""
OUTPUTS = {"tensor": 1, "pair": 2, "mapping": 2}


@pytest.mark.parametrize("factory", OUTPUTS)
@pytest.mark.parametrize(
    "inputs", [("ids:int64:1x5", "feats:1x8", "mask:int64:1x5"), ("ids:int64:1x5", "mask:int64:1x5", "feats:1x8")]
)
def test_dropped_input_is_told_and_the_rest_keeps_name_type_and_order(tmp_path, factory, inputs):
    code = tmp_path / f"net_{factory}.py"
    code.write_text(textwrap.dedent(CODE), encoding="utf-8")
    source = ModelSource("", f"{code}:{factory}", inputs)
    loaded = load_model(source)
    parent = Artifact(Form.TORCH, code, loaded.signature, sha256_of(code), source=source)
    (tmp_path / "work").mkdir()
    context = Context(TARGETS["ort-cpu"], tmp_path / "work", Quiet(), verify=lambda child, parent: None)
    child = OnnxExporter().run(parent, context)

    assert child.lineage[-1].notes == ("Inputs that don't affect the result were dropped from the graph: mask.",)
    assert json.loads(json.dumps(child.to_json()))["lineage"][-1]["notes"] == list(child.lineage[-1].notes)
    kept = [s for s in loaded.signature.inputs if s.name != "mask"]
    assert list(child.signature.inputs) == kept
    assert {s.name: s.dtype for s in kept} == {"ids": "int64", "feats": "float32"}
    assert child.signature.outputs == loaded.signature.outputs
    assert len(child.signature.outputs) == OUTPUTS[factory]
    if factory == "mapping":
        assert [o.name for o in child.signature.outputs] == ["zeta", "alpha"]

    rng = np.random.default_rng(0)
    for batch in (1, 3):
        ids = rng.integers(0, 50, (batch, 5))
        feats = rng.standard_normal((batch, 8)).astype(np.float32)
        known = {"ids": ids, "feats": feats, "mask": np.ones((batch, 5), np.int64)}
        with torch.no_grad():
            expected = loaded.module(*(torch.from_numpy(known[s.name]) for s in loaded.signature.inputs))
        with OrtRunner(child, RunOptions(1)) as runner:
            made = runner.infer({"feats": feats, "ids": ids})
        assert list(made) == [o.name for o in loaded.signature.outputs]
        for have, want in zip(made.values(), expected, strict=True):
            np.testing.assert_allclose(have, want.numpy(), rtol=1e-4, atol=1e-5)
    session = onnxruntime.InferenceSession(str(child.path), providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == [s.name for s in kept]
