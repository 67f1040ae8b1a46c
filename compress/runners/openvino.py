"""Runs OpenVINO and ONNX files in OpenVINO, on the CPU."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import openvino

from compress.artifact import Form, Signature
from compress.data.base import Array
from compress.errors import ModelError, UsageError
from compress.results import Profile
from compress.runners.altstack import signal_stack_kept
from compress.runners.base import Runner
from compress.runners.onnx_file import named_signature, read_signature

RT_SECTION = "compress"
"""Section of an OpenVINO file's own information that our exporter writes: ``signature`` and ``inference_precision``."""

_FLOATS = {"f32": "", "bf16": "BF16", "f16": "FP16"}
"""Precision → the capability that the CPU must have; OpenVINO takes another precision in silence where it lacks it."""

_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "u8": "int8", "i8": "int8"}
_NO_COMPUTE = frozenset(
    {"Const", "Input", "Output", "Reshape", "ShapeOf", "Reorder", "Convert", "Concatenation", "Split", "Transpose"}
    | {"StridedSlice", "Broadcast", "Gather", "Tile", "Pad", "MemoryInput", "MemoryOutput"}
)
"""Layers that move values and compute nothing."""

_Shapes = tuple[tuple[int, ...], ...]


class OpenVinoRunner(Runner):
    """Runs a file with dynamic shapes, or compiled for the bound shapes, in the precision that the artifact carries.

    The precision is always set: left alone OpenVINO runs FP32 files in BF16 on CPUs that have it. It is the artifact's
    ``inference_precision``, else the one that our exporter wrote into the file, else ``f32``.

    ``bind`` compiles for the shapes it is given, as a deployment with a known batch size would: this is up to a quarter
    faster than dynamic shapes for small networks. ``infer`` takes any shape.
    """

    forms: ClassVar[frozenset[Form]] = frozenset({Form.OPENVINO, Form.ONNX})

    def _load(self) -> None:
        if self.options.device != "cpu":
            raise UsageError(f"OpenVINO has no device '{self.options.device}' here.", "Use cpu.")
        self._core = openvino.Core()
        try:
            self._model: openvino.Model | None = self._core.read_model(self.artifact.path)
        except RuntimeError as error:
            raise self._unreadable(error) from error
        self._read = self._read_signature(self._model)
        self._config = {
            "INFERENCE_PRECISION_HINT": self._precision(self._model),
            "INFERENCE_NUM_THREADS": self.options.threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        self._static: dict[_Shapes, openvino.InferRequest] = {}
        self._compiled = self._compile(self._model)
        self._dynamic: openvino.InferRequest | None = self._compiled.create_infer_request()

    def _signature(self) -> Signature:
        return self._read

    def facts(self) -> dict[str, Any]:
        """Return what OpenVINO really uses; ``precisions`` counts the layers by what they compute in."""
        compiled = self._compiled
        return {
            "runtime": "openvino",
            "version": openvino.get_version(),
            "device": "cpu",
            "device_name": self._core.get_property("CPU", "FULL_DEVICE_NAME"),
            "threads": compiled.get_property("INFERENCE_NUM_THREADS"),
            "streams": compiled.get_property("NUM_STREAMS"),
            "inference_precision": compiled.get_property("INFERENCE_PRECISION_HINT").to_string(),
            "timed_as": "compiled for the shapes that are timed",
            **self._executed,
        }

    @functools.cached_property
    def _executed(self) -> dict[str, Any]:
        return count_layers(self._compiled)

    def _infer(self, inputs: dict[str, Array]) -> dict[str, Array]:
        if self._dynamic is None:
            self._compiled = self._compile(self._open)
            self._dynamic = self._compiled.create_infer_request()
        request = self._dynamic
        try:
            request.infer({self._ports[n]: openvino.Tensor(a) for n, a in inputs.items()})
        except RuntimeError as error:
            raise self._failed(error, inputs) from error
        outputs = (request.get_output_tensor(i).data for i in range(len(self._read.outputs)))
        return {spec.name: np.array(o) for spec, o in zip(self._read.outputs, outputs, strict=True)}

    def _bind(self, inputs: dict[str, Array]) -> Callable[[], None]:
        shapes = tuple(tuple(inputs[s.name].shape) for s in self._read.inputs)
        request = self._static.get(shapes) or self._static_request(inputs)
        self._static[shapes] = request
        for name, array in inputs.items():
            request.set_input_tensor(self._ports[name], openvino.Tensor(array))

        def call() -> None:
            try:
                request.infer()
            except RuntimeError as error:
                raise self._failed(error, inputs) from error

        return call

    def _profile(self, inputs: dict[str, Array], runs: int) -> Profile | None:
        from compress.runners.openvino_profile import profile_compiled

        compiled = self._compile(self._reshaped(inputs), {"PERF_COUNT": True})
        request = compiled.create_infer_request()
        for name, array in inputs.items():
            request.set_input_tensor(self._ports[name], openvino.Tensor(array))

        def call() -> None:
            try:
                request.infer()
            except RuntimeError as error:
                raise self._failed(error, inputs) from error

        batch = min((len(a) for a in inputs.values() if a.ndim), default=1)
        return profile_compiled(compiled, request, call, batch, runs)

    def _static_request(self, inputs: dict[str, Array]) -> openvino.InferRequest:
        self._executed  # noqa: B018 - read before the model it is read from goes
        # A deployment holds one compiled model; two would be measured as the memory of one.
        self._dynamic = None
        self._compiled = self._compile(self._reshaped(inputs))
        return self._compiled.create_infer_request()

    def _reshaped(self, inputs: dict[str, Array]) -> openvino.Model:
        model = self._open.clone()
        try:
            model.reshape({self._ports[n]: list(a.shape) for n, a in inputs.items()})
        except RuntimeError as error:
            raise self._failed(error, inputs) from error
        return model

    @property
    def _open(self) -> openvino.Model:
        if self._model is None:
            raise RuntimeError("the runner is closed")
        return self._model

    def _compile(self, model: openvino.Model, more: Mapping[str, Any] | None = None) -> openvino.CompiledModel:
        try:
            with signal_stack_kept():
                compiled = self._core.compile_model(model, "CPU", {**self._config, **(more or {})})
        except RuntimeError as error:
            raise ModelError(f"OpenVINO cannot compile {self.artifact.path.name}: {_sentence(error)}") from error
        asked, used = self._config["INFERENCE_PRECISION_HINT"], compiled.get_property("INFERENCE_PRECISION_HINT")
        if used.to_string() != asked:
            raise UsageError(f"OpenVINO would run {self.artifact.path.name} in {used.to_string()}, not in {asked}.")
        return compiled

    def _precision(self, model: openvino.Model) -> str:
        asked = self.artifact.execution.get("inference_precision") or rt_text(model, "inference_precision") or "f32"
        if asked not in _FLOATS:
            raise UsageError(f"OpenVINO computes in {', '.join(_FLOATS)}, not in '{asked}'.")
        needed = _FLOATS[asked]
        if needed and needed not in self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise UsageError(
                f"{self.artifact.path.name} is to run in {asked}, which this CPU cannot compute in.",
                "OpenVINO would take another precision in silence; use a CPU that has it, or f32.",
            )
        return asked

    def _read_signature(self, model: openvino.Model) -> Signature:
        written = rt_text(model, "signature")
        if self.artifact.form is Form.ONNX:
            found = read_signature(self.artifact.path)
        elif written:
            found = Signature.from_json(json.loads(written))
        else:
            found = signature_of(model)
        self._ports = {spec.name: _position(model.inputs, spec.name) for spec in found.inputs}
        missing = [name for name, port in self._ports.items() if port is None]
        if missing or len(found.outputs) != len(model.outputs):
            raise ModelError(
                f"OpenVINO reads {self.artifact.path.name} without {', '.join(missing) or 'some outputs'}."
            )
        return found

    def _unreadable(self, error: RuntimeError) -> ModelError:
        path = self.artifact.path
        if not path.is_file():
            return ModelError(f"There is no file {path}.")
        gone = [f for f in (path.with_suffix(".bin"),) if self.artifact.form is Form.OPENVINO and not f.is_file()]
        if gone:
            return ModelError(f"{path} needs {gone[0].name} beside it, which isn't there.", "Copy both files together.")
        return ModelError(
            f"{path} is no {self.artifact.form.value} file that OpenVINO can read, or a damaged one "
            f"({self.artifact.size_bytes} bytes).",
            f"It says: {_sentence(error)}",
        )

    def _failed(self, error: RuntimeError, inputs: Mapping[str, Array]) -> ModelError:
        shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in inputs.items())
        return ModelError(f"{self.artifact.path.name} does not run on {shapes}: {_sentence(error)}")

    def _close(self) -> None:
        self._static.clear()
        self._dynamic = self._model = self._compiled = None


