"""Where the time of one inference goes: kinds, layers, precisions and sums, by hand and from the real profilers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from compress.artifact import Artifact, Form, Signature
from compress.errors import ModelError
from compress.runners.base import RunOptions
from compress.runners.onnxruntime import OrtRunner
from compress.runners.onnxruntime_profile import Origins, _by_run, _times
from compress.runners.openvino import OpenVinoRunner
from compress.runners.profile import WARM_UP, Executed, profile_of, renamed

RUNNERS = [OrtRunner, OpenVinoRunner]


def _executed(name, kind, layers=(), reads=(), makes=()):
    return Executed(name, "Op", kind, "fp32", layers, reads, makes)


CHAIN = [
    _executed("quantize", "conversion", (), ("x",), ("1",)),
    _executed("reorder", "conversion", (), ("1",), ("2",)),
    _executed("transpose", "other", (), ("2",), ("3",)),
    _executed("conv", "compute", ("conv", "relu"), ("3",), ("4",)),
    _executed("back", "conversion", (), ("4",), ("5",)),
    _executed("pool", "other", ("pool",), ("5",), ("6",)),
    _executed("head", "compute", ("head",), ("5",), ("7",)),
    _executed("unknown", "compute", (), ("7",), ("8",)),
    _executed("last", "conversion", (), ("8",), ("y",)),
]


def test_conversions_get_the_layers_on_both_sides():
    """Through other conversions and what the runtime put in, but not past a layer that cannot be told."""
    found = profile_of(CHAIN, {e.name: [1.0] for e in CHAIN}, 2, 1)
    layers = {o.name: o.layers for o in found.ops}
    assert layers["quantize"] == layers["reorder"] == ["conv", "relu"]
    assert sorted(layers["back"]) == ["conv", "head", "pool", "relu"]
    assert layers["last"] == []
    assert layers["transpose"] == []
    assert layers["conv"] == ["conv", "relu"]


def test_times_are_medians_and_what_never_ran_is_left_out():
    found = profile_of(CHAIN, {"head": [9.0, 1.0, 2.0], "conv": [4.0, 3.0, 50.0], "pool": []}, 8, 3)
    assert [(o.name, o.ms) for o in found.ops] == [("conv", 4.0), ("head", 2.0)]  # in the order of execution
    assert (found.batch, found.runs, found.total_ms) == (8, 3, 6.0)


def test_layers_can_be_called_by_other_names():
    found = profile_of(CHAIN, {e.name: [1.0] for e in CHAIN}, 1, 1)
    changed = renamed(found, {"head": "y", "pool": "z"})
    assert next(o for o in changed.ops if o.name == "back").layers.count("y") == 1
    assert {n for o in changed.ops for n in o.layers} == {"conv", "relu", "y", "z"}
    assert changed.total_ms == found.total_ms
    assert {n for o in found.ops for n in o.layers} == {"conv", "relu", "head", "pool"}


def test_a_loop_s_body_counts_once_a_run():
    assert _by_run([1, 2, 3, 4, 5, 6], 3) == [3, 7, 11]
    assert _by_run([1, 2, 3], 3) == [1, 2, 3]


def test_events_of_one_name_and_two_operators_are_kept_apart():
    def event(name, op, ms, kind="kernel_time"):
        return {"cat": "Node", "name": f"{name}_{kind}", "dur": ms * 1000, "args": {"op_name": op}}

    run = [event("a", "Conv", 1), event("a", "Relu", 2), event("b", "Add", 3), event("a", "Conv", 9, "fence_before")]
    events = [*run * WARM_UP, event("a", "Conv", 5), event("a", "Relu", 6), event("b", "Add", 7), {"cat": "Session"}]
    times, order = _times(events, 1)
    assert times == {"a": [5], "a (Relu)": [6], "b": [7]}
    assert order == {"a": "Conv", "a (Relu)": "Relu", "b": "Add"}


@pytest.mark.parametrize(
    ("node", "compute", "expected"),
    [
        (helper.make_node("FusedConv", ["q", "w"], ["r"], name="anything"), True, ("conv",)),  # by its weight
        (helper.make_node("Conv", ["q", "other"], ["z"], name="conv_nchwc"), True, ("conv",)),  # by its name
        (helper.make_node("Relu", ["q"], ["z"], name="relu_token_12"), False, ("relu",)),
        (helper.make_node("Relu", ["q"], ["r"], name=""), False, ("relu",)),  # by what it makes
        (helper.make_node("Conv", ["q", "other"], ["r"], name=""), True, ("conv",)),  # upstream of the Relu
        (helper.make_node("Conv", ["q", "shared"], ["z"], name="new"), True, ()),  # two layers have this weight
        (helper.make_node("Transpose", ["q"], ["z"], name="Transpose"), False, ()),
    ],
)
def test_an_operator_is_traced_to_the_file_s_nodes(node, compute, expected):
    weights = [helper.make_tensor(n, 1, [1, 1], [0.0]) for n in ("w", "shared")]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "shared"], ["s"], name="first"),
        helper.make_node("MatMul", ["s", "shared"], ["t"], name="second"),
    ]
    assert Origins(helper.make_graph(nodes, "g", [], [], weights)).of(node, compute=compute) == expected


def _profiled(runner, path, count=4, runs=3, **inputs):
    with runner(Artifact(Form.ONNX, path, Signature(()), ""), RunOptions(1)) as opened:
        spec = opened.signature.inputs[0]
        values = np.random.default_rng(0).standard_normal((count, *spec.shape[1:])).astype(np.float32)
        return opened.profile(inputs or {spec.name: values}, runs)


@pytest.mark.parametrize("runner", RUNNERS)
def test_totals_add_up_and_nothing_is_counted_twice(small_model, runner):
    found = _profiled(runner, small_model, 3, 2)
    assert (found.batch, found.runs) == (3, 2)
    assert found.total_ms == pytest.approx(sum(o.ms for o in found.ops))
    assert len({o.name for o in found.ops}) == len(found.ops)
    assert all(o.ms >= 0 for o in found.ops)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_float_network_computes_in_float_under_its_nodes_names(small_model, runner):
    found = _profiled(runner, small_model)
    compute = [o for o in found.ops if o.kind == "compute"]
    assert {o.precision for o in compute} == {"fp32"}
    assert [o.layers[0] for o in compute[:2]] == ["stem", "body"]
    # OpenVINO calls the node that makes an output by the output.
    assert compute[2].layers == (["head"] if runner is OrtRunner else ["y"])
    (pool,) = (o for o in found.ops if o.layers == ["pool"])
    assert pool.kind == "other"
    assert all(o.op in ("ReorderInput", "ReorderOutput", "Reorder") for o in found.ops if o.kind == "conversion")


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_int8_network_really_computes_in_int8(int8_onnx, runner):
    found = _profiled(runner, int8_onnx)
    compute = {o.layers[0]: o.precision for o in found.ops if o.kind == "compute"}
    assert compute == {"conv": "int8", "gemm": "int8"}
    first = found.ops[0]
    assert (first.name, first.kind) == ("image_QuantizeLinear", "conversion")
    assert "conv" in first.layers
    nodes = {n.name for n in onnx.load(int8_onnx).graph.node}
    assert {o.layers[0] for o in found.ops if o.kind == "compute"} <= nodes


def test_a_layer_left_in_float_beside_int8_ones_is_seen_in_float(int8_onnx, tmp_path):
    """The Gemm reads the pair's own input and weight, so that it has none around it."""
    model = onnx.load(int8_onnx)
    made = {name: n for n in model.graph.node for name in n.output}
    gemm = next(n for n in model.graph.node if n.name == "gemm")
    gemm.input[0] = made[made[gemm.input[0]].input[0]].input[0]
    gemm.input[1] = "plain"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1152, 32), np.float32), "plain"))
    del gemm.input[2:]
    onnx.save(model, tmp_path / "mixed.onnx")
    found = _profiled(OrtRunner, tmp_path / "mixed.onnx")
    assert {o.layers[0]: o.precision for o in found.ops if o.kind == "compute"} == {"conv": "int8", "gemm": "fp32"}


@pytest.mark.parametrize("runner", RUNNERS)
def test_inputs_that_do_not_fit_are_refused_in_a_sentence(small_model, runner):
    with pytest.raises(ModelError, match="x"):
        _profiled(runner, small_model, x=np.zeros((1, 3, 5), np.float32))
    with pytest.raises(ModelError, match="missing: x"):
        _profiled(runner, small_model, z=np.zeros((1, 3, 16, 16), np.float32))
