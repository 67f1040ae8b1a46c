"""Weights read from and written to graphs, layers as matrix products, and channels' peaks and means."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.passes.int8.patches import layer_rows
from compress.passes.int8.peaks import Channels, observe_channels
from compress.passes.int8.weights import Weights, matrix, output_axis, quantized_weights

RNG = np.random.default_rng(0)


def _array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _node(op, **attributes):
    return helper.make_node(op, ["x", "w"], ["y"], name="layer", **attributes)


@pytest.fixture
def shared(net):
    """Two Gemms that share a weight."""
    nodes = [("Gemm", ["x", "w", "b"], ["a"], {}), ("Gemm", ["a", "w"], ["y"], {})]
    return net(nodes, {"w": _array(4, 4), "b": _array(4)}, ("batch", 4))


def test_a_shared_weight_becomes_the_node_s_own_copy_and_the_last_reader_keeps_it(shared):
    weights, (first, second) = Weights(shared), shared.graph.node
    before = weights.get("w").copy()
    assert weights.shared("w")
    assert not weights.shared("b")
    assert weights.own(first, 2) == "b"
    own = weights.own(first, 1)
    assert first.input[1] == own != "w"
    weights.put(own, before + 1)
    np.testing.assert_array_equal(weights.get("w"), before)
    np.testing.assert_array_equal(weights.get(own), before + 1)
    assert not weights.shared("w")
    assert weights.own(second, 1) == "w"
    assert len(shared.graph.initializer) == 3


def test_values_keep_their_type_and_names_are_made_unique(shared):
    shared.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.zeros(4, np.float16), "b"))
    weights = Weights(shared)
    weights.put("b", np.arange(4, dtype=np.float64))
    assert weights.get("b").dtype == np.float16
    assert weights.get("b").tolist() == [0, 1, 2, 3]
    assert (weights.add("b", np.ones(2)), weights.add("b", np.ones(3))) == ("b_", "b__")
    assert [weights.shape(n) for n in ("b", "b_", "b__")] == [(4,), (2,), (3,)]
    assert "b__" in weights
    assert "x" not in weights


@pytest.mark.parametrize(
    ("node", "shape", "axis"),
    [
        (_node("Conv"), (8, 3, 2, 2), 0),
        (_node("ConvTranspose"), (3, 8, 2, 2), 1),
        (_node("Gemm"), (3, 8), 1),
        (_node("Gemm", transB=1), (8, 3), 0),
        (_node("MatMul"), (3, 8), 1),
        (_node("MatMul"), (2, 3, 8), 2),
    ],
)
def test_the_axis_of_output_channels(node, shape, axis):
    assert output_axis(node, len(shape)) == axis
    assert shape[axis] == 8
    if len(shape) == 2:
        assert matrix(node, np.zeros(shape)).shape == (3, 8)


@pytest.mark.parametrize("reduce_range", [False, True])
def test_the_file_s_weights_are_ours_rounded_channel_by_channel(convolutions, network, tmp_path, reduce_range):
    values = np.random.default_rng(1).standard_normal((4, 8, 8, 8)).astype(np.float32)
    made = network(convolutions, values, reduce_range=reduce_range)
    made.write(tmp_path / "q.onnx")
    found = quantized_weights(tmp_path / "q.onnx")
    assert list(found) == made.layers == ["conv_a", "conv_c", "gemm_y"]
    weights = Weights(made.model)
    for node in made.graph.nodes:
        if node.name not in found:
            continue
        weight, kept = weights.get(node.input[1]), found[node.name]
        others = tuple(i for i in range(weight.ndim) if i != output_axis(node, weight.ndim))
        scale = np.abs(weight).max(others, keepdims=True) / (64 if reduce_range else 127)
        np.testing.assert_allclose(kept.scale, scale, rtol=1e-6)
        np.testing.assert_array_equal(kept.values, np.round(weight / scale))
        assert np.abs(kept.values * kept.scale - weight).max() <= scale.max() * 0.5001


@pytest.mark.parametrize(
    ("settings", "shape", "image"),
    [
        ({}, (6, 4, 3, 3), (5, 7)),
        ({"pads": [0, 1, 2, 3]}, (6, 4, 3, 2), (5, 7)),
        ({"strides": [2, 3], "pads": [1, 1, 1, 1]}, (6, 4, 3, 3), (6, 8)),
        ({"dilations": [2, 1], "pads": [2, 1, 2, 1]}, (6, 4, 3, 3), (6, 8)),
        ({"group": 2, "strides": [1, 2]}, (6, 2, 2, 3), (5, 7)),
        ({"group": 4, "auto_pad": "VALID"}, (8, 1, 3, 3), (5, 7)),
        ({"kernel_shape": [1, 1]}, (6, 4, 1, 1), (3, 3)),
    ],
)
def test_patches_times_weight_are_the_convolution(net, run, settings, shape, image):
    weight, values = _array(*shape), _array(3, 4, *image)
    model = net([("Conv", ["x", "w"], ["y"], settings)], {"w": weight}, ("batch", 4, *image))
    rows = layer_rows(model.graph.node[0], shape)
    output = run(model, values)
    places = output.transpose(0, 2, 3, 1).reshape(-1, rows.groups, shape[0] // rows.groups)
    chosen = np.random.default_rng(3).choice(len(places), 11, replace=False)  # as the same generator chooses below
    taken = rows.sample(values, 11, np.random.default_rng(3))
    assert (taken.shape, taken.dtype) == ((11, settings.get("group", 1), rows.taps), np.float32)
    product = np.einsum("rgt,gto->rgo", taken, rows.as_matrix(weight))
    np.testing.assert_allclose(product, places[chosen], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(rows.from_matrix(rows.as_matrix(weight), shape), weight)
    assert len(rows.sample(values, 10_000, np.random.default_rng(0))) == len(places)


def test_an_image_smaller_than_the_kernel_has_no_patches():
    rows = layer_rows(_node("Conv"), (6, 4, 5, 5))
    assert rows.sample(_array(2, 4, 3, 3), 10, np.random.default_rng(0)).shape == (0, 1, 100)


@pytest.mark.parametrize(
    ("op", "settings", "shape", "values"),
    [
        ("Gemm", {}, (5, 3), _array(8, 5)),
        ("Gemm", {"transB": 1}, (3, 5), _array(8, 5)),
        ("MatMul", {}, (5, 3), _array(2, 4, 5)),
    ],
)
def test_vectors_times_weight_are_the_product(net, run, op, settings, shape, values):
    weight = _array(*shape)
    model = net([(op, ["x", "w"], ["y"], settings)], {"w": weight}, ("batch", *values.shape[1:]))
    rows = layer_rows(model.graph.node[0], shape)
    chosen = np.random.default_rng(3).choice(8, 6, replace=False)
    product = rows.sample(values, 6, np.random.default_rng(3))[:, 0] @ rows.as_matrix(weight)[0]
    np.testing.assert_allclose(product, run(model, values).reshape(8, 3)[chosen], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(rows.from_matrix(rows.as_matrix(weight), shape), weight)


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        (_node("Conv", auto_pad="SAME_UPPER"), (6, 4, 3, 3)),
        (_node("Conv"), (6, 4, 3)),
        (_node("ConvTranspose"), (4, 6, 3, 3)),
        (_node("Gemm", transA=1), (5, 3)),
        (_node("Gemm", alpha=0.5), (5, 3)),
        (_node("MatMul"), (2, 5, 3)),
    ],
)
def test_other_layers_are_no_such_product(node, shape):
    assert layer_rows(node, shape) is None


@pytest.mark.parametrize(("axis", "others"), [(1, (0, 2)), (-1, (0, 1))])
def test_channels_seen_in_parts_are_those_of_the_whole(axis, others):
    values = 100 + 5 * _array(30, 6, 6)
    values[7, 2, 3] = -500
    seen = Channels(np.zeros(6, np.float32), np.zeros(6))
    for part in np.array_split(values, [4, 4, 11]):  # one of them is empty
        seen.add(part, axis)
    np.testing.assert_array_equal(seen.peak, np.abs(values).max(others))
    np.testing.assert_allclose(seen.mean, values.mean(others, dtype=np.float64), rtol=1e-12)
    assert seen.count == 180
    assert seen.peak.max() == 500


def test_channels_inside_a_network_are_what_onnxruntime_finds(convolutions, values_of, tmp_path):
    values = _array(10, 8, 8, 8)
    axes = {"x": 1, "a": 1, "c": 1, "f": -1}
    found = observe_channels(
        convolutions,
        list(axes),
        lambda: ({"x": values[i : i + 4]} for i in range(0, 10, 4)),
        axis=axes,
        work=tmp_path,
        threads=1,
    )
    inside = values_of(convolutions, values)
    assert set(found) == set(axes)
    for name in axes:
        others = (0, 2, 3) if inside[name].ndim == 4 else (0,)
        np.testing.assert_allclose(found[name].peak, np.abs(inside[name]).max(others), rtol=1e-4)
        np.testing.assert_allclose(found[name].mean, inside[name].mean(others, dtype=np.float64), rtol=1e-3, atol=1e-5)


def test_weights_that_are_no_int8_constants_are_left_out(tmp_path):
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["x"], name="input"),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"], name="weight"),
        helper.make_node("MatMul", ["x", "v"], ["a"], name="quantized"),
        helper.make_node("MatMul", ["a", "f"], ["b"], name="float"),
        helper.make_node("MatMul", ["b", "x"], ["y"], name="activations"),
    ]
    constants = {
        "s": np.array(0.5, np.float32),
        "z": np.array(0, np.int8),
        "w": np.array([[2, -4], [6, 8]], np.int8),
        "f": _array(2, 2),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("q", TensorProto.INT8, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "q.onnx")
    found = quantized_weights(tmp_path / "q.onnx")
    assert list(found) == ["quantized"]
    assert found["quantized"].name == "w"
    np.testing.assert_array_equal(found["quantized"].values * found["quantized"].scale, [[1, -2], [3, 4]])
