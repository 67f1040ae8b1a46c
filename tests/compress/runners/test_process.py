"""A process of its own: what crosses, what is held still, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.artifact import Artifact, Form, Signature, TensorSpec, sha256_of
from compress.errors import ModelError, StageError, UsageError
from compress.runners.base import RunOptions
from compress.runners.process import RunnerProcess
from compress.runners.table import runner_class
from compress.runners.timing import Timing

OPTIONS = RunOptions(threads=1)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def linear(path: Path, weight: np.ndarray) -> Artifact:
    """Write ``y = x @ weight`` with a dynamic batch."""
    inner, outer = weight.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", outer])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    signature = Signature(
        (TensorSpec("x", "float32", ("batch", inner)),), (TensorSpec("y", "float32", ("batch", outer)),)
    )
    return Artifact(Form.ONNX, path, signature, sha256_of(path))


WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3)
ONES = {"x": np.ones((2, 4), np.float32)}


@pytest.fixture
def model(tmp_path: Path) -> Artifact:
    return linear(tmp_path / "model.onnx", WEIGHT)


def gone(pid: int, seconds: float = 10) -> bool:
    """Wait for a process to end."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_runs_in_another_process_and_says_what_it_uses(model: Artifact) -> None:
    with RunnerProcess(model, OPTIONS) as process:
        outputs = process.infer({"x": np.eye(4, dtype=np.float32)})
        assert process._pid != os.getpid()
        assert process.facts["runtime"] == "onnxruntime"
        assert process.facts["threads"] == 1
        assert [spec.name for spec in process.signature.inputs] == ["x"]
        assert process.load_seconds > 0
    np.testing.assert_array_equal(outputs["y"], WEIGHT)


def test_ends_with_its_context(model: Artifact) -> None:
    with RunnerProcess(model, OPTIONS) as process:
        pid = process._pid
    assert gone(pid)
    process.close()


def test_times_without_the_warm_up(model: Artifact) -> None:
    timing = Timing(min_seconds=0, min_runs=5, warmup_runs=2, warmup_seconds=0)
    with RunnerProcess(model, OPTIONS) as process:
        samples = process.time(ONES, timing)
    assert len(samples) == 5
    assert all(sample > 0 for sample in samples)


def test_the_users_error_crosses_and_the_process_goes_on(model: Artifact) -> None:
    with RunnerProcess(model, OPTIONS) as process:
        with pytest.raises(ModelError, match="unknown: z"):
            process.infer({"z": np.ones((1, 4), np.float32)})
        assert process.infer(ONES)["y"].shape == (2, 3)


def test_a_damaged_file_is_a_model_error(tmp_path: Path, model: Artifact) -> None:
    model.path.write_bytes(model.path.read_bytes()[:20])
    with pytest.raises(ModelError):
        RunnerProcess(model, OPTIONS)


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_paused_means_stopped(model: Artifact) -> None:
    with RunnerProcess(model, OPTIONS) as process:
        process.pause()
        assert psutil.Process(process._pid).status() == psutil.STATUS_STOPPED
        with pytest.raises(RuntimeError, match="paused"):
            process.infer(ONES)
        process.resume()
        assert process.infer(ONES)["y"].shape == (2, 3)
        process.pause()
        pid = process._pid
    assert gone(pid)


@linux_only
def test_a_kill_is_reported_as_one(model: Artifact) -> None:
    with RunnerProcess(model, OPTIONS) as process:
        os.kill(process._pid, signal.SIGKILL)
        with pytest.raises(StageError, match=r"model\.onnx was killed \(signal 9\), most likely out of memory"):
            process.infer(ONES)


@linux_only
def test_a_kill_while_paused_is_reported_too(model: Artifact) -> None:
    with RunnerProcess(model, OPTIONS) as process:
        process.pause()
        os.kill(process._pid, signal.SIGKILL)
        process._process.wait()
        with pytest.raises(StageError, match="signal 9"):
            process.resume()


@linux_only
def test_a_crash_is_named_and_what_it_printed_is_in_the_log(model: Artifact, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "model.log"
    with RunnerProcess(model, OPTIONS, log) as process:
        os.kill(process._pid, signal.SIGSEGV)
        with pytest.raises(StageError, match=r"crashed \(SIGSEGV\) while running") as caught:
            process.infer(ONES)
    assert str(log) in caught.value.hint
    assert "Segmentation fault" in log.read_text()


@linux_only
def test_ctrl_c_leaves_closing_to_the_parent(model: Artifact) -> None:
    with RunnerProcess(model, OPTIONS) as process:
        os.kill(process._pid, signal.SIGINT)
        assert process.infer(ONES)["y"].shape == (2, 3)


@linux_only
def test_ctrl_c_during_a_request_ends_the_process(model: Artifact) -> None:
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), RunnerProcess(model, OPTIONS) as process:
        pid = process._pid
        interrupt.start()
        process.time(ONES, Timing(min_seconds=100))
    assert gone(pid)


