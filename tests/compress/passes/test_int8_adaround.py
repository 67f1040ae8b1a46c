"""AdaRound: learnt roundings are a step from the nearest at most, never worse on calibration data, and repeatable."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from compress.passes.int8.adaround import learn_rounding, write_rounding
from compress.passes.int8.weights import quantized_weights

RNG = np.random.default_rng(0)
MIX = RNG.standard_normal((3, 24))
# Three values mixed into 24, and a little of their own: where inputs go together, rounding together pays.
VECTORS = (RNG.standard_normal((160, 3)) @ MIX + 0.05 * RNG.standard_normal((160, 24))).astype(np.float32)
SMOOTH = np.cumsum(np.cumsum(RNG.standard_normal((20, 4, 8, 8)), 2), 3).astype(np.float32)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("compress.passes.int8.adaround.ITERATIONS", 200)


def _weight(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


LAYERS = {
    "MatMul": (("MatMul", ["x", "w"], ["y"], {}), _weight(24, 8), VECTORS),
    "Gemm": (("Gemm", ["x", "w"], ["y"], {"transB": 1}), _weight(8, 24), VECTORS),
    "Conv": (("Conv", ["x", "w"], ["y"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}), _weight(6, 4, 3, 3), SMOOTH),
    "depthwise": (("Conv", ["x", "w"], ["y"], {"group": 4}), _weight(4, 1, 3, 3), SMOOTH),
}


def _learn(model, path, work, layers, values, *, seed=0, size=8):
    told = []
    found = learn_rounding(
        model,
        path,
        layers,
        lambda: ({"x": values[i : i + size]} for i in range(0, len(values), size)),
        work=work,
        threads=1,
        seed=seed,
        advance=told.append,
    )
    assert sum(told) == len(layers)
    return found


def _output(model, weight, values, run, copied):
    """Return what the float model makes of other weights."""
    changed = copied(model)
    changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight.astype(np.float32), "w"))
    return run(changed, values).astype(np.float64)


@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_layer_s_output_error_falls_below_that_of_the_nearest(
    net, network, run, copied, tmp_path, kind, reduce_range
):
    node, weight, values = LAYERS[kind]
    made = network(net([node], {"w": weight}, ("batch", *values.shape[1:])), values, reduce_range=reduce_range)
    made.write(tmp_path / "q.onnx")
    (layer,) = made.layers
    kept = quantized_weights(tmp_path / "q.onnx")[layer]
    found = _learn(made.model, tmp_path / "q.onnx", tmp_path, [layer], values)
    assert list(found) == [kept.name]
    learnt = found[kept.name]
    assert (learnt.dtype, learnt.shape) == (np.int8, weight.shape)
    step = np.abs(learnt.astype(int) - kept.values.astype(int))
    assert set(np.unique(step)) == {0, 1}
    # Either neighbour of the float weight, never further off than one step.
    assert np.abs(learnt * kept.scale - weight).max() < kept.scale.max() * 1.001
    assert np.abs(learnt.astype(int)).max() <= (64 if reduce_range else 127)
    wanted = run(made.model, values)
    nearest = np.square(_output(made.model, kept.values * kept.scale, values, run, copied) - wanted).mean()
    error = np.square(_output(made.model, learnt * kept.scale, values, run, copied) - wanted).mean()
    assert error < 0.9 * nearest


def test_the_same_seed_gives_the_same_rounding(net, network, tmp_path):
    node, weight, values = LAYERS["MatMul"]
    made = network(net([node], {"w": weight}, ("batch", 24)), values)
    made.write(tmp_path / "q.onnx")
    first, again, other = (
        _learn(made.model, tmp_path / "q.onnx", tmp_path, made.layers, values, seed=s) for s in (3, 3, 4)
    )
    (name,) = first
    np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first[name], other[name])


def test_a_rounding_that_cannot_be_improved_is_not_handed_back(net, network, tmp_path):
    """Weights on INT8's own grid: to the nearest, nothing is lost."""
    _, _, values = LAYERS["MatMul"]
    weight = np.random.default_rng(1).integers(-127, 128, (24, 8)).astype(np.float32)
    weight[0] = 127
    made = network(net([LAYERS["MatMul"][0]], {"w": weight}, ("batch", 24)), values)
    made.write(tmp_path / "q.onnx")
    np.testing.assert_array_equal(quantized_weights(tmp_path / "q.onnx")[made.layers[0]].values, weight)
    assert _learn(made.model, tmp_path / "q.onnx", tmp_path, made.layers, values) == {}