def rt_text(model: openvino.Model, key: str) -> str:
    """Return what our exporter wrote into a file under ``key``; empty where there is nothing."""
    path = [RT_SECTION, key]
    return str(model.get_rt_info(path).astype(str)) if model.has_rt_info(path) else ""


def signature_of(model: openvino.Model) -> Signature:
    """Read names, types and shapes. A file knows which axes vary, but no symbols: equal axes get equal ones."""

    def raw(port: Any) -> tuple[str, str, list[int | str | None]]:
        dims = port.get_partial_shape()
        sizes: list[int | str | None] = [
            (None if axis == 0 else f"dim{axis}") if dim.is_dynamic else dim.get_length()
            for axis, dim in enumerate(dims)
        ]
        return port.get_any_name(), np.dtype(port.get_element_type().to_dtype()).name, sizes

    return named_signature([raw(p) for p in model.inputs], [raw(p) for p in model.outputs])


def count_layers(compiled: openvino.CompiledModel) -> dict[str, Any]:
    """Count the layers of a compiled model that compute something, by precision; and all layers, by type."""
    precisions: Counter[str] = Counter()
    layers: Counter[str] = Counter()
    for op in compiled.get_runtime_model().get_ordered_ops():
        info = op.get_rt_info()
        layer = info["layerType"].astype(str) if "layerType" in info else "unknown"
        if layer == "Const":
            continue
        layers[layer] += 1
        precision = info["runtimePrecision"].astype(str) if "runtimePrecision" in info else "unknown"
        if layer not in _NO_COMPUTE and precision in _NAMES:
            precisions[_NAMES[precision]] += 1
    return {"precisions": dict(precisions.most_common()), "operators": dict(layers.most_common())}


def _position(ports: list[Any], name: str) -> int | None:
    return next((i for i, port in enumerate(ports) if name in port.get_names()), None)


def _sentence(error: RuntimeError) -> str:
    """Return the last line of what OpenVINO says that isn't about its own source files."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    text = (said or lines or [type(error).__name__])[-1]
    return text if text.endswith(".") else f"{text}."