@linux_only
def test_loads_no_torch_for_an_onnx_file(model: Artifact) -> None:
    with RunnerProcess(model, OPTIONS) as process:
        assert "libtorch" not in Path(f"/proc/{process._pid}/maps").read_text()


def test_a_load_that_hangs_is_ended(model: Artifact) -> None:
    with pytest.raises(StageError, match="did not load in the time"):
        RunnerProcess(model, OPTIONS, start_timeout=0.001)


def test_can_be_started_in_a_thread_and_outlive_it(model: Artifact) -> None:
    started: list[RunnerProcess] = []
    thread = threading.Thread(target=lambda: started.append(RunnerProcess(model, OPTIONS)))
    thread.start()
    thread.join()
    with started[0] as process:
        assert process.infer(ONES)["y"].shape == (2, 3)


def test_memory_is_that_of_the_model(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((2000, 2500)).astype(np.float32)
    with RunnerProcess(linear(tmp_path / "big.onnx", weight), OPTIONS) as process:
        peak = process.peak_memory_mb({"x": np.ones((1000, 2000), np.float32)})
        assert 15 < process.memory_weights_mb < 60
        assert peak > process.memory_weights_mb + 10


def script(folder: Path, body: str) -> list[str]:
    """Write a user's script that builds a process for ``model.onnx``; return the command that runs it."""
    head = """
        import sys, time
        from pathlib import Path
        from compress.artifact import Artifact, Form, Signature, TensorSpec
        from compress.runners.base import RunOptions
        from compress.runners.process import RunnerProcess
        signature = Signature((TensorSpec("x", "float32", ("batch", 4)),))
        model = Artifact(Form.ONNX, Path(sys.argv[1]), signature, "")
    """
    path = folder / "script.py"
    path.write_text(textwrap.dedent(head) + textwrap.dedent(body))
    return [sys.executable, str(path), str(folder / "model.onnx")]


def test_an_unguarded_main_is_not_run_again(model: Artifact, tmp_path: Path) -> None:
    body = """
        with open(Path(sys.argv[1]).parent / "ran.txt", "a") as file:
            file.write("once\\n")
        with RunnerProcess(model, RunOptions(1)) as process:
            print(process.facts["runtime"])
    """
    done = subprocess.run(script(tmp_path, body), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "onnxruntime\n"
    assert (tmp_path / "ran.txt").read_text() == "once\n"


def test_files_of_the_working_folder_shadow_nothing(model: Artifact, tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    for name in ("numpy", "json", "onnxruntime", "compress"):
        (folder / f"{name}.py").write_text("raise SystemExit('shadowed')")
    body = "print(RunnerProcess(model, RunOptions(1)).facts['runtime'])"
    done = subprocess.run(script(tmp_path, body), cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "onnxruntime\n"


@linux_only
@pytest.mark.parametrize("paused", [True, False])
def test_dies_with_a_killed_parent(model: Artifact, tmp_path: Path, paused: bool) -> None:
    body = f"""
        process = RunnerProcess(model, RunOptions(1))
        if {paused}:
            process.pause()
        print(process._pid, flush=True)
        time.sleep(60)
    """
    with subprocess.Popen(script(tmp_path, body), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert psutil.pid_exists(worker)
        parent.kill()
    assert gone(worker)


def test_forms_without_a_runner_are_refused() -> None:
    with pytest.raises(UsageError, match="tensorrt cannot be run here"):
        runner_class(Form.TENSORRT)
    with pytest.raises(UsageError, match="no target 'banana'"):
        runner_class(Form.ONNX, "banana")


def test_an_onnx_file_runs_in_the_runtime_of_its_target() -> None:
    assert runner_class(Form.ONNX).__name__ == "OrtRunner"
    assert runner_class(Form.ONNX, "openvino").__name__ == "OpenVinoRunner"
    assert runner_class(Form.TORCH, "openvino").__name__ == "TorchRunner"


def test_a_missing_runtime_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import compress.runners

    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.delitem(sys.modules, "compress.runners.openvino", raising=False)
    monkeypatch.delattr(compress.runners, "openvino", raising=False)
    with pytest.raises(UsageError, match="openvino is needed") as caught:
        runner_class(Form.OPENVINO)
    assert caught.value.hint == "Run: pip install openvino"