def test_layers_that_share_a_weight_and_those_not_asked_for_keep_theirs(net, network, tmp_path):
    nodes = [
        ("MatMul", ["x", "w"], ["a"], {}),
        ("MatMul", ["a", "w"], ["b"], {}),
        ("MatMul", ["b", "v"], ["c"], {}),
        ("MatMul", ["c", "u"], ["y"], {}),
    ]
    weights = {"w": _weight(24, 24) / 5, "v": _weight(24, 24) / 5, "u": _weight(24, 8)}
    made = network(net(nodes, weights, ("batch", 24)), VECTORS)
    made.write(tmp_path / "q.onnx")
    found = _learn(made.model, tmp_path / "q.onnx", tmp_path, ["matmul_a", "matmul_b", "matmul_c"], VECTORS)
    assert list(found) == [quantized_weights(tmp_path / "q.onnx")["matmul_c"].name]


def test_a_layer_too_large_for_its_share_of_work_keeps_its_rounding(net, network, tmp_path, monkeypatch):
    node, weight, values = LAYERS["MatMul"]
    made = network(net([node], {"w": weight}, ("batch", 24)), values)
    made.write(tmp_path / "q.onnx")
    cost = 3 * 256 * weight.size
    monkeypatch.setattr("compress.passes.int8.adaround.WORK", 99 * cost)
    assert _learn(made.model, tmp_path / "q.onnx", tmp_path, made.layers, values) == {}
    monkeypatch.setattr("compress.passes.int8.adaround.WORK", 100 * cost)
    assert len(_learn(made.model, tmp_path / "q.onnx", tmp_path, made.layers, values)) == 1


def test_little_memory_takes_more_passes_and_gives_the_same(network, tmp_path, monkeypatch, outliers):
    values = np.random.default_rng(2).standard_normal((80, 3)) @ np.random.default_rng(3).standard_normal((3, 32))
    made = network(outliers, values.astype(np.float32))
    made.write(tmp_path / "q.onnx")
    arguments = (made.model, tmp_path / "q.onnx", tmp_path, made.layers, values.astype(np.float32))
    once = _learn(*arguments)
    monkeypatch.setattr("compress.passes.int8.adaround.MEMORY", 1.0)
    each = _learn(*arguments)
    assert list(once) == list(each) != []
    for name, learnt in once.items():
        np.testing.assert_array_equal(learnt, each[name])


def test_written_roundings_are_what_the_file_then_computes_with(net, network, tmp_path):
    node, weight, values = LAYERS["MatMul"]
    made = network(net([node], {"w": weight}, ("batch", 24)), values)
    made.write(tmp_path / "q.onnx")
    kept = quantized_weights(tmp_path / "q.onnx")[made.layers[0]]
    other = np.where(kept.values > 0, kept.values - 1, kept.values).astype(np.int8)
    write_rounding(tmp_path / "q.onnx", {kept.name: other, "unknown": other}, tmp_path / "r.onnx")
    np.testing.assert_array_equal(quantized_weights(tmp_path / "r.onnx")[made.layers[0]].values, other)
    np.testing.assert_array_equal(quantized_weights(tmp_path / "q.onnx")[made.layers[0]].values, kept.values)
    assert {i.name for i in onnx.load(tmp_path / "r.onnx").graph.initializer} == {
        i.name for i in onnx.load(tmp_path / "q.onnx").graph.initializer
    }
    session = onnxruntime.InferenceSession(str(tmp_path / "r.onnx"), providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": values})[0]
    low, high = made.ranges["x"]
    scale = (max(high, 0) - min(low, 0)) / 255
    # The input is rounded too, by half a step at most.
    bound = np.abs(other * kept.scale).sum(0) * scale * 0.51
    assert (np.abs(found - values @ (other * kept.scale)) <= bound).all()
