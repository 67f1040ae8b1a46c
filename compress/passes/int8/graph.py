"""Reading an ONNX graph for quantization: who feeds whom, and which nodes are worth INT8."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx

COMPUTE = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators whose arithmetic INT8 makes faster. All others are carriers: quantized only so that values stay INT8."""

ACTIVATIONS = frozenset({"Relu", "Clip"})
"""Operators that runtimes fuse into the one before, where a range that begins at zero says the same."""


@dataclasses.dataclass(frozen=True)
class Graph:
    """The top-level graph of a model, indexed.

    Attributes:
        nodes: Nodes in topological order; each has a unique name.
        producer: Tensor → the node that makes it.
        consumers: Tensor → the nodes that read it.
        constants: Names of initializers and of tensors computed from them alone by Constant nodes.
        outputs: Names of the graph's outputs.
    """

    nodes: tuple[onnx.NodeProto, ...]
    producer: Mapping[str, onnx.NodeProto]
    consumers: Mapping[str, Sequence[onnx.NodeProto]]
    constants: frozenset[str]
    outputs: frozenset[str]

    def activations(self, node: onnx.NodeProto) -> list[str]:
        """Return the node's inputs that are no constants."""
        return [name for name in node.input if name and name not in self.constants]

    def readers(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return the nodes that read the node's outputs."""
        return [reader for name in node.output for reader in self.consumers.get(name, ())]


def read_graph(model: onnx.ModelProto) -> Graph:
    """Index the top-level graph of ``model``. Nodes without a name must have been named before."""
    producer: dict[str, onnx.NodeProto] = {}
    consumers: defaultdict[str, list[onnx.NodeProto]] = defaultdict(list)
    constants = {i.name for i in model.graph.initializer}
    for node in model.graph.node:
        for name in node.output:
            producer[name] = node
        for name in node.input:
            consumers[name].append(node)
        if node.op_type == "Constant":
            constants.update(node.output)
    return Graph(
        nodes=tuple(model.graph.node),
        producer=producer,
        consumers=dict(consumers),
        constants=frozenset(constants),
        outputs=frozenset(o.name for o in model.graph.output),
    )


def name_nodes(model: onnx.ModelProto) -> None:
    """Give every node a unique name, in place; exporters leave some without, and quantizers go by name."""
    taken = {n.name for n in model.graph.node if n.name}
    seen: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        name = f"{node.op_type}_{index}"
        while name in taken:
            name += "_"
        node.name = name
        taken.add(name)
        seen.add(name)


def layers_to_quantize(
    graph: Graph, ops: Iterable[str], *, weighted_only: bool, left: Collection[str] = ()
) -> list[str]:
    """Return the names of the compute nodes of ``ops``, in the graph's order; not those in ``left``.

    With ``weighted_only`` products of two activations, as in attention, are left in float.
    """
    allowed = frozenset(ops) & COMPUTE
    return [
        n.name
        for n in graph.nodes
        if n.op_type in allowed and n.name not in left and not (weighted_only and len(graph.activations(n)) > 1)
    ]


def nodes_to_quantize(
    graph: Graph,
    ops: Iterable[str],
    *,
    weighted_only: bool,
    float_output: Collection[str] = (),
    left: Collection[str] = (),
) -> list[str]:
    """Choose nodes: the layers of :func:`layers_to_quantize`, and the carriers that keep values INT8 between them.

    A carrier (Add, MaxPool, Reshape, …) pays only on a path between quantized nodes: where it feeds none, its Q/DQ pair
    is pure cost. So a residual Add in a convolutional network is taken, and one before a LayerNormalization isn't. An
    activation right behind a compute node goes with it; but where nothing quantized reads it and the compute node can
    write float, it stays, since the pair that would say what it says is not put there. Nodes in ``left`` stay in float.
    """
    allowed = frozenset(ops)
    compute = set(layers_to_quantize(graph, allowed, weighted_only=weighted_only, left=left))
    fused = {
        reader.name: n.op_type
        for n in graph.nodes
        if n.name in compute
        for reader in graph.readers(n)
        if reader.op_type in allowed & ACTIVATIONS and reader.name not in left and len(graph.readers(n)) == 1
    }
    chosen = compute | {n.name for n in graph.nodes if n.op_type in allowed - COMPUTE and n.name not in left}
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            if node.name not in chosen or node.name in compute:
                continue
            used = any(r.name in chosen for r in graph.readers(node))
            if node.name in fused:
                keep = used or fused[node.name] not in float_output
            else:
                feeders = [graph.producer.get(name) for name in graph.activations(node)]
                keep = used and any(f is not None and f.name in chosen for f in feeders)
            if not keep:
                chosen.discard(node.name)
                changed = True
    return [n.name for n in graph.nodes if n.name in chosen]
