"""Bias correction: what rounding the weights takes from each channel's mean output, the bias gives back."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from compress.passes.int8.bias import add_biases, bias_shifts
from compress.passes.int8.graph import read_graph
from compress.passes.int8.weights import quantized_weights

RNG = np.random.default_rng(0)
# Far from zero, as behind a ReLU: what rounding does to the mean then adds up over the inputs.
VECTORS = RNG.uniform(2, 6, (64, 12)).astype(np.float32)
TOKENS = RNG.uniform(2, 6, (16, 5, 12)).astype(np.float32)
IMAGES = RNG.uniform(2, 6, (16, 12, 4, 4)).astype(np.float32)
FLAT = np.broadcast_to(RNG.uniform(2, 6, (16, 4, 1, 1)), (16, 4, 6, 6)).astype(np.float32)


def _array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


CASES = {
    "Gemm": ([("Gemm", ["x", "w", "b"], ["y"], {})], {"w": _array(12, 7), "b": _array(7)}, VECTORS),
    "Gemm with factors": (
        [("Gemm", ["x", "w", "b"], ["y"], {"transB": 1, "alpha": 0.5, "beta": 4.0})],
        {"w": _array(7, 12), "b": _array(7)},
        VECTORS,
    ),
    "Gemm without a bias": ([("Gemm", ["x", "w"], ["y"], {})], {"w": _array(12, 7)}, VECTORS),
    "MatMul and Add": (
        [("MatMul", ["x", "w"], ["a"], {}), ("Add", ["b", "a"], ["y"], {})],
        {"w": _array(12, 7), "b": _array(1, 7)},
        TOKENS,
    ),
    "1×1 convolution": ([("Conv", ["x", "w", "b"], ["y"], {})], {"w": _array(7, 12, 1, 1), "b": _array(7)}, IMAGES),
    "convolution in groups, without a bias": (
        [("Conv", ["x", "w"], ["y"], {"group": 3})],
        {"w": _array(6, 4, 1, 1)},
        IMAGES,
    ),
    # With the same value at every place each tap sees the same mean.
    "depthwise 3×3": (
        [("Conv", ["x", "w", "b"], ["y"], {"group": 4})],
        {"w": _array(4, 1, 3, 3), "b": _array(4)},
        FLAT,
    ),
}


def _corrected(model, network, values, path):
    """Return the float model with corrected biases, and how many layers were changed."""
    made = network(model, values)
    made.write(path)
    means = {}
    for node in made.graph.nodes:
        if node.name in made.layers:
            axis = 1 if node.op_type == "Conv" else values.ndim - 1
            means[node.input[0]] = values.mean(tuple(i for i in range(values.ndim) if i != axis), dtype=np.float64)
    shifts = bias_shifts(made.model, path, made.layers, means)
    return add_biases(made.model, shifts), made.model, shifts


def _rounded(model, path, copied):
    """Return the float model with the weights that INT8 keeps."""
    changed = copied(model)
    kept = quantized_weights(path)
    for node in changed.graph.node:
        if node.name in kept:
            (tensor,) = (i for i in changed.graph.initializer if i.name == node.input[1])
            values = (kept[node.name].values * kept[node.name].scale).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return changed


def _mean_error(model, wanted, values, run, axis):
    error = run(model, values).astype(np.float64) - wanted
    return np.abs(error.mean(tuple(i for i in range(error.ndim) if i != axis % error.ndim))).max()


@pytest.mark.parametrize("case", CASES)
def test_the_mean_error_of_each_channel_goes(net, network, run, copied, tmp_path, case):
    nodes, weights, values = CASES[case]
    model = net(nodes, weights, ("batch", *values.shape[1:]))
    axis = 1 if nodes[0][0] == "Conv" else -1
    wanted = run(model, values)
    changed, corrected, _ = _corrected(model, network, values, tmp_path / "q.onnx")
    assert changed == 1
    before = _mean_error(_rounded(model, tmp_path / "q.onnx", copied), wanted, values, run, axis)
    after = _mean_error(_rounded(corrected, tmp_path / "q.onnx", copied), wanted, values, run, axis)
    assert before > 5e-3
    assert after < 1e-5


def test_shifts_are_the_mean_input_times_what_rounding_takes(net, network, tmp_path):
    nodes, weights, values = CASES["Gemm"]
    _, _, shifts = _corrected(net(nodes, weights, ("batch", 12)), network, values, tmp_path / "q.onnx")
    scale = np.abs(weights["w"]).max(0) / np.float32(127)
    rounded = np.round(weights["w"] / scale) * scale
    expected = values.mean(0, dtype=np.float64) @ (weights["w"] - rounded)
    np.testing.assert_allclose(shifts["gemm_y"], expected, atol=1e-5)


def test_a_matmul_without_an_add_behind_it_stays(net, network, tmp_path):
    weights = {"w": _array(12, 7), "b": _array(1)}
    nodes = [("MatMul", ["x", "w"], ["a"], {}), ("Add", ["a", "b"], ["y"], {})]
    model = net(nodes, weights, ("batch", 12))
    changed, corrected, shifts = _corrected(model, network, VECTORS, tmp_path / "q.onnx")
    assert list(shifts) == ["matmul_a"]
    assert changed == 0  # one number for all channels cannot take a shift of each
    np.testing.assert_array_equal(numpy_helper.to_array(corrected.graph.initializer[1]), weights["b"])


def test_a_bias_that_others_read_keeps_its_values_for_them(net, network, run, copied, tmp_path):
    weights = {"w": _array(12, 12), "v": _array(12, 12), "b": _array(12)}
    nodes = [
        ("Gemm", ["x", "w", "b"], ["p"], {}),
        ("Gemm", ["x", "v", "b"], ["q"], {}),
        ("Sub", ["p", "q"], ["y"], {}),
    ]
    model = net(nodes, weights, ("batch", 12))
    changed, corrected, shifts = _corrected(model, network, VECTORS, tmp_path / "q.onnx")
    assert changed == 2
    biases = {n.name: n.input[2] for n in corrected.graph.node if n.op_type == "Gemm"}
    values = {i.name: numpy_helper.to_array(i) for i in corrected.graph.initializer}
    assert biases["gemm_p"] != biases["gemm_q"]
    for layer, name in biases.items():
        np.testing.assert_allclose(values[name], weights["b"] + shifts[layer], rtol=1e-5, atol=1e-6)
    rounded = _rounded(corrected, tmp_path / "q.onnx", copied)
    assert _mean_error(rounded, run(model, VECTORS), VECTORS, run, -1) < 1e-5


def test_a_mean_along_another_axis_gives_no_shift(net, network, tmp_path):
    """A tensor that a convolution and a MatMul both read has one mean, which suits one of them."""
    weights = {"w": _array(5, 12, 1, 1), "v": _array(4, 4), "b": _array(4)}
    nodes = [
        ("Conv", ["x", "w"], ["p"], {}),
        ("MatMul", ["x", "v"], ["q"], {}),
        ("Add", ["q", "b"], ["r"], {}),
        ("GlobalAveragePool", ["p"], ["s"], {}),
        ("GlobalAveragePool", ["r"], ["t"], {}),
        ("Concat", ["s", "t"], ["y"], {"axis": 1}),
    ]
    made = network(net(nodes, weights, ("batch", 12, 4, 4)), IMAGES)
    made.write(tmp_path / "q.onnx")
    assert read_graph(made.model).producer["q"].name in made.layers
    for axes, layer in (((0, 2, 3), "conv_p"), ((0, 1, 2), "matmul_q")):
        assert list(bias_shifts(made.model, tmp_path / "q.onnx", made.layers, {"x": IMAGES.mean(axes)})) == [layer]


def test_layers_not_asked_for_or_not_seen_have_no_shift(net, network, tmp_path):
    nodes, weights, values = CASES["Gemm"]
    made = network(net(nodes, weights, ("batch", 12)), values)
    made.write(tmp_path / "q.onnx")
    assert bias_shifts(made.model, tmp_path / "q.onnx", [], {"x": values.mean(0)}) == {}
    assert bias_shifts(made.model, tmp_path / "q.onnx", made.layers, {}) == {}
