"""The float network on its way to INT8: its graph, what was observed of it, and the Q/DQ files made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import onnx

from compress.data.base import Array
from compress.passes.int8.graph import Graph, layers_to_quantize, nodes_to_quantize, read_graph
from compress.passes.int8.insert import insert_qdq
from compress.passes.int8.ranges import Method, choose_range
from compress.passes.observe import Histogram
from compress.passes.onnx_models import copy_of
from compress.runners.targets import Scheme


@dataclasses.dataclass(frozen=True)
class Settings:
    """How Q/DQ pairs are put in, the same for every file of one pass.

    Attributes:
        scheme: The target's scheme.
        reduce_range: 7-bit weights.
        percentile: For percentile ranges, in percent.
        kept: Nodes that the user keeps in float.
    """

    scheme: Scheme
    reduce_range: bool
    percentile: float
    kept: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Network:
    """A float model ready for quantization, with what was observed of it and what was learnt. Never changed.

    Attributes:
        model: Constants folded, BatchNorm fused, every node named, types known.
        settings: How it is quantized.
        histograms: What each activation looked like.
        method: How ranges are chosen from that.
        rounding: Learnt roundings: name of an int8 weight in the Q/DQ file → its values.
    """

    model: onnx.ModelProto
    settings: Settings
    histograms: Mapping[str, Histogram]
    method: Method
    rounding: Mapping[str, Array] = dataclasses.field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        """The model's graph, indexed."""
        return read_graph(self.model)

    @cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Activation → (low, high)."""
        symmetric, percentile = self.settings.scheme.symmetric_activation, self.settings.percentile
        return {
            name: choose_range(histogram, self.method, symmetric=symmetric, percentile=percentile)
            for name, histogram in self.histograms.items()
        }

    @property
    def layers(self) -> list[str]:
        """Names of the compute nodes that may be quantized, in the graph's order."""
        return quantizable(self.graph, self.settings)

    def write(self, output: Path, left: Collection[str] = ()) -> list[str]:
        """Write the Q/DQ file and return the names of the quantized nodes.

        Args:
            output: File to write.
            left: Names of nodes that stay in float, besides those the user keeps.
        """
        nodes = chosen_nodes(self.graph, self.settings, left)
        copy = copy_of(self.model)  # the quantizer changes what it is given
        settings = self.settings
        insert_qdq(copy, self.ranges, nodes, settings.scheme, reduce_range=settings.reduce_range, output=output)
        if self.rounding:
            from compress.passes.int8.adaround import write_rounding

            write_rounding(output, self.rounding, output)
        return nodes


def quantizable(graph: Graph, settings: Settings) -> list[str]:
    """Return the names of the compute nodes that may be quantized."""
    scheme = settings.scheme
    return layers_to_quantize(graph, scheme.ops, weighted_only=scheme.weighted_only, left=settings.kept)


def chosen_nodes(graph: Graph, settings: Settings, left: Collection[str] = ()) -> list[str]:
    """Return the names of all nodes to quantize: layers, and the carriers between them."""
    scheme = settings.scheme
    return nodes_to_quantize(
        graph,
        scheme.ops,
        weighted_only=scheme.weighted_only,
        float_output=scheme.float_output,
        left=settings.kept | set(left),
    )


def tensors(graph: Graph, chosen: Sequence[str]) -> list[str]:
    """Return the activations that the chosen nodes read and write."""
    wanted = set(chosen)
    names = (
        name for node in graph.nodes if node.name in wanted for name in (*graph.activations(node), *node.output) if name
    )
    return list(dict.fromkeys(names))
