"""Q/DQ insertion by onnxruntime's own quantizer, with our ranges and our choice of nodes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from compress.errors import StageError
from compress.passes.int8.trim import trim_pairs
from compress.passes.onnx_models import LARGE, opset_of
from compress.runners.onnx_file import external_files
from compress.runners.targets import Scheme

PER_CHANNEL_OPSET = 13
"""The opset that gave DequantizeLinear its axis."""


def prepare(path: Path, work: Path, threads: int) -> onnx.ModelProto:
    """Return the model ready for quantization: constants folded, BatchNorm fused, tensor types known.

    onnxruntime's basic optimizations and ONNX's shape inference, as onnxruntime's own pre-processing runs them, but in
    a folder of ours (it fails where its temporary folder cannot be removed) and without its symbolic shape inference:
    that raises IndexError on some exported graphs, and all that quantization needs of it are the tensors' types.

    Args:
        path: The float model.
        work: A folder for intermediate files.
        threads: Threads for the runtime.
    """
    import onnxruntime
    from onnxruntime.quantization.quant_utils import add_infer_metadata

    from compress.runners.onnxruntime import session_options

    options = session_options(threads)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(work / "optimized.onnx")
    if is_large(path):
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimized.data")
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    onnx.shape_inference.infer_shapes_path(work / "optimized.onnx", work / "prepared.onnx")
    prepared = onnx.load(work / "prepared.onnx")
    opset = opset_of(prepared)
    if opset < PER_CHANNEL_OPSET:
        raise StageError(
            f"int8: {path.name} has opset {opset}; weights with a scale per channel need {PER_CHANNEL_OPSET} or later.",
            "Export the model again, or convert it with onnx.version_converter.",
        )
    add_infer_metadata(prepared)  # else the quantizer infers once more, through a temporary folder of its own
    return prepared


def is_large(path: Path) -> bool:
    """Whether a model's weights belong into a side file: they lie in one, or it nears protobuf's limit of 2 GB."""
    return path.stat().st_size > LARGE or bool(external_files(path))


def insert_qdq(
    model: onnx.ModelProto,
    ranges: Mapping[str, tuple[float, float]],
    nodes: Sequence[str],
    scheme: Scheme,
    *,
    reduce_range: bool,
    output: Path,
) -> None:
    """Write ``model`` with Q/DQ pairs around ``nodes`` to ``output``.

    Args:
        model: The prepared float model; changed in place by the quantizer, so pass one that isn't needed again.
        ranges: Activation → (low, high).
        nodes: Names of the nodes to quantize.
        scheme: The target's scheme.
        reduce_range: 7-bit weights, for CPUs without VNNI.
        output: File to write.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorData, TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    data = {
        name: TensorData(lowest=np.array(low, np.float32), highest=np.array(high, np.float32))
        for name, (low, high) in ranges.items()
    }
    chosen = set(nodes)
    ops = sorted({n.op_type for n in model.graph.node if n.name in chosen})
    with _quiet():
        quantizer = QDQQuantizer(
            model,
            scheme.per_channel,
            reduce_range,
            QuantType.QInt8,
            QuantType.QUInt8 if scheme.activation == "uint8" else QuantType.QInt8,
            TensorsData(CalibrationMethod.MinMax, data),
            list(nodes),
            [],
            ops,
            {
                "ActivationSymmetric": scheme.symmetric_activation,
                "WeightSymmetric": True,
                "DedicatedQDQPair": scheme.dedicated_pairs,
                "QuantizeBias": scheme.quantize_bias,
                "ForceQuantizeNoInputCheck": False,
            },
        )
        quantizer.quantize_model()
    trim_pairs(quantizer.model.model, chosen, scheme.float_output)
    quantizer.model.save_model_to_file(str(output), use_external_data_format=model.ByteSize() > LARGE)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep onnxruntime's quantizer from writing advice meant for its own users to the root logger."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
