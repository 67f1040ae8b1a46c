"""Which nodes INT8 takes, and what it leaves alone."""

from __future__ import annotations

from onnx import TensorProto, helper

from compress.passes.int8.cpu import needs_reduced_range
from compress.passes.int8.graph import name_nodes, nodes_to_quantize, read_graph
from compress.runners.targets import TARGETS

OPS = TARGETS["ort-cpu"].scheme.ops


def _model(nodes, inputs=("x",), outputs=("y",), initializers=()):
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in (*inputs, *outputs)]
    weights = [helper.make_tensor(n, TensorProto.FLOAT, [1], [1.0]) for n in initializers]
    model = helper.make_model(
        helper.make_graph(nodes, "g", info[: len(inputs)], info[len(inputs) :], weights), ir_version=8
    )
    name_nodes(model)
    return model


def _chosen(model):
    graph = read_graph(model)
    taken = set(nodes_to_quantize(graph, OPS, weighted_only=True))
    return [n.op_type for n in graph.nodes if n.name in taken]


def test_a_residual_add_between_convs_is_taken():
    model = _model(
        [
            helper.make_node("Conv", ["x", "w"], ["a"]),
            helper.make_node("Conv", ["a", "w"], ["b"]),
            helper.make_node("Add", ["a", "b"], ["c"]),
            helper.make_node("Relu", ["c"], ["d"]),
            helper.make_node("Conv", ["d", "w"], ["y"]),
        ],
        initializers=["w"],
    )
    assert _chosen(model) == ["Conv", "Conv", "Add", "Relu", "Conv"]


def test_a_residual_add_before_a_normalization_is_left():
    model = _model(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Add", ["a", "x"], ["b"]),
            helper.make_node("LayerNormalization", ["b", "s"], ["c"]),
            helper.make_node("MatMul", ["c", "w"], ["d"]),
            helper.make_node("Add", ["d", "c"], ["e"]),
            helper.make_node("LayerNormalization", ["e", "s"], ["y"]),
        ],
        initializers=["w", "s"],
    )
    assert _chosen(model) == ["MatMul", "MatMul"]


def test_products_of_two_activations_are_left():
    model = _model(
        [
            helper.make_node("MatMul", ["x", "w"], ["q"]),
            helper.make_node("MatMul", ["x", "w"], ["k"]),
            helper.make_node("MatMul", ["q", "k"], ["s"]),
            helper.make_node("Softmax", ["s"], ["p"]),
            helper.make_node("MatMul", ["p", "w"], ["y"]),
        ],
        initializers=["w"],
    )
    graph = read_graph(model)
    by_name = {n.name: n.output[0] for n in graph.nodes}
    assert [by_name[n] for n in nodes_to_quantize(graph, OPS, weighted_only=True)] == ["q", "k", "y"]
    assert [by_name[n] for n in nodes_to_quantize(graph, OPS, weighted_only=False)] == ["q", "k", "s", "y"]


def test_carriers_at_the_ends_are_left_but_for_a_convs_own_activation():
    model = _model(
        [
            helper.make_node("Reshape", ["x", "s"], ["a"]),
            helper.make_node("Conv", ["a", "w"], ["b"]),
            helper.make_node("Relu", ["b"], ["c"]),
            helper.make_node("Transpose", ["c"], ["y"]),
        ],
        initializers=["w", "s"],
    )
    assert _chosen(model) == ["Conv", "Relu"]


def test_nodes_get_unique_names():
    model = _model([helper.make_node("Relu", ["x"], ["a"], name="r"), helper.make_node("Relu", ["a"], ["y"], name="r")])
    names = [n.name for n in model.graph.node]
    assert len(set(names)) == 2
    assert names[0] == "r"


def test_seven_bit_weights_only_where_sums_could_saturate(monkeypatch):
    """microsoft/onnxruntime#5849: x86 without VNNI adds products in 16 bits."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert needs_reduced_range(frozenset({"avx2", "avx512f"}))
    assert not needs_reduced_range(frozenset({"avx2", "avx512_vnni"}))
    assert not needs_reduced_range(frozenset())
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert not needs_reduced_range(frozenset({"asimd"}))
