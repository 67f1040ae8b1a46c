"""Times every layer of a compiled OpenVINO model, and says which of the model's own nodes it was made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import openvino

from compress.results import Profile
from compress.runners.profile import WARM_UP, Executed, Kind, profile_of

_COMPUTE = frozenset({"Convolution", "GroupConvolution", "Deconvolution", "GroupDeconvolution", "FullyConnected",
                      "MatMul", "ScaledDotProductAttention", "LSTMCell", "LSTMSequence", "GRUCell", "GRUSequence",
                      "RNNSeq", "RNNCell"})  # fmt: skip
_CONVERSIONS = frozenset({"Reorder", "Convert", "FakeQuantize", "Quantize", "Dequantize"})
_PAIR = ("QuantizeLinear", "DequantizeLinear")
_PRECISIONS = {"f32": "fp32", "f16": "fp16", "bf16": "bf16", "u8": "int8", "i8": "int8", "u4": "int4", "i4": "int4"}


def profile_compiled(
    compiled: openvino.CompiledModel, request: Any, call: Callable[[], None], batch: int, runs: int
) -> Profile:
    """Run a model that was compiled with performance counters.

    Args:
        compiled: The compiled model.
        request: Its infer request, with its inputs set.
        call: Runs the request once.
        batch: Samples an inference.
        runs: Inferences that count.
    """
    times: defaultdict[str, list[float]] = defaultdict(list)
    for number in range(WARM_UP + runs):
        call()
        if number < WARM_UP:
            continue
        for layer in request.profiling_info:
            if layer.status == layer.Status.EXECUTED:
                times[layer.node_name].append(layer.real_time.total_seconds() * 1000)
    executed = [_executed(op) for op in compiled.get_runtime_model().get_ordered_ops()]
    return profile_of(executed, times, batch, runs)


def _executed(op: Any) -> Executed:
    info = op.get_rt_info()

    def text(key: str) -> str:
        return str(info[key].astype(str)) if key in info else ""

    layer = text("layerType")
    names = [n.removesuffix("/WithoutBiases") for n in text("originalLayersNames").split(",") if n]
    # A Q/DQ pair that nothing takes up is compiled like any other arithmetic; the names that it was given tell.
    converts = layer in _CONVERSIONS or (bool(names) and all(n.endswith(_PAIR) for n in names))
    kind: Kind = "compute" if layer in _COMPUTE else "conversion" if converts else "other"
    return Executed(
        op.get_friendly_name(),
        layer,
        kind,
        _PRECISIONS.get(text("runtimePrecision"), text("runtimePrecision")),
        () if kind == "conversion" else tuple(dict.fromkeys(names)),
        tuple(f"{v.get_node().get_friendly_name()}:{v.get_index()}" for v in op.input_values()),
        tuple(f"{op.get_friendly_name()}:{v.get_index()}" for v in op.outputs()),
    )
