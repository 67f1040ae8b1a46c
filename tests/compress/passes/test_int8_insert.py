"""Q/DQ as it ends up in the file: where the pairs are, and what the numbers are worth."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.passes.int8.graph import name_nodes, nodes_to_quantize, read_graph
from compress.passes.int8.insert import insert_qdq, prepare
from compress.runners.onnxruntime_graph import executed_ops
from compress.runners.targets import TARGETS

SCHEME = TARGETS["ort-cpu"].scheme
RNG = np.random.default_rng(0)


def _save(path, nodes, weights, shape=("batch", 16)):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _quantize(tmp_path, values, *, reduce_range=False, scheme=SCHEME):
    model = prepare(tmp_path / "m.onnx", tmp_path, threads=1)
    name_nodes(model)
    graph = read_graph(model)
    nodes = nodes_to_quantize(graph, scheme.ops, weighted_only=True)
    outputs = [o for n in graph.nodes for o in n.output]
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    probe.graph.output.extend(onnx.ValueInfoProto(name=o) for o in outputs)
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    seen = {"x": values} | dict(zip(outputs, session.run(outputs, {"x": values}), strict=True))
    ranges = {n: (float(a.min()), float(a.max())) for n, a in seen.items()}
    insert_qdq(model, ranges, nodes, scheme, reduce_range=reduce_range, output=tmp_path / "q.onnx")
    return onnx.load(tmp_path / "q.onnx"), seen["y"]


def _run(path, values):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": values})[0]


def _two_layers(scale=1.0):
    weights = {
        "w1": RNG.standard_normal((16, 32)).astype(np.float32) * scale,
        "w2": RNG.standard_normal((32, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    return nodes, weights


def test_no_pair_is_left_that_no_quantized_operator_reads(tmp_path):
    _save(tmp_path / "m.onnx", *_two_layers(0.1))
    values = RNG.standard_normal((64, 16)).astype(np.float32)
    model, expected = _quantize(tmp_path, values)
    # One pair before each MatMul; none behind the first (Tanh is float) nor at the graph's output.
    quantized_values = [n.input[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    assert quantized_values == ["x", "b"]
    assert [o.name for o in model.graph.output] == ["y"]
    error = _run(tmp_path / "q.onnx", values) - expected
    assert np.sqrt(np.mean(error**2)) / np.std(expected) < 0.02


def test_weights_are_int8_per_channel_and_activations_uint8(tmp_path):
    """A column a thousand times larger than another keeps both (Tiarin-Hino/ability-draft-plus PR 80)."""
    nodes, weights = _two_layers(0.1)
    weights["w1"][:, 0] *= 1000
    _save(tmp_path / "m.onnx", nodes, weights)
    model, _ = _quantize(tmp_path, RNG.standard_normal((64, 16)).astype(np.float32))
    types = {i.name: i.data_type for i in model.graph.initializer}
    shapes = {i.name: list(i.dims) for i in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            assert types[node.input[2]] == TensorProto.UINT8
        if node.op_type == "DequantizeLinear" and node.input[0] in types:
            assert types[node.input[0]] == TensorProto.INT8
            assert shapes[node.input[1]][0] in (32, 4)


@pytest.mark.parametrize(("target", "pairs"), [("ort-cpu", ["x", "b"]), ("openvino", ["x"])])
def test_a_conv_before_a_float_operator_keeps_the_pair_it_needs(tmp_path, target, pairs):
    """onnxruntime has no convolution that reads INT8 and writes float; without a pair behind it, it runs in float."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalMaxPool", ["b"], ["y"]),
    ]
    _save(tmp_path / "m.onnx", nodes, {"w": RNG.standard_normal((8, 3, 3, 3)).astype(np.float32)}, ("batch", 3, 8, 8))
    values = RNG.standard_normal((4, 3, 8, 8)).astype(np.float32)
    model, _ = _quantize(tmp_path, values, scheme=TARGETS[target].scheme)
    assert [n.input[0] for n in model.graph.node if n.op_type == "QuantizeLinear"] == pairs
    if target == "ort-cpu":
        assert executed_ops(tmp_path / "q.onnx", ["CPUExecutionProvider"])["operators"]["QLinearConv"] == 1


@pytest.mark.parametrize(("reduce_range", "limit"), [(False, 127), (True, 64)])
def test_seven_bit_weights_stay_within_64(tmp_path, reduce_range, limit):
    _save(tmp_path / "m.onnx", *_two_layers())
    model, _ = _quantize(tmp_path, RNG.standard_normal((16, 16)).astype(np.float32), reduce_range=reduce_range)
    weights = [numpy_helper.to_array(i) for i in model.graph.initializer if i.data_type == TensorProto.INT8 and i.dims]
    weights = [w for w in weights if w.ndim == 2]
    assert len(weights) == 2
    assert all(np.abs(w.astype(int)).max() in (limit, limit - 1) for w in weights)
