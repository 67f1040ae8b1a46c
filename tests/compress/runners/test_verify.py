"""Whether a stage's file holds, with real files in real processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.artifact import Artifact, Form, Signature, StageRecord, TensorSpec, sha256_of
from compress.errors import CompressError, StageError
from compress.progress import Quiet
from compress.runners.base import RunOptions
from compress.runners.verify import make_verifier

OPTIONS = RunOptions(threads=1)
RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((4, 3)).astype(np.float32)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, tuple[int | str, ...]]] = (("x", ("batch", 4)),),
    outputs: Sequence[tuple[str, tuple[int | str, ...]]] = (("y", ("batch", 3)),),
    **weights: np.ndarray,
) -> Artifact:
    """Write an ONNX file of float32 inputs and outputs."""

    def infos(tensors: Sequence[tuple[str, tuple[int | str, ...]]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in tensors]

    def specs(tensors: Sequence[tuple[str, tuple[int | str, ...]]]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(name, "float32", shape) for name, shape in tensors)

    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "g", infos(inputs), infos(outputs), held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return Artifact(Form.ONNX, path, Signature(specs(inputs), specs(outputs)), sha256_of(path))


def linear(path: Path, weight: np.ndarray = WEIGHT, batch: int | str = "batch", names: str = "xy") -> Artifact:
    x, y = names
    node = helper.make_node("MatMul", [x, "w"], [y])
    return save(path, [node], [(x, (batch, 4))], [(y, (batch, 3))], w=weight)


class Heard(Quiet):
    """Keeps details."""

    def __init__(self) -> None:
        self.details: list[str] = []

    def detail(self, text: str) -> None:
        self.details.append(text)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def verify(tmp_path: Path, heard: Heard):
    return make_verifier(OPTIONS, tmp_path, None, 0, heard)


def test_the_same_model(verify, heard: Heard, tmp_path: Path) -> None:
    found = verify(linear(tmp_path / "child.onnx"), linear(tmp_path / "parent.onnx"))
    assert found.sqnr_db == 200
    assert found.samples == 1 + 3 + 8
    assert heard.details == ["child.onnx agrees with parent.onnx to 200.0 dB at batch 1, batch 3, batch 8"]


def test_a_pass_may_change_the_model_and_the_change_is_measured(verify, tmp_path: Path) -> None:
    parent = linear(tmp_path / "parent.onnx")
    found = verify(linear(tmp_path / "child.onnx", WEIGHT * 1.1), parent)
    assert found.sqnr_db == pytest.approx(20, abs=0.01)
    assert found.top1_agreement == 1


def test_a_parent_runs_once_for_many_children(verify, tmp_path: Path) -> None:
    parent = linear(tmp_path / "parent.onnx")
    assert verify(linear(tmp_path / "a.onnx"), parent).sqnr_db == 200
    parent.path.unlink()
    assert verify(linear(tmp_path / "b.onnx", WEIGHT * 2), parent).sqnr_db == pytest.approx(0, abs=0.01)


def test_a_fixed_batch_is_run_at_its_size(verify, tmp_path: Path) -> None:
    found = verify(linear(tmp_path / "child.onnx", batch=5), linear(tmp_path / "parent.onnx", batch=5))
    assert found.samples == 5


def test_a_lost_batch_axis_is_found(verify, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"child\.onnx lost its dynamic batch axis: it only takes batches of 2"):
        verify(linear(tmp_path / "child.onnx", batch=2), linear(tmp_path / "parent.onnx"))


def test_a_batch_frozen_inside_is_found(verify, tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    child = save(tmp_path / "child.onnx", nodes, w=WEIGHT, shape=np.array([1, 4]))
    with pytest.raises(StageError, match=r"child\.onnx opens, but doesn't run at batch 3"):
        verify(child, linear(tmp_path / "parent.onnx"))


def test_values_that_arent_finite_are_the_childs(verify, tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Log", ["m"], ["y"])]
    child = save(tmp_path / "child.onnx", nodes, w=WEIGHT)
    with pytest.raises(StageError, match="makes NaN or infinity in output y at batch 1"):
        verify(child, linear(tmp_path / "parent.onnx"))


def test_other_names_pair_by_position(verify, tmp_path: Path) -> None:
    assert verify(linear(tmp_path / "child.onnx", names="ab"), linear(tmp_path / "parent.onnx")).sqnr_db == 200


def test_a_dropped_input_isnt_fed(verify, tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Identity", ["unused"], ["copy"])]
    parent = save(tmp_path / "parent.onnx", nodes, [("unused", ("batch", 2)), ("x", ("batch", 4))], w=WEIGHT)
    assert verify(linear(tmp_path / "child.onnx"), parent).sqnr_db == 200


def test_an_input_too_many_is_named(verify, tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "z"], ["y"])]
    child = save(tmp_path / "child.onnx", nodes, [("x", ("batch", 4)), ("z", ("batch", 3))], w=WEIGHT)
    with pytest.raises(StageError, match="takes x, z, but the model it was made of takes x"):
        verify(child, linear(tmp_path / "parent.onnx"))


def test_another_shape_of_output_is_named(verify, tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    child = save(tmp_path / "child.onnx", [node], outputs=[("y", ("batch", 2))], w=WEIGHT[:, :2])
    with pytest.raises(StageError, match=r"at batch 1: output y has shape \[1, 2\] instead of \[1, 3\]"):
        verify(child, linear(tmp_path / "parent.onnx"))


def test_a_second_length_is_tried(verify, heard: Heard, tmp_path: Path) -> None:
    shapes = {"inputs": [("x", ("batch", "sequence"))], "outputs": [("y", ("batch", "sequence"))]}
    parent = save(tmp_path / "parent.onnx", [helper.make_node("Relu", ["x"], ["y"])], **shapes)
    frozen = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "shape"], ["y"])]
    child = save(tmp_path / "child.onnx", frozen, **shapes, shape=np.array([-1, 16]))
    with pytest.raises(StageError, match="at batch 2 with sequence 21"):
        verify(child, parent)
    whole = save(tmp_path / "whole.onnx", [helper.make_node("Relu", ["x"], ["y"])], **shapes)
    assert verify(whole, parent).samples == 1 + 3 + 8 + 2
    assert heard.details[-1].endswith("batch 8, batch 2 with sequence 21")


def test_real_data_is_what_is_compared_on(tmp_path: Path) -> None:
    # A clip at 6 changes nothing for inputs up to 1, everything for inputs of 100.
    def pair(folder: Path) -> tuple[Artifact, Artifact]:
        shapes = {"inputs": [("x", ("batch", 4))], "outputs": [("y", ("batch", 4))]}
        clip = helper.make_node("Min", ["x", "six"], ["y"])
        plain = save(folder / "p.onnx", [helper.make_node("Identity", ["x"], ["y"])], **shapes)
        return save(folder / "c.onnx", [clip], **shapes, six=np.array(6, np.float32)), plain

    small = make_verifier(OPTIONS, tmp_path, {"x": np.ones((2, 4), np.float32)}, 0, Quiet())
    large = make_verifier(OPTIONS, tmp_path, {"x": np.full((2, 4), 100, np.float32)}, 0, Quiet())
    assert small(*pair(tmp_path)).sqnr_db == 200
    assert large(*pair(tmp_path)).sqnr_db == pytest.approx(20 * np.log10(100 / 94), abs=1e-3)


def test_a_file_that_doesnt_open_is_an_error(verify, tmp_path: Path) -> None:
    child = linear(tmp_path / "child.onnx")
    child.path.write_bytes(b"not a model")
    with pytest.raises(CompressError, match=r"child\.onnx"):
        verify(child, linear(tmp_path / "parent.onnx"))


def converted(source: Artifact, path: Path) -> Artifact:
    """Convert an ONNX file to OpenVINO's form."""
    import openvino

    openvino.save_model(openvino.convert_model(source.path), path, compress_to_fp16=False)
    weights = path.with_suffix(".bin")
    return Artifact(Form.OPENVINO, path, source.signature, sha256_of(path, weights), side_files=(weights,))


