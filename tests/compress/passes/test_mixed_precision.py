"""Mixed precision: the FP16 file keeps what FP16 cannot hold, is valid, and agrees with the float file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.errors import StageError
from compress.passes.half.agree import agreement, culprits
from compress.passes.half.convert import convert
from compress.passes.half.types import element_types, half_slots, lift_constants
from compress.passes.half.unfit import unfit_nodes
from compress.passes.mixed_precision import _read

value = helper.make_tensor_value_info
GROUP = dict.fromkeys("sb", np.ones(4, np.float32))


def model_of(nodes, constants, outputs=("y",), opset=20, shape=("N", 8)):
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, shape)], [value(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    lift_constants(model)
    return model


def unfit(model, tmp_path, x):
    slots = half_slots(model, element_types(model))
    return unfit_nodes(model, slots, lambda: [{"x": x}], work=tmp_path, threads=1, advance=lambda n: None)


def types(model):
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    return {v.name: v.type.tensor_type.elem_type for v in (*inferred.graph.value_info, *inferred.graph.output)}


def run(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


def test_a_weight_read_by_both_kinds_is_rounded_for_one_only():
    weight = np.array([0.1, 3e4] * 4, np.float32)
    node = helper.make_node
    model = model_of([node("Mul", ["x", "w"], ["a"], "half"), node("Add", ["a", "w"], ["y"], "single")], {"w": weight})
    converted = convert(model, half_slots(model, element_types(model)), {"single"}, low_io=False)
    values = {t.name: numpy_helper.to_array(t) for t in converted.graph.initializer}
    np.testing.assert_array_equal(values["w"], weight)
    np.testing.assert_array_equal(values["w_fp16"], weight.astype(np.float16))
    assert types(converted)["y"] == TensorProto.FLOAT
    x = np.ones((2, 8), np.float32)
    np.testing.assert_allclose(run(converted, x)[0], weight + weight.astype(np.float16) * x, rtol=1e-3)


def test_low_inputs_and_outputs():
    node = helper.make_node
    model = model_of([node("Relu", ["x"], ["a"], "a"), node("Exp", ["a"], ["y"], "b")], {})
    converted = convert(model, half_slots(model, element_types(model)), {"b"}, low_io=True)
    assert converted.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    assert converted.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    found = run(converted, np.zeros((1, 8), np.float16))[0]
    assert found.dtype == np.float16 and (found == 1).all()


def test_scales_of_resize_stay_float():
    node = helper.make_node
    model = model_of([node("Resize", ["x", "", "s"], ["y"], "up", mode="nearest")],
                     {"s": np.array([1, 2], np.float32)})  # fmt: skip
    slots = half_slots(model, element_types(model))
    assert slots["up"].inputs == (0,)
    found = run(convert(model, slots, (), low_io=False), np.arange(8, dtype=np.float32)[None])[0]
    np.testing.assert_array_equal(found[0], np.repeat(np.arange(8), 2))


def test_cast_and_constants_become_half():
    node = helper.make_node
    model = model_of(
        [
            node("Shape", ["x"], ["s"], "s"),
            node("Cast", ["s"], ["c"], "cast", to=1),
            node("Mul", ["c", "two"], ["y"], "m"),
        ],
        {"two": np.float32(2)},
    )  # fmt: skip
    converted = convert(model, half_slots(model, element_types(model)), (), low_io=False)
    assert types(converted)["c"] == TensorProto.FLOAT16
    np.testing.assert_array_equal(run(converted, np.zeros((3, 8), np.float32))[0], [6, 16])


def test_a_body_of_its_own_reads_what_it_read_before():
    node = helper.make_node
    body = helper.make_graph([node("Neg", ["h"], ["o"], "neg")], "then", [], [value("o", TensorProto.FLOAT, None)])
    other = helper.make_graph([node("Abs", ["h"], ["o2"], "abs")], "else", [], [value("o2", TensorProto.FLOAT, None)])
    model = model_of(
        [
            node("Mul", ["x", "two"], ["h"], "mul"),
            node("If", ["yes"], ["y"], "if", then_branch=body, else_branch=other),
        ],
        {"two": np.float32(2), "yes": np.array(True)},
    )  # fmt: skip
    slots = half_slots(model, element_types(model))
    assert set(slots) == {"mul"}
    np.testing.assert_array_equal(run(convert(model, slots, (), low_io=False), np.ones((1, 8), np.float32))[0], -2)


def test_reasons(tmp_path: Path):
    node = helper.make_node
    model = model_of(
        [
            node("Mul", ["x", "tiny"], ["t"], "small"),
            node("Exp", ["x"], ["e"], "exponent"),
            node("ReduceSumSquare", ["x", "last"], ["q"], "squares"),
            node("Relu", ["x"], ["r"], "fits"),
        ],
        {"tiny": np.float32(1e-6), "last": np.array([1], np.int64)},
        ("t", "e", "q", "r"),
    )
    found = unfit(model, tmp_path, np.full((1, 8), 80, np.float32))
    assert set(found) == {"small", "exponent", "squares"}
    assert found["small"].startswith("values too small for FP16")
    # e^80 is beyond the range itself; 8·80² = 51,200 is beyond half of it.
    assert found["exponent"] == "values near or beyond FP16's range of 65,504: up to 5.5e+34"
    assert found["squares"] == "values near or beyond FP16's range of 65,504: up to 5.1e+04"
    assert "exponent" not in unfit(model, tmp_path, np.full((1, 8), 4, np.float32))
    fine = unfit(model, tmp_path, np.full((1, 8), -40, np.float32))
    assert fine["exponent"] == "FP16 rounds its exponents too coarsely: up to 40"
    assert "fits" not in fine


@pytest.mark.parametrize(
    ("op", "attributes", "constants", "shape", "total"),
    [
        ("ReduceMean", {}, {"axes": np.array([1, 2], np.int64)}, (2, 300, 400), 120_000),
        ("ReduceMean", {}, {}, (2, 300, 400), 240_000),
        ("GlobalAveragePool", {}, {}, (2, 3, 300, 300), 90_000),
        ("LayerNormalization", {"axis": 2}, {"scale": np.ones(40_000, np.float32)}, (1, 2, 40_000), 40_000),
        ("GroupNormalization", {"num_groups": 2}, GROUP, (1, 4, 200, 200), 80_000),
    ],
)
def test_sums_inside(op, attributes, constants, shape, total, tmp_path: Path):
    opset = 21 if op == "GroupNormalization" else 20
    nodes = [helper.make_node(op, ["x", *constants], ["y"], "sum", **attributes)]
    found = unfit(model_of(nodes, constants, opset=opset, shape=shape), tmp_path, np.ones(shape, np.float32))
    what = "squares" if "Normalization" in op else "values"
    assert found["sum"] == f"a sum inside goes near or beyond FP16's range: {what} that add up to {total:.2g}"


def test_the_operator_that_breaks_the_outputs_is_found(tmp_path: Path):
    node = helper.make_node
    model = model_of(
        [
            node("Relu", ["x"], ["a"], "relu"),
            node("Mul", ["a", "big"], ["b"], "overflow"),
            node("Div", ["b", "big"], ["y"], "back"),
        ],
        {"big": np.float32(6e4)},
    )
    slots = half_slots(model, element_types(model))
    x = np.full((2, 8), 3, np.float32)
    emulated = convert(model, slots, (), low_io=False, emulate=True)
    found = agreement(model, emulated, [{"x": x}], 1, tmp_path)
    assert found.error == np.inf and found.output == "y"
    assert set(culprits(model, emulated, slots, (), found.worst, 1, tmp_path)) == {"overflow"}
    # Kept there alone, its value overflows on the way to the next one: that one is found then.
    emulated = convert(model, slots, {"overflow"}, low_io=False, emulate=True)
    assert set(culprits(model, emulated, slots, {"overflow"}, {"x": x}, 1, tmp_path)) == {"back"}
    emulated = convert(model, slots, {"overflow", "back"}, low_io=False, emulate=True)
    assert agreement(model, emulated, [{"x": x}], 1, tmp_path).error == 0


def test_pairs_of_an_old_opset_are_refused_in_one_sentence(tmp_path: Path):
    node = helper.make_node
    constants = {"s": np.float32(0.1), "z": np.uint8(3)}
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"), node("DequantizeLinear", ["q", "s", "z"], ["y"], "d")]
    onnx.save(model_of(nodes, constants, opset=17), tmp_path / "old.onnx")
    onnx.save(model_of(nodes, constants, opset=20), tmp_path / "new.onnx")
    with pytest.raises(StageError, match="opset 17; FP16 between Q/DQ pairs needs opset 19"):
        _read(tmp_path / "old.onnx")
    model = _read(tmp_path / "new.onnx")
    converted = convert(model, half_slots(model, element_types(model)), (), low_io=False)
    assert types(converted)["q"] == TensorProto.UINT8
    x = np.linspace(-0.3, 5, 8, dtype=np.float32)[None]
    np.testing.assert_allclose(run(converted, x)[0], run(model, x)[0], atol=2e-3)
