"""The exporter from ONNX to OpenVINO."""

from __future__ import annotations

import numpy as np
import openvino
import pytest

from compress.artifact import Artifact, Form, Signature, sha256_of
from compress.errors import CompressError, StageError
from compress.progress import Quiet
from compress.runners.base import RunOptions
from compress.runners.onnx_file import read_signature
from compress.runners.onnxruntime import OrtRunner
from compress.runners.openvino import OpenVinoRunner
from compress.runners.targets import TARGETS
from compress.stage import Context
from exporters.openvino import OpenVinoExporter


def artifact_of(path, **execution):
    return Artifact(Form.ONNX, path, read_signature(path), sha256_of(path), execution=execution)


def export(artifact, folder, **settings):
    context = Context(TARGETS["openvino"], folder, Quiet(), verify=lambda child, parent: None)
    return OpenVinoExporter(**settings).run(artifact, context)


def images(count):
    return {"image": np.random.default_rng(count).standard_normal((count, 3, 8, 8)).astype(np.float32)}


def test_float_file_keeps_names_symbols_and_values(float_onnx, tmp_path):
    parent = artifact_of(float_onnx)
    child = export(parent, tmp_path)
    assert child.form is Form.OPENVINO
    assert [p.name for p in child.files] == ["model.xml", "model.bin"]
    assert child.signature == parent.signature
    assert child.execution == {"inference_precision": "f32"}
    with OpenVinoRunner(child, RunOptions(1)) as after, OrtRunner(parent, RunOptions(1)) as before:
        assert after.signature == before.signature
        for count in (1, 3, 8):
            made, wanted = after.infer(images(count)), before.infer(images(count))
            assert list(made) == ["scores", "features"]
            for name in wanted:
                np.testing.assert_allclose(made[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_weights_keep_their_type(float_onnx, tmp_path):
    child = export(artifact_of(float_onnx), tmp_path)
    assert child.side_files[0].stat().st_size >= 4 * (32 * 27 + 1152 * 32)


def test_int8_stays_int8(float_onnx, int8_onnx, tmp_path):
    (tmp_path / "float").mkdir()
    plain = export(artifact_of(float_onnx), tmp_path / "float")
    child = export(artifact_of(int8_onnx), tmp_path)
    assert child.side_files[0].stat().st_size < 0.3 * plain.side_files[0].stat().st_size
    ops = openvino.Core().read_model(child.path).get_ops()
    assert sum(op.get_type_name() == "FakeQuantize" for op in ops) >= 2
    wide = [op for op in ops if op.get_type_name() == "Constant" and np.prod(op.get_output_shape(0)) >= 27 * 32]
    assert {op.get_element_type().to_string() for op in wide} == {"i8"}
    with OpenVinoRunner(child, RunOptions(1)) as after, OrtRunner(artifact_of(int8_onnx), RunOptions(1)) as before:
        assert after.facts()["precisions"]["int8"] >= 2
        made, wanted = after.infer(images(4))["scores"], before.infer(images(4))["scores"]
        assert np.sum((made - wanted) ** 2) < 1e-3 * np.sum(wanted**2)


@pytest.mark.parametrize(
    "carried, asked, used", [({}, "bf16", "bf16"), ({"inference_precision": "bf16"}, None, "bf16"), ({}, None, "f32")]
)
def test_precision_is_written_into_the_file(float_onnx, tmp_path, carried, asked, used):
    child = export(artifact_of(float_onnx, **carried), tmp_path, inference_precision=asked)
    assert child.execution["inference_precision"] == used
    model = openvino.Core().read_model(child.path)
    assert model.get_rt_info(["compress", "inference_precision"]).astype(str) == used
    assert child.lineage[-1].notes == (("Float operators are computed in bf16.",) if used == "bf16" else ())


def test_damaged_file_is_refused(float_onnx, tmp_path):
    path = tmp_path / "cut.onnx"
    path.write_bytes(float_onnx.read_bytes()[:20000])
    with pytest.raises(
        CompressError, match=r"cut\.onnx is no ONNX file, or a damaged or incomplete one \(20000 bytes\)"
    ):
        export(Artifact(Form.ONNX, path, Signature(()), sha256_of(path)), tmp_path)


def test_operator_that_openvino_lacks_is_named(tmp_path):
    import onnx
    from onnx import parser

    path = tmp_path / "own.onnx"
    text = "g (float[N,4] x) => (float[N,4] y) { y = own.Frobnicate(x) }"
    onnx.save(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18, "own" : 1]> {text}'), path)
    with pytest.raises(StageError, match="Frobnicate"):
        export(artifact_of(path), tmp_path)
