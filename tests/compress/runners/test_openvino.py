"""Running files in OpenVINO."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import openvino
import pytest

from compress.artifact import Artifact, Form, Signature
from compress.errors import ModelError, UsageError
from compress.runners.base import RunOptions
from compress.runners.onnx_file import read_signature
from compress.runners.onnxruntime import OrtRunner
from compress.runners.openvino import OpenVinoRunner

CAPABILITIES = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def artifact(path, form=Form.ONNX, **execution):
    return Artifact(form, path, Signature(()), "", execution=execution)


def images(count):
    return {"image": np.random.default_rng(count).standard_normal((count, 3, 8, 8)).astype(np.float32)}


@pytest.fixture
def foreign(float_onnx, tmp_path):
    """An OpenVINO file that somebody else made: no signature of ours in it."""
    openvino.save_model(openvino.Core().read_model(float_onnx), tmp_path / "cnn.xml", compress_to_fp16=False)
    return tmp_path / "cnn.xml"


def test_onnx_file_gives_what_onnxruntime_gives(float_onnx):
    with (
        OpenVinoRunner(artifact(float_onnx), RunOptions(2)) as runner,
        OrtRunner(artifact(float_onnx), RunOptions(2)) as other,
    ):
        assert runner.signature == read_signature(float_onnx)
        for count in (1, 3, 8):
            made, wanted = runner.infer(images(count)), other.infer(images(count))
            assert list(made) == list(wanted)
            for name in wanted:
                np.testing.assert_allclose(made[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_results_of_earlier_runs_stay(float_onnx):
    with OpenVinoRunner(artifact(float_onnx), RunOptions(1)) as runner:
        first = runner.infer(images(2))["scores"]
        kept = first.copy()
        runner.infer(images(3))
        np.testing.assert_array_equal(first, kept)


def test_signature_of_a_foreign_file(foreign):
    with OpenVinoRunner(artifact(foreign, Form.OPENVINO), RunOptions(1)) as runner:
        assert [str(s) for s in runner.signature.inputs] == ["image: float32[batch, 3, 8, 8]"]
        assert [str(s) for s in runner.signature.outputs] == [
            "scores: float32[batch, 32]",
            "features: float32[batch, 32, 6, 6]",
        ]


def test_float_files_run_in_float_on_every_cpu(float_onnx, foreign):
    for form, path in ((Form.ONNX, float_onnx), (Form.OPENVINO, foreign)):
        with OpenVinoRunner(artifact(path, form), RunOptions(1)) as runner:
            facts = runner.facts()
        assert facts["inference_precision"] == "f32"
        assert set(facts["precisions"]) == {"float32"}
        assert (facts["runtime"], facts["device"], facts["threads"], facts["streams"]) == ("openvino", "cpu", 1, 1)


@pytest.mark.skipif("BF16" not in CAPABILITIES, reason="this CPU has no BF16")
def test_bf16_is_used_where_the_artifact_carries_it(float_onnx):
    with OpenVinoRunner(artifact(float_onnx, inference_precision="bf16"), RunOptions(1)) as runner:
        facts = runner.facts()
        assert facts["inference_precision"] == "bf16"
        assert facts["precisions"]["bfloat16"] >= 2
        low = runner.infer(images(2))["scores"]
    with OpenVinoRunner(artifact(float_onnx), RunOptions(1)) as runner:
        full = runner.infer(images(2))["scores"]
    assert 1e-4 < np.abs(low - full).max() < 0.1


@pytest.mark.parametrize("precision, capability", [("bf16", "BF16"), ("f16", "FP16")])
def test_precision_that_the_cpu_lacks_is_refused(float_onnx, precision, capability):
    if capability in CAPABILITIES:
        pytest.skip(f"this CPU has {capability}")
    with pytest.raises(UsageError, match=f"is to run in {precision}, which this CPU cannot compute in"):
        OpenVinoRunner(artifact(float_onnx, inference_precision=precision), RunOptions(1))


def test_unknown_precision_is_refused(float_onnx):
    with pytest.raises(UsageError, match="computes in f32, bf16, f16, not in 'banana'"):
        OpenVinoRunner(artifact(float_onnx, inference_precision="banana"), RunOptions(1))


def test_int8_layers_are_counted(int8_onnx):
    with OpenVinoRunner(artifact(int8_onnx), RunOptions(1)) as runner:
        facts = runner.facts()
        assert facts["precisions"]["int8"] >= 2
        runner.bind(images(2))()
        assert runner.facts() == facts


def test_binding_compiles_for_the_shapes_once(float_onnx):
    with OpenVinoRunner(artifact(float_onnx), RunOptions(1)) as runner:
        expected = runner.infer(images(3))
        runner.bind(images(3))()
        request = runner._static[((3, 3, 8, 8),)]
        assert request.get_compiled_model().inputs[0].get_partial_shape().is_static
        np.testing.assert_allclose(request.get_output_tensor(0).data, expected["scores"], rtol=1e-4, atol=1e-5)
        again = {"image": images(3)["image"] * 2}
        runner.bind(again)()
        assert runner._static[((3, 3, 8, 8),)] is request
        after = runner.infer(again)
        np.testing.assert_allclose(request.get_output_tensor(0).data, after["scores"], rtol=1e-4, atol=1e-5)
        runner.bind(images(1))()
        assert set(runner._static) == {((3, 3, 8, 8),), ((1, 3, 8, 8),)}


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 4, 8, 8)])
def test_wrong_shape_is_one_sentence(float_onnx, shape):
    with OpenVinoRunner(artifact(float_onnx), RunOptions(1)) as runner:
        for run in (runner.infer, runner.bind):
            with pytest.raises(ModelError) as caught:
                run({"image": np.zeros(shape, np.float32)})
            assert f"cnn.onnx does not run on image {list(shape)}" in caught.value.message
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 100, 20000])
def test_damaged_onnx_file(float_onnx, tmp_path, size):
    path = tmp_path / "cut.onnx"
    path.write_bytes(float_onnx.read_bytes()[:size])
    with pytest.raises(ModelError, match=rf"OpenVINO can read, or a damaged one \({size} bytes\)"):
        OpenVinoRunner(artifact(path), RunOptions(1))


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_damaged_openvino_file(foreign, share):
    content = foreign.read_bytes()
    foreign.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ModelError, match="OpenVINO can read, or a damaged one"):
        OpenVinoRunner(artifact(foreign, Form.OPENVINO), RunOptions(1))


def test_weights_file_missing_or_cut(foreign):
    weights = foreign.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelError, match="or a damaged one"):
        OpenVinoRunner(artifact(foreign, Form.OPENVINO), RunOptions(1))
    weights.unlink()
    with pytest.raises(ModelError, match=r"needs cnn\.bin beside it"):
        OpenVinoRunner(artifact(foreign, Form.OPENVINO), RunOptions(1))


def test_gpu_is_refused(float_onnx):
    with pytest.raises(UsageError, match="OpenVINO has no device 'cuda:0'"):
        OpenVinoRunner(artifact(float_onnx), RunOptions(1, "cuda:0"))


def test_close_twice(float_onnx):
    runner = OpenVinoRunner(artifact(float_onnx), RunOptions(1))
    runner.close()
    runner.close()
    with pytest.raises(RuntimeError, match="closed"):
        runner.infer(images(1))


def test_file_with_an_input_that_nothing_reads(tmp_path):
    from onnx import parser

    path = tmp_path / "m.onnx"
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[N,4] a, float[N,4] b) => (float[N,4] y) { y = Relu(b) }'
    onnx.save(parser.parse_model(text), path)
    with OpenVinoRunner(artifact(path), RunOptions(1)) as runner:
        made = runner.infer({"a": np.zeros((2, 4), np.float32), "b": -np.ones((2, 4), np.float32)})
    np.testing.assert_array_equal(made["y"], np.zeros((2, 4)))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signal stacks are looked at as Linux has them")
def test_ctrl_c_after_a_model_was_closed_is_an_interrupt_and_no_crash(float_onnx):
    script = (
        "import gc, os, signal, sys, time\n"
        "from compress.artifact import Artifact, Form\n"
        "from compress.runners.base import RunOptions\n"
        "from compress.runners.openvino import OpenVinoRunner\n"
        "from compress.runners.onnx_file import read_signature\n"
        "from pathlib import Path\n"
        "path = Path(sys.argv[1])\n"
        "with OpenVinoRunner(Artifact(Form.ONNX, path, read_signature(path), ''), RunOptions(1)) as runner:\n"
        "    runner.facts()\n"
        "del runner; gc.collect()\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(5)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(float_onnx)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "interrupted"), done.stderr
