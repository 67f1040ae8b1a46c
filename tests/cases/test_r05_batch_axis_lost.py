"""R05 (pytorch/pytorch#151582): a batch axis asked to be dynamic is frozen by the exporter, often without a word."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from compress.artifact import BATCH, Signature, TensorSpec
from compress.errors import StageError
from compress.load.probe import probe_inputs
from compress.progress import Quiet
from exporters.onnx import OnnxExporter

ENDS = {
    "flatten": lambda self, x: self.linear(x.flatten(1)),
    "view of the size": lambda self, x: self.linear(x.view(x.size(0), -1)),
    "int of the size": lambda self, x: self.linear(x.reshape(int(x.shape[0]), -1)),
    "len": lambda self, x: self.linear(x.reshape(len(x), -1)),
    "mean over space": lambda self, x: self.head(x.mean((2, 3))),
    "split and join": lambda self, x: torch.cat([self.linear(x.flatten(1))[:1], self.linear(x.flatten(1))[1:]]),
}
FROZEN = {
    "view of one row": lambda self, x: self.linear(x.view(1, -1)),
    "view of two rows": lambda self, x: self.linear(x.view(2, -1)),
    "loop over the batch": lambda self, x: torch.stack([self.linear(row.flatten()) for row in x]),
    "first row alone": lambda self, x: self.linear(x.view(1, -1)[:, :3600]),
}
SIGNATURE = Signature(
    (TensorSpec("image", "float32", (BATCH, 3, 32, 32)),), (TensorSpec("scores", "float32", (BATCH, 10)),)
)


class Classifier(nn.Module):
    def __init__(self, end):
        super().__init__()
        self.conv, self.linear, self.head, self.end = nn.Conv2d(3, 4, 3), nn.Linear(3600, 10), nn.Linear(4, 10), end

    def forward(self, image):
        return (self.end(self, torch.relu(self.conv(image))),)


def export(module, folder, sample=None):
    return OnnxExporter().export(module.eval(), SIGNATURE, folder, sample=sample, seed=0, progress=Quiet())


@pytest.mark.parametrize("end", ENDS)
def test_axis_stays_open_although_the_sample_has_one_row(tmp_path, end):
    module = Classifier(ENDS[end])
    sample = {"image": np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)}
    made = export(module, tmp_path, sample)
    assert made.signature == SIGNATURE
    session = onnxruntime.InferenceSession(str(made.path), providers=["CPUExecutionProvider"])
    for batch in (1, 3, 8):
        inputs = probe_inputs(SIGNATURE, batch, batch)
        with torch.no_grad():
            expected = module(torch.from_numpy(inputs["image"]))[0].numpy()
        np.testing.assert_allclose(session.run(["scores"], inputs)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("end", FROZEN)
def test_frozen_axis_is_an_error_that_names_the_cause(tmp_path, end):
    with pytest.raises(StageError) as caught:
        export(Classifier(FROZEN[end]), tmp_path)
    assert caught.value.exit_code == 4
    assert "frozen to" in caught.value.message
    assert "batch size" in caught.value.message
    assert "x.flatten(1)" in caught.value.hint
    assert "\n" not in str(caught.value)
