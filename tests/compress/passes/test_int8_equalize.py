"""Cross-layer equalization: the function stays, the ranges even out."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from compress.passes.int8.equalize import equalize


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _weights(model):
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}


def test_what_the_network_computes_stays_and_filters_become_alike(convolutions, run):
    model = _copy(convolutions)
    x = np.random.default_rng(2).standard_normal((4, 8, 8, 8)).astype(np.float32)
    before = run(model, x)
    assert equalize(model) == ("conv_a",)  # the second convolution is followed by a Gemm, through a Flatten
    np.testing.assert_allclose(run(model, x), before, rtol=1e-4, atol=1e-4 * np.abs(before).max())
    size = np.abs(_weights(model)["w1"]).max(axis=(1, 2, 3))
    read = np.abs(_weights(model)["w2"]).max(axis=(0, 2, 3))
    np.testing.assert_allclose(size, read, rtol=1e-3)
    spread = np.abs(_weights(convolutions)["w1"]).max(axis=(1, 2, 3))
    assert spread.max() / spread.min() > 500 > 10 > size.max() / size.min()


def test_a_clip_between_keeps_a_pair_as_it_is(net):
    rng = np.random.default_rng(0)
    weights = {"w1": rng.standard_normal((4, 3, 1, 1)), "w2": rng.standard_normal((2, 4, 1, 1)), "lo": 0.0, "hi": 6.0}
    weights = {n: np.asarray(w, np.float32) for n, w in weights.items()}
    nodes = [
        ("Conv", ["x", "w1"], ["a"], {}),
        ("Clip", ["a", "lo", "hi"], ["b"], {}),
        ("Conv", ["b", "w2"], ["y"], {}),
    ]
    model = net(nodes, weights, ("batch", 3, 4, 4))
    assert equalize(model) == ()
    np.testing.assert_array_equal(_weights(model)["w1"], weights["w1"])


def test_a_value_that_others_read_too_keeps_its_scale(net):
    rng = np.random.default_rng(0)
    weights = {"w1": rng.standard_normal((4, 4, 1, 1)), "w2": rng.standard_normal((4, 4, 1, 1))}
    nodes = [
        ("Conv", ["x", "w1"], ["a"], {}),
        ("Conv", ["a", "w2"], ["b"], {}),
        ("Add", ["a", "b"], ["y"], {}),
    ]
    model = net(nodes, {n: w.astype(np.float32) for n, w in weights.items()}, ("batch", 4, 4, 4))
    assert equalize(model) == ()
