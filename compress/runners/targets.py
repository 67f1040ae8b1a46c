"""What each target can do: the one table of where an artifact may run and what is fast there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from compress.artifact import Form


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How a target wants its INT8 files.

    Attributes:
        activation: Element type of quantized activations.
        symmetric_activation: Zero point fixed (0 for int8, 128 for uint8).
        weight: Element type of quantized weights; always symmetric.
        per_channel: One weight scale an output channel.
        quantize_bias: Whether biases become int32 with their own Q/DQ pair.
        dedicated_pairs: A Q/DQ pair of its own for every consumer, instead of one shared.
        weighted_only: Leave products of two activations (attention) in float.
        float_output: Compute operators that can read INT8 and write float at once. Behind others a Q/DQ pair is needed
            for them to run in INT8 at all.
        ops: Operators worth quantizing there.
    """

    activation: Literal["uint8", "int8"]
    symmetric_activation: bool
    weight: Literal["int8"]
    per_channel: bool
    quantize_bias: bool
    dedicated_pairs: bool
    weighted_only: bool
    float_output: tuple[str, ...]
    ops: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Target:
    """Where an artifact will run.

    Attributes:
        name: As the user says it.
        form: The form of file it executes.
        device: Device its runner uses.
        scheme: Its INT8 scheme.
        module: Python module it needs.
        precisions: Low precision → what asking for it means there, said before any work; others are refused.
        knowledge: What is known of its speed, for the report's explanations.
    """

    name: str
    form: Form
    device: Literal["cpu", "cuda:0"]
    scheme: Scheme
    module: str
    precisions: Mapping[Literal["fp16", "bf16"], str]
    knowledge: str


_CPU_OPS = (
    "Conv",
    "ConvTranspose",
    "Gemm",
    "MatMul",
    "Add",
    "AveragePool",
    "GlobalAveragePool",
    "MaxPool",
    "Concat",
    "Relu",
    "Clip",
    "Resize",
    "Reshape",
    "Flatten",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Slice",
    "Pad",
    "Split",
)

_CPU_SCHEME = Scheme(
    activation="uint8",
    symmetric_activation=False,
    weight="int8",
    per_channel=True,
    quantize_bias=True,
    dedicated_pairs=False,
    weighted_only=True,
    float_output=("MatMul", "Gemm"),
    ops=_CPU_OPS,
)

TARGETS: dict[str, Target] = {
    "ort-cpu": Target(
        name="ort-cpu",
        form=Form.ONNX,
        device="cpu",
        scheme=_CPU_SCHEME,
        module="onnxruntime",
        precisions={
            "fp16": "storage only: half the file; onnxruntime has hardly any FP16 kernels for CPUs and casts back to "
            "FP32, so no speed-up is to be expected",
        },
        knowledge="uint8 activations with int8 per-channel weights reach the VNNI kernels; int8 activations, "
        "onnxruntime's default, take a path that is 2–3× slower.",
    ),
    "openvino": Target(
        name="openvino",
        form=Form.OPENVINO,
        device="cpu",
        scheme=dataclasses.replace(_CPU_SCHEME, float_output=("MatMul", "Gemm", "Conv", "ConvTranspose")),
        module="openvino",
        precisions={
            "bf16": "the file stays FP32 and OpenVINO computes in BF16, on CPUs with AVX512-BF16 or AMX",
            "fp16": "storage only: half the file; OpenVINO computes in FP32 on CPUs",
        },
        knowledge="Runs Q/DQ files faster than onnxruntime does. On CPUs with AVX512-BF16 or AMX it would run FP32 "
        "files in BF16 unless told not to; every artifact carries its precision and the runner sets it.",
    ),
}
"""Every target by name. Adding one is adding an entry here and a runner for its form."""
