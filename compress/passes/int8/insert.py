"""Q/DQ insertion by onnxruntime's own quantizer, with our ranges and our choice of nodes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from compress.runners.targets import Scheme


def prepare(path: Path, work: Path) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return the model ready for quantization: constants folded, tensor types known; and what had to be left out.

    onnxruntime's pre-processing does it; where its symbolic shape inference fails (it raises IndexError on some
    exported graphs, ViT-B/16 among them), it runs again without that part, and the second value says so.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = work / "prepared.onnx"
    notes: tuple[str, ...] = ()
    external = path.stat().st_size > 1 << 30 or any(_external(path))
    side = {"save_as_external_data": True, "all_tensors_to_one_file": True} if external else {}
    with quiet():
        try:
            quant_pre_process(str(path), str(prepared), **side)
        except Exception as error:  # noqa: BLE001 - it fails with whatever its shape rules trip over
            notes = (
                f"onnxruntime's symbolic shape inference failed on this graph ({type(error).__name__}); "
                "went on with ONNX's own shape inference.",
            )
            quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True, **side)
    return onnx.load(prepared), notes


def _external(path: Path) -> Iterator[str]:
    from compress.runners.onnx_file import external_files

    yield from (str(p) for p in external_files(path))


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
    with quiet():
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
    quantizer.model.save_model_to_file(str(output), use_external_data_format=model.ByteSize() > 1 << 30)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep onnxruntime.quantization from writing advice meant for its own users to the root logger."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before)