def test_an_export_agrees_up_to_rounding(verify, tmp_path: Path) -> None:
    parent = linear(tmp_path / "parent.onnx")
    assert verify(converted(parent, tmp_path / "model.xml"), parent).sqnr_db > 100


def test_an_export_that_disagrees_is_refused(verify, tmp_path: Path) -> None:
    parent = linear(tmp_path / "parent.onnx")
    child = converted(linear(tmp_path / "other.onnx", WEIGHT * 1.01), tmp_path / "model.xml")
    with pytest.raises(StageError, match=r"model\.xml disagrees with parent\.onnx: 40\.0 dB, where at least 60 dB"):
        verify(child, parent)


def test_in_low_precision_two_runtimes_may_round_differently(verify, tmp_path: Path) -> None:
    parent = dataclasses.replace(linear(tmp_path / "parent.onnx"), lineage=(StageRecord("int8"),))
    child = converted(linear(tmp_path / "other.onnx", WEIGHT * 1.01), tmp_path / "model.xml")
    assert verify(child, parent).sqnr_db == pytest.approx(40, abs=0.1)
    wrong = converted(linear(tmp_path / "wrong.onnx", -WEIGHT), tmp_path / "wrong.xml")
    with pytest.raises(StageError, match="at least 10 dB"):
        verify(wrong, parent)
