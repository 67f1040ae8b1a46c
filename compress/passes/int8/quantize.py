"""The static INT8 pass: observe, choose ranges and nodes, insert Q/DQ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import onnx
from pydantic import Field

from compress.artifact import Artifact, Form
from compress.data.base import Array
from compress.errors import StageError, UsageError
from compress.passes.feeds import feeds
from compress.passes.int8.cpu import needs_reduced_range
from compress.passes.int8.graph import Graph, name_nodes, nodes_to_quantize, read_graph
from compress.passes.int8.insert import insert_qdq, prepare
from compress.passes.int8.ranges import Method, choose_range
from compress.passes.observe import observe
from compress.runners.batching import fixed_batch
from compress.runners.onnx_file import external_files, quantized_ops, read_signature
from compress.stage import Context, Pass, Produced


class Int8(Pass):
    """Static INT8 quantization in Q/DQ form, by the target's scheme.

    Weights are symmetric int8, one scale an output channel; activations as the target's table says. Ranges come from
    one streaming pass over the calibration data.

    Attributes:
        calibration: How ranges are chosen.
        percentile: For ``percentile``, in percent.
        keep_float: Names of nodes, or whole op types, that stay in float.
        reduce_range: 7-bit weights; None: where this CPU lacks VNNI.
        batch: Samples a calibration batch.
        memory_mb: Bound on the activations held at once.
    """

    kind: ClassVar[str] = "int8"
    consumes: ClassVar[Form] = Form.ONNX
    produces: ClassVar[Form] = Form.ONNX

    calibration: Method = "mse"
    percentile: float = Field(default=99.99, gt=50, le=100)
    keep_float: tuple[str, ...] = ()
    reduce_range: bool | None = None
    batch: int = Field(default=16, ge=1)
    memory_mb: float = Field(default=512, gt=0)

    def _apply(self, artifact: Artifact, context: Context) -> Produced:
        data = context.calibration
        if data is None:
            raise UsageError("int8 needs calibration data.", "Give --calibration, --train or --data.")
        scheme = context.target.scheme
        scratch = context.work / "scratch"
        scratch.mkdir()
        model = prepare(artifact.path, scratch, context.threads)
        name_nodes(model)
        graph = read_graph(model)
        kept = {n.name for n in graph.nodes if n.name in self.keep_float or n.op_type in self.keep_float}
        wanted = nodes_to_quantize(graph, scheme.ops, weighted_only=scheme.weighted_only)
        nodes = [n for n in wanted if n not in kept]
        if not nodes:
            raise StageError(
                f"int8 found no operator to quantize in {artifact.path.name} (looked for {', '.join(scheme.ops[:4])})."
            )

        def batches() -> Iterator[dict[str, Array]]:
            return feeds(data, artifact.signature, self.batch)

        total = math.ceil(len(data) / (fixed_batch(artifact.signature) or self.batch))
        with context.progress.task(f"int8: calibrating on {len(data)} samples", total) as advance:
            histograms = observe(
                model,
                _tensors(graph, nodes),
                batches,
                work=scratch,
                threads=context.threads,
                advance=advance,
                count=self.calibration != "minmax",
                memory_mb=self.memory_mb,
            )
        ranges = {
            name: choose_range(h, self.calibration, symmetric=scheme.symmetric_activation, percentile=self.percentile)
            for name, h in histograms.items()
        }
        reduced = needs_reduced_range() if self.reduce_range is None else self.reduce_range
        output = context.work / "model.onnx"
        insert_qdq(model, ranges, nodes, scheme, reduce_range=reduced, output=output)
        quantized = quantized_ops(output)
        if not quantized:
            raise StageError(
                f"int8 changed nothing in {artifact.path.name}: no operator has float32 weights.",
                "Convert the model to float32 first.",
            )
        _record(output, reduced=reduced)
        counts = ", ".join(f"{number} {op}" for op, number in quantized.items())
        notes = (
            f"{counts} quantized: {scheme.activation} activations "
            f"({'symmetric' if scheme.symmetric_activation else 'asymmetric'}), int8 "
            f"{'per-channel' if scheme.per_channel else 'per-tensor'} weights{' of 7 bits' if reduced else ''}, "
            f"{self.calibration} ranges from {len(data)} samples of {data.name}.",
        )
        return Produced(output, read_signature(output), side_files=tuple(external_files(output)), notes=notes)


def _tensors(graph: Graph, nodes: list[str]) -> list[str]:
    chosen = set(nodes)
    names = (
        name for node in graph.nodes if node.name in chosen for name in (*graph.activations(node), *node.output) if name
    )
    return list(dict.fromkeys(names))


def _record(path: Path, *, reduced: bool) -> None:
    """Write into the file's metadata which weights it has, so that a reader on another CPU can tell."""
    model = onnx.load(path, load_external_data=False)
    onnx.helper.set_model_props(
        model,
        {**{p.key: p.value for p in model.metadata_props}, "compress.weight_bits": "7" if reduced else "8"},
    )
    onnx.save(model, path)
