"""Each layer's own share of the error, against the same arithmetic in NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from compress.passes.int8 import sensitivity
from compress.passes.int8.heldout import HeldOut, Split
from compress.passes.int8.sensitivity import fake_quantized, layer_macs, samples_for, sensitivities
from compress.passes.int8.weights import Weights, output_axis, quantized_weights
from compress.runners.targets import TARGETS

RNG = np.random.default_rng(0)
VALUES = RNG.standard_normal((50, 6)).astype(np.float32)
# Both ends of the range are among the samples held out, where a zero point that is off by one would cut one off.
VALUES[21, 2], VALUES[47, 3] = -3.7, 4.1


def _array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def chain(net):
    """Two products with a Relu between them."""
    nodes = [
        ("MatMul", ["x", "w"], ["a"], {}),
        ("Relu", ["a"], ["b"], {}),
        ("Gemm", ["b", "v", "c"], ["y"], {"transB": 1}),
    ]
    return net(nodes, {"w": _array(6, 10), "v": _array(3, 10), "c": _array(3)}, ("batch", 6))


@pytest.fixture
def judged(rows, signature, tmp_path):
    return lambda model: HeldOut(model, Split(rows(VALUES), signature("batch", 6), 16), 1, tmp_path)


@pytest.mark.parametrize(
    ("axis", "bits", "expected"),
    [
        # Scales 127/127 and 12.7/127.
        (0, 8, [[127.0, -3.0, 0.0], [12.7, 0.3, -6.4]]),
        # One scale: what is small becomes coarse.
        (None, 8, [[127.0, -3.0, 0.0], [13.0, 0.0, -6.0]]),
        (0, 7, [[127.0, -2 * 127 / 64, 0.0], [12.7, 2 * 12.7 / 64, -32 * 12.7 / 64]]),
    ],
)
def test_fake_quantized_weights_by_hand(axis, bits, expected):
    values = np.array([[127.0, -3.2, 0.4], [12.7, 0.34, -6.36]], np.float32)
    np.testing.assert_allclose(fake_quantized(values, axis, bits), expected, rtol=1e-6, atol=1e-6)


def test_weights_that_are_zero_stay_zero():
    np.testing.assert_array_equal(fake_quantized(np.zeros((2, 3), np.float32), 0), np.zeros((2, 3)))


@pytest.mark.parametrize("reduce_range", [False, True])
def test_fake_quantized_weights_are_what_the_file_keeps(convolutions, network, tmp_path, reduce_range):
    made = network(convolutions, _array(4, 8, 8, 8), reduce_range=reduce_range)
    made.write(tmp_path / "q.onnx")
    weights, kept = Weights(made.model), quantized_weights(tmp_path / "q.onnx")
    for node in made.graph.nodes:
        if node.name in kept:
            weight = weights.get(node.input[1])
            found = fake_quantized(weight, output_axis(node, weight.ndim), 7 if reduce_range else 8)
            np.testing.assert_allclose(found, kept[node.name].values * kept[node.name].scale, rtol=1e-5, atol=1e-7)


def _rounded(values, bounds, symmetric):
    low, high = min(0.0, bounds[0]), max(0.0, bounds[1])
    scale = (high - low) / 255
    bottom, top = (-128, 127) if symmetric else (0, 255)
    zero = round(bottom - low / scale)
    return (np.clip(np.round(values / scale) + zero, bottom, top) - zero) * scale


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("reduce_range", [False, True])
def test_the_error_of_each_layer_alone(chain, network, judged, weights_of, symmetric, reduce_range):
    made = network(chain, VALUES, reduce_range=reduce_range)
    if symmetric:
        scheme = dataclasses.replace(TARGETS["ort-cpu"].scheme, activation="int8", symmetric_activation=True)
        made = dataclasses.replace(made, settings=dataclasses.replace(made.settings, scheme=scheme))
    before = made.model.SerializeToString()
    steps = []
    held = judged(made.model)
    found = sensitivities(made, held, 64, steps.append)
    assert steps == [1, 1]
    assert made.model.SerializeToString() == before

    x = _held(VALUES)
    w, v, c = (weights_of(chain)[n].astype(np.float64) for n in "wvc")
    top = 64 if reduce_range else 127
    rounded_w = np.round(w / (np.abs(w).max(0) / top)) * (np.abs(w).max(0) / top)
    scale_v = np.abs(v).max(1, keepdims=True) / top
    b = np.maximum(x @ w, 0)
    wanted = b @ v.T + c
    first = np.maximum(_rounded(x, made.ranges["x"], symmetric) @ rounded_w, 0) @ v.T + c
    second = _rounded(b, made.ranges["b"], symmetric) @ (np.round(v / scale_v) * scale_v).T + c
    power = np.square(wanted).sum()
    assert found["matmul_a"] == pytest.approx(np.square(first - wanted).sum() / power, rel=1e-2)
    assert found["gemm_y"] == pytest.approx(np.square(second - wanted).sum() / power, rel=1e-2)


def _held(values):
    """Return the samples that a split of batches of five holds out: every fifth batch."""
    return values[[*range(20, 25), *range(45, 50)]].astype(np.float64)


def test_a_layer_that_rounding_hurts_more_has_the_larger_error(chain, network, judged, copied):
    """A column a hundred times larger, in a weight with one scale for all of it, would; with one each it doesn't."""
    model = copied(chain)
    weights = Weights(model)
    coarse = weights.get("w").copy()
    coarse[0, 0] = 200.0
    weights.put("w", coarse)
    weights.put("v", weights.get("v") * (np.arange(10) > 0))  # what the large weight makes goes nowhere
    made = network(model, VALUES)
    per_tensor = dataclasses.replace(TARGETS["ort-cpu"].scheme, per_channel=False)
    other = dataclasses.replace(made, settings=dataclasses.replace(made.settings, scheme=per_tensor))
    held = judged(made.model)
    each, one = (sensitivities(n, held, 64, lambda n: None) for n in (made, other))
    assert one["matmul_a"] > 100 * each["matmul_a"]
    assert one["gemm_y"] < 2 * each["gemm_y"]


def test_multiply_accumulates_by_hand(net):
    nodes = [
        ("Conv", ["x", "w1"], ["a"], {"group": 4, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("ConvTranspose", ["a", "w2"], ["b"], {}),
        ("GlobalAveragePool", ["b"], ["c"], {}),
        ("Flatten", ["c"], ["d"], {}),
        ("Gemm", ["d", "w3"], ["e"], {"transB": 1}),
        ("MatMul", ["e", "w4"], ["y"], {}),
    ]
    weights = {"w1": _array(8, 1, 3, 3), "w2": _array(8, 5, 2, 2), "w3": _array(7, 5), "w4": _array(7, 3)}
    model = net(nodes, weights, ("batch", 4, 8, 8))
    assert layer_macs(model) == {
        "conv_a": 8 * 4 * 4 * 9,
        "convtranspose_b": 5 * 5 * 5 * (8 * 2 * 2),  # as many as there would be with every tap inside
        "gemm_e": 7 * 5,
        "matmul_y": 3 * 7,
    }


@pytest.mark.parametrize(("work", "samples"), [(1e9, 64), (300.0, 8), (10 * 2 * (60 + 30), 10)])
def test_samples_a_layer_are_what_the_work_allows(chain, network, monkeypatch, work, samples):
    monkeypatch.setattr(sensitivity, "WORK", work)
    assert samples_for(network(chain, VALUES)) == samples
