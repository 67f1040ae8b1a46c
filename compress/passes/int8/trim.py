"""Removing Q/DQ pairs that no quantized operator reads: they cost accuracy and time, and save nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import onnx

from compress.passes.int8.graph import ACTIVATIONS, COMPUTE


def trim_pairs(model: onnx.ModelProto, quantized: Collection[str], float_output: Collection[str]) -> int:
    """Take out, in place, every pair whose values only go to operators that aren't quantized, or to the graph's output.

    onnxruntime's quantizer puts a pair behind each node it quantizes, whoever reads it. Behind a MatMul that feeds a
    float Add or LayerNormalization this rounds for nothing, and keeps the runtime from fusing what follows.

    Args:
        model: A model with Q/DQ pairs.
        quantized: Names of the quantized nodes.
        float_output: Compute operators that need no pair behind them to run in INT8.

    Returns:
        The number of pairs taken out.
    """
    graph = model.graph
    made_by = {name: node for node in graph.node for name in node.output}
    readers: defaultdict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    outputs = {o.name for o in graph.output}
    gone: set[int] = set()
    pairs = 0
    for quantize in [n for n in graph.node if n.op_type == "QuantizeLinear"]:
        value = quantize.input[0]
        halves = readers[quantize.output[0]]
        users = [r for half in halves for r in readers[half.output[0]]]
        if value not in made_by or any(h.op_type != "DequantizeLinear" for h in halves):
            continue
        if any(u.name in quantized for u in users) or _needed(made_by[value], made_by, quantized, float_output):
            continue
        for half in halves:
            old = half.output[0]
            if old in outputs:
                _rename(made_by[value], readers[value], value, old)
                value = old
            for user in readers[old]:
                user.input[:] = [value if name == old else name for name in user.input]
        gone |= {id(quantize), *map(id, halves)}
        pairs += 1
    kept = [n for n in graph.node if id(n) not in gone]
    del graph.node[:]
    graph.node.extend(kept)
    _drop_unused(graph)
    return pairs


def _needed(
    maker: onnx.NodeProto,
    made_by: Mapping[str, onnx.NodeProto],
    quantized: Collection[str],
    float_output: Collection[str],
) -> bool:
    """Whether the node that makes a value, or the one its activation is fused into, runs in INT8 only with a pair."""
    if maker.op_type in ACTIVATIONS and maker.input[0] in made_by:
        maker = made_by[maker.input[0]]
    return maker.name in quantized and maker.op_type in COMPUTE and maker.op_type not in float_output


def _rename(maker: onnx.NodeProto, readers: list[onnx.NodeProto], old: str, new: str) -> None:
    maker.output[:] = [new if name == old else name for name in maker.output]
    for reader in readers:
        reader.input[:] = [new if name == old else name for name in reader.input]


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Drop scales and zero points that were only read by what is gone."""
    used = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}
    kept = [i for i in graph.initializer if i.name in used]
    if len(kept) < len(graph.initializer) and not any(a.HasField("g") for n in graph.node for a in n.attribute):
        del graph.initializer[:]
        graph.initializer.extend(kept)
