"""SmoothQuant: the function stays, outliers move into the weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compress.passes.int8.graph import read_graph
from compress.passes.int8.smooth import smooth, smooth_points


def _normalized(x, run, model):
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.node[1:]
    probe.graph.output[0].name = "a"
    return run(probe, x)


def test_a_layer_norm_takes_up_the_scale_and_nothing_is_inserted(outliers, run):
    x = np.random.default_rng(2).standard_normal((64, 32)).astype(np.float32)
    model = onnx.ModelProto()
    model.CopyFrom(outliers)
    before, peak = run(model, x), np.abs(_normalized(x, run, model)).max(0)
    points = smooth_points(read_graph(model), ["matmul_b", "matmul_y"], insert=False)
    assert [(p.tensor, p.maker, p.layers) for p in points] == [("a", "layernormalization_a", ("matmul_b",))]
    assert smooth(model, points, {"a": peak}, 0.5) == ("matmul_b",)
    assert [n.op_type for n in model.graph.node] == ["LayerNormalization", "MatMul", "Relu", "MatMul"]
    np.testing.assert_allclose(run(model, x), before, rtol=1e-4, atol=1e-4 * np.abs(before).max())
    after = np.abs(_normalized(x, run, model)).max(0)
    weight = numpy_helper.to_array(model.graph.initializer[2])
    # With α = 0.5 a channel and the weights that read it get the same range: the geometric mean of both.
    np.testing.assert_allclose(after, np.abs(weight).max(1), rtol=1e-3)
    assert peak.max() / peak.min() > 50 > 5 > after.max() / after.min()


def test_elsewhere_a_mul_is_inserted_only_if_asked(outliers, run):
    x = np.random.default_rng(3).standard_normal((8, 32)).astype(np.float32)
    points = smooth_points(read_graph(outliers), ["matmul_y"], insert=True)
    assert [(p.tensor, p.inserted) for p in points] == [("c", True)]
    assert smooth_points(read_graph(outliers), ["matmul_y"], insert=False) == []
    model = onnx.ModelProto()
    model.CopyFrom(outliers)
    before = run(model, x)
    assert smooth(model, points, {"c": np.linspace(1, 50, 64, dtype=np.float32)}, 0.7) == ("matmul_y",)
    assert [n.op_type for n in model.graph.node] == ["LayerNormalization", "MatMul", "Relu", "Mul", "MatMul"]
    np.testing.assert_allclose(run(model, x), before, rtol=1e-4, atol=1e-4 * np.abs(before).max())


@pytest.mark.parametrize("shared", [True, False])
def test_a_weight_that_others_read_is_copied(net, run, shared):
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((8, 8)).astype(np.float32),
        "w2": rng.standard_normal((8, 8)).astype(np.float32),
    }
    second = "w1" if shared else "w2"
    nodes = [("MatMul", ["x", "w1"], ["a"], {}), ("MatMul", ["a", second], ["y"], {})]
    model = net(nodes, weights, ("batch", 8))
    x = rng.standard_normal((4, 8)).astype(np.float32)
    before = run(model, x)
    points = smooth_points(read_graph(model), ["matmul_y"], insert=True)
    smooth(model, points, {"a": np.linspace(1, 9, 8, dtype=np.float32)}, 0.5)
    np.testing.assert_allclose(run(model, x), before, rtol=1e-4, atol=1e-5)
