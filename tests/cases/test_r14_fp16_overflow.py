"""R14: FP16 conversion succeeds, and large values inside a mean, a normalization or a mask make the outputs NaN."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.passes.half.agree import agreement
from compress.passes.half.convert import convert
from compress.passes.half.types import element_types, half_slots, lift_constants
from compress.passes.half.unfit import unfit_nodes

WIDTH = 64


def network() -> onnx.ModelProto:
    """Activations of 3e4 before a LayerNorm written by hand, a mean over 512×512, a mask of −1e9, a weight of 1e6."""
    rng = np.random.default_rng(0)
    constants = {
        "large": np.float32(3e4),
        "w": rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8,
        "two": np.float32(2),
        "eps": np.float32(1e-5),
        "last": np.array([-1], np.int64),
        "mask": np.where(np.arange(WIDTH) < 40, 0, -1e9).astype(np.float32),
        "million": np.float32(1e6),
        "image": rng.random((1, 512 * 512)).astype(np.float32),
        "one": np.array([1], np.int64),
    }
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["h"], "product"),
        node("Mul", ["h", "large"], ["big"], "scale"),
        node("ReduceMean", ["big", "last"], ["mean"], "mean"),
        node("Sub", ["big", "mean"], ["centered"], "center"),
        node("Pow", ["centered", "two"], ["squares"], "square"),
        node("ReduceMean", ["squares", "last"], ["variance"], "variance"),
        node("Add", ["variance", "eps"], ["safe"], "add eps"),
        node("Sqrt", ["safe"], ["deviation"], "root"),
        node("Div", ["centered", "deviation"], ["normal"], "normalize"),
        node("Add", ["normal", "mask"], ["masked"], "mask"),
        node("Softmax", ["masked"], ["weights"], "softmax"),
        node("Mul", ["weights", "million"], ["grown"], "grow"),
        node("Div", ["grown", "million"], ["shrunk"], "shrink"),
        node("Add", ["image", "m"], ["lit"], "light"),
        node("ReduceMean", ["lit", "one"], ["brightness"], "brightness"),
        node("MatMul", ["shrunk", "w"], ["mixed"], "mix"),
        node("Add", ["mixed", "brightness"], ["y"], "end"),
    ]
    nodes.insert(13, node("ReduceMean", ["normal", "last"], ["m"], "shift"))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "r14", [value("x", TensorProto.FLOAT, ["N", WIDTH])], [value("y", TensorProto.FLOAT, ["N", WIDTH])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    lift_constants(model)
    return model


def batches() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((4, WIDTH)).astype(np.float32)} for _ in range(3)]


@pytest.fixture
def kept(tmp_path: Path) -> dict[str, str]:
    model = network()
    slots = half_slots(model, element_types(model))
    return unfit_nodes(model, slots, batches, work=tmp_path, threads=1, advance=lambda n: None)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")  # that is what is shown
def test_plain_conversion_breaks_it(tmp_path: Path) -> None:
    model = network()
    slots = half_slots(model, element_types(model))
    found = agreement(model, convert(model, slots, (), low_io=False, emulate=True), batches(), 1, tmp_path)
    assert not np.isfinite(found.error)


def test_what_overflows_is_kept_with_its_reason(kept: dict[str, str]) -> None:
    beyond = {n for n, reason in kept.items() if reason.startswith("values near or beyond")}
    assert {"square", "variance", "root", "mask", "softmax", "grow"} <= beyond
    assert kept["brightness"].startswith("a sum inside goes near or beyond FP16's range")
    assert not {"product", "mix"} & set(kept)


def test_outputs_are_finite_and_close(kept: dict[str, str], tmp_path: Path) -> None:
    model = network()
    slots = half_slots(model, element_types(model))
    found = agreement(model, convert(model, slots, kept, low_io=False, emulate=True), batches(), 1, tmp_path)
    assert found.error < 1e-2


def test_values_between_kept_operators_stay_in_fp32(kept: dict[str, str]) -> None:
    model = network()
    converted = convert(model, half_slots(model, element_types(model)), kept, low_io=False)
    onnx.checker.check_model(converted, full_check=True)
    readers = {name: n for n in converted.graph.node for name in n.input}
    for node in converted.graph.node:
        if node.name in ("square", "variance", "add eps"):
            assert readers[node.output[0]].op_type != "Cast"
    values = {t.name: numpy_helper.to_array(t) for t in converted.graph.initializer}
    assert values["mask"].min() == np.float32(-1e9)
    assert values["million"] == np.float32(1e6)
    assert values["w_fp16"].dtype == np.float16
