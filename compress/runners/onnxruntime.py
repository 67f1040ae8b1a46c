"""Runs ONNX files in onnxruntime, on the CPU or on an NVIDIA GPU."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from compress.artifact import Form, Signature
from compress.data.base import Array
from compress.errors import ModelError, UsageError
from compress.results import Profile
from compress.runners.base import Runner
from compress.runners.onnx_file import RawSpec, damaged, external_files, named_signature
from compress.runners.onnxruntime_graph import executed_ops

ORT_ERRORS: tuple[type[Exception], ...] = (
    ort_errors.EPFail,
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NoModel,
    ort_errors.NoSuchFile,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    RuntimeError,
    ValueError,
)
"""What onnxruntime raises; its own classes share no base but ``Exception``."""

_DTYPES = {"float": "float32", "double": "float64"}
_ERRORS_ONLY, _FATAL_ONLY = 3, 4


class OrtRunner(Runner):
    """Runs an ONNX file with as many threads inside an operator as asked for and one operator at a time."""

    forms: ClassVar[frozenset[Form]] = frozenset({Form.ONNX})

    def _load(self) -> None:
        provider, self._index = _provider(self.options.device)
        options = session_options(self.options.threads)
        path = self.artifact.path
        self._wanted: list[Any] = [provider] if self._index is None else [(provider, {"device_id": str(self._index)})]
        try:
            with _quiet(self._index is not None):
                # Without this switch a provider that fails to start is replaced by the CPU, and only printed about.
                session = onnxruntime.InferenceSession(str(path), options, providers=self._wanted, enable_fallback=0)
        except ORT_ERRORS as error:
            if self._index is not None and provider in str(error) + _provider_of(error):
                raise _no_device(self.options.device, provider, _sentence(error)) from error
            raise refusal(path, error) from error
        used = session.get_providers()
        if used[0] != provider:
            raise _no_device(self.options.device, provider, f"the session uses {', '.join(used)}")
        self._session: onnxruntime.InferenceSession | None = session
        self._read = named_signature([_raw(i) for i in session.get_inputs()], [_raw(o) for o in session.get_outputs()])

    def _signature(self) -> Signature:
        return self._read

    def facts(self) -> dict[str, Any]:
        """Return what onnxruntime really uses; ``precisions`` counts the operators of the graph after its optimizer.

        That graph is made in a process of its own, so that measured memory stays that of the session.
        """
        return {
            "runtime": "onnxruntime",
            "version": onnxruntime.__version__,
            "device": "cpu" if self._index is None else f"cuda:{self._index}",
            "threads": self._open.get_session_options().intra_op_num_threads,
            "providers": self._open.get_providers(),
            **self._executed,
        }

    @functools.cached_property
    def _executed(self) -> dict[str, Any]:
        return executed_ops(self.artifact.path, self._open.get_providers())

    @property
    def _open(self) -> onnxruntime.InferenceSession:
        if self._session is None:
            raise RuntimeError("the runner is closed")
        return self._session

    def _infer(self, inputs: dict[str, Array]) -> dict[str, Array]:
        names = [s.name for s in self._read.outputs]
        try:
            return dict(zip(names, self._open.run(names, inputs), strict=True))
        except ORT_ERRORS as error:
            raise self._failed(error, inputs) from error

    def _bind(self, inputs: dict[str, Array]) -> Callable[[], None]:
        session = self._open
        place = ("cpu", 0) if self._index is None else ("cuda", self._index)
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, *place))
        for spec in self._read.outputs:
            binding.bind_output(spec.name, *place)

        def call() -> None:
            try:
                session.run_with_iobinding(binding)
                binding.synchronize_outputs()
            except ORT_ERRORS as error:
                raise self._failed(error, inputs) from error

        return call

    def _profile(self, inputs: dict[str, Array], runs: int) -> Profile | None:
        from compress.runners.onnxruntime_profile import profile_file

        try:
            return profile_file(self.artifact.path, session_options(self.options.threads), self._wanted, inputs, runs)
        except ORT_ERRORS as error:
            raise self._failed(error, inputs) from error

    def _failed(self, error: Exception, inputs: dict[str, Array]) -> ModelError:
        shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in inputs.items())
        return ModelError(f"{self.artifact.path.name} does not run on {shapes}: {_sentence(error)}")

    def _close(self) -> None:
        self._session = None


def session_options(threads: int) -> onnxruntime.SessionOptions:
    """Return options for one operator at a time on ``threads`` threads; only errors are logged."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    return options


def refusal(path: Path, error: Exception) -> ModelError:
    """Return the sentence for a file that no session can be made of."""
    missing = [f for f in external_files(path) if not f.is_file()]  # raises for a missing or damaged file
    if missing:
        return ModelError(
            f"{path} needs the file {missing[0].name} beside it, which isn't there.", "Copy both together."
        )
    if isinstance(error, (ort_errors.InvalidProtobuf, ort_errors.NoModel)):
        return damaged(path)
    if isinstance(error, ort_errors.NotImplemented):
        return ModelError(
            f"onnxruntime cannot run {path.name}: it has no kernel for {_kernel(str(error))}.",
            "Quantize it statically (int8 does), or leave that operator in float."
            if "Integer" in str(error)
            else "Use another opset or precision.",
        )
    return ModelError(f"onnxruntime refuses {path.name}: {_sentence(error)}")


def _kernel(text: str) -> str:
    found = re.search(r"implementation for (\w+)\(\d+\) node", text)
    return f"an operator {found[1]} with these element types" if found else "one of its operators"


def _sentence(error: Exception) -> str:
    """Return the first line of what onnxruntime says, without its error code, source file and function."""
    text = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"^/\S+:\d+ .*?\) ", "", text)
    return text if text.endswith(".") else f"{text}."


def _provider(device: str) -> tuple[str, int | None]:
    if device == "cpu":
        return "CPUExecutionProvider", None
    found = re.fullmatch(r"cuda:(\d+)", device)
    if not found:
        raise UsageError(f"onnxruntime has no device '{device}' here.", "Use cpu or cuda:N.")
    provider = "CUDAExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise _no_device(device, provider, "this build of onnxruntime lacks it (install onnxruntime-gpu)")
    return provider, int(found[1])


def _provider_of(error: Exception) -> str:
    """Return the provider's name where an error is about CUDA itself and not about the model."""
    return "CUDAExecutionProvider" if re.search(r"CUDA|cudnn|cublas", str(error)) else ""


def _no_device(device: str, provider: str, reason: str) -> UsageError:
    return UsageError(
        f"Device {device} cannot be used: {provider} did not start ({_missing_library() or reason.rstrip('.')}).",
        "Install the CUDA libraries and driver that this onnxruntime needs, or use --target ort-cpu.",
    )


def _missing_library() -> str:
    """Return what keeps the CUDA provider's library from being loaded; empty where nothing does."""
    folder = Path(onnxruntime.__file__).parent / "capi"
    for name in ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"):
        if (folder / name).is_file():
            try:
                ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                return str(error).partition(": undefined")[0]
    return ""


def _raw(node: Any) -> RawSpec:
    element = re.sub(r"^tensor\((.*)\)$", r"\1", node.type)
    return node.name, _DTYPES.get(element, element), [d or None if isinstance(d, str) else d for d in node.shape]


@contextmanager
def _quiet(active: bool) -> Iterator[None]:
    """Keep a failing provider from printing; the error that is raised instead says it better."""
    if active:
        onnxruntime.set_default_logger_severity(_FATAL_ONLY)
    try:
        yield
    finally:
        if active:
            onnxruntime.set_default_logger_severity(_ERRORS_ONLY)
