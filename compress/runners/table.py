"""Which runner runs which form of file: the one table of runtimes. Nothing heavy is imported before it is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from compress.artifact import Artifact, Form
from compress.errors import UsageError
from compress.runners.altstack import signal_stack_kept
from compress.runners.base import Runner, RunOptions
from compress.runners.targets import TARGETS

_TINY_ONNX = (
    b"\x08\x08:3\n\x0c\n\x01x\x12\x01y\x22\x04Relu\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01"
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x11"
)
"""An ONNX model of one Relu over one number: it makes the runtime load its libraries and nothing else."""


def _torch() -> type[Runner]:
    from compress.runners.torch import TorchRunner

    return TorchRunner


def _onnxruntime() -> type[Runner]:
    from compress.runners.onnxruntime import OrtRunner

    return OrtRunner


def _openvino() -> type[Runner]:
    from compress.runners.openvino import OpenVinoRunner

    return OpenVinoRunner


def _warm_torch(threads: int) -> None:
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(1152, 8))
    with torch.inference_mode():
        nn.Sequential(*layers).eval()(torch.ones(2, 3, 16, 16))


def _warm_onnxruntime(threads: int) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    onnxruntime.InferenceSession(_TINY_ONNX, options, providers=["CPUExecutionProvider"])


def _warm_openvino(threads: int) -> None:
    import openvino

    core = openvino.Core()
    with signal_stack_kept():
        core.compile_model(core.read_model(_TINY_ONNX, b""), "CPU", {"INFERENCE_NUM_THREADS": threads})


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A runtime.

    Attributes:
        package: Import name of the library.
        install: What installs it.
        runner: Imports and returns the runner's class.
        warm: Makes the library load its own parts, so that what a model adds can be told apart from them; takes the
            number of threads.
    """

    package: str
    install: str
    runner: Callable[[], type[Runner]]
    warm: Callable[[int], None]


RUNNERS: dict[Form, Runtime] = {
    Form.TORCH: Runtime("torch", "pip install torch", _torch, _warm_torch),
    Form.ONNX: Runtime("onnxruntime", "pip install onnxruntime", _onnxruntime, _warm_onnxruntime),
    Form.OPENVINO: Runtime("openvino", "pip install openvino", _openvino, _warm_openvino),
}
"""Every runtime by the form of file that is its own."""


def runtime_of(form: Form, target: str | None = None) -> Runtime:
    """Return the runtime of a form of file; an ONNX file runs in the runtime of ``target`` where one is given.

    Raises:
        UsageError: No runner for the form, or an unknown target.
    """
    if target is not None and target not in TARGETS:
        raise UsageError(f"There is no target '{target}'.", f"Known: {', '.join(TARGETS)}.")
    runs_as = TARGETS[target].form if target is not None and form is Form.ONNX else form
    if runs_as not in RUNNERS:
        raise UsageError(
            f"Files of form {runs_as.value} cannot be run here.",
            f"Forms that can: {', '.join(f.value for f in RUNNERS)}.",
        )
    return RUNNERS[runs_as]


def runner_class(form: Form, target: str | None = None) -> type[Runner]:
    """Return the runner of a form of file; an ONNX file gets the runner of ``target`` where one is given.

    Raises:
        UsageError: No runner for the form, an unknown target, or the runtime isn't installed.
    """
    runtime = runtime_of(form, target)
    try:
        return runtime.runner()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != runtime.package:
            raise
        raise UsageError(
            f"{runtime.package} is needed to run {form.value} files, and isn't installed.", f"Run: {runtime.install}"
        ) from error


def open_runner(artifact: Artifact, options: RunOptions, target: str | None = None) -> Runner:
    """Load an artifact in this process. Measuring uses a process of its own (:mod:`compress.runners.process`).

    Raises:
        UsageError: As :func:`runner_class`; or the device asked for isn't there.
        ModelError: The file is damaged, or the runtime refuses it.
    """
    return runner_class(artifact.form, target)(artifact, options)
