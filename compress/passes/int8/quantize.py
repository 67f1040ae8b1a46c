"""The static INT8 pass: observe, choose ranges and corrections, leave in float what doesn't pay, insert Q/DQ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import onnx
from pydantic import Field

from compress.artifact import Artifact, Form
from compress.data.base import Dataset
from compress.errors import StageError, UsageError
from compress.passes.int8.correct import Name, Workbench, choose_method, correct_float, correct_rounding
from compress.passes.int8.cpu import needs_reduced_range
from compress.passes.int8.graph import name_nodes, read_graph
from compress.passes.int8.heldout import HeldOut, Split, decibels
from compress.passes.int8.insert import prepare
from compress.passes.int8.network import Network, Settings, quantizable
from compress.passes.int8.pays import leave_slow
from compress.passes.int8.ranges import Method
from compress.passes.int8.search import search_layers
from compress.passes.int8.sensitivity import samples_for, sensitivities
from compress.passes.onnx_models import copy_of, save_model
from compress.results import Layer, Search, StageDetails
from compress.runners.onnx_file import external_files, quantized_ops, read_signature
from compress.stage import Context, Drop, Pass, Produced

FOR_ACCURACY = "put back into float to keep the drop within the limit"


class Int8(Pass):
    """Static INT8 quantization in Q/DQ form, by the target's scheme.

    Weights are symmetric int8, one scale an output channel; activations as the target's table says. Ranges come from
    one streaming pass over the calibration data. A fifth of that data is held out: ranges and corrections are judged by
    the error of the outputs there, and kept only where it falls. Layers that INT8 slows down on the target are left in
    float, and, with ``max_drop``, the fewest layers that bring the drop within it.

    Attributes:
        calibration: How ranges are chosen; ``auto``: the method with the least error on held-out samples.
        percentile: For ``percentile``, in percent.
        corrections: Corrections to try, in this order.
        keep_float: Names of nodes, or whole op types, that stay in float.
        max_drop: Limit of the drop, in points; None: no search. A run's own ``max_drop`` is put in here.
        sensitivity: Whether each layer's share of the error is measured and reported; a search needs it.
        measure: Whether layers that INT8 slows down are looked for on the target.
        reduce_range: 7-bit weights; None: where this CPU lacks VNNI.
        batch: Samples a calibration batch.
        memory_mb: Bound on the activations held at once.
    """

    kind: ClassVar[str] = "int8"
    consumes: ClassVar[Form] = Form.ONNX
    produces: ClassVar[Form] = Form.ONNX

    calibration: Literal["auto", "minmax", "percentile", "entropy", "mse"] = "auto"
    percentile: float = Field(default=99.99, gt=50, le=100)
    corrections: tuple[Name, ...] = ("smoothquant", "equalization", "adaround", "bias")
    keep_float: tuple[str, ...] = ()
    max_drop: float | None = Field(default=None, ge=0)
    sensitivity: bool = True
    measure: bool = True
    reduce_range: bool | None = None
    batch: int = Field(default=16, ge=1)
    memory_mb: float = Field(default=512, gt=0)

    def _apply(self, artifact: Artifact, context: Context) -> Produced:
        data = context.calibration
        if data is None:
            raise UsageError("int8 needs calibration data.", "Give --calibration, --train or --data.")
        scratch = context.work / "scratch"
        scratch.mkdir()
        bench, network = self._start(artifact, context, data, scratch)
        plain = scratch / "plain.onnx"
        save_model(copy_of(network.model), plain)
        if self.calibration == "auto" and bench.held is not None:
            network = choose_method(bench, network)
        if bench.held is not None:
            network = correct_float(bench, network, self.corrections)
        notes: list[str] = []
        left = self._slow(plain, network, bench, context, notes)
        if bench.held is not None and self.corrections:
            network = correct_rounding(bench, network, self.corrections, frozenset(left))
        noise = self._sensitivities(network, bench)
        search = self._search(network, bench, context, noise, left, notes)
        output = context.work / "model.onnx"
        network.write(output, left)
        self._check(output, artifact)
        _record(output, reduced=network.settings.reduce_range)
        notes = [self._summary(network, output, data), *_corrected(bench), *notes]
        if search is not None:
            notes.append(search.explanation)
        details = StageDetails(
            corrections=bench.tried,
            layers=_layers(network, noise, left),
            sensitivity_samples=samples_for(network) if noise else 0,
            search=search,
        )
        return Produced(
            output,
            read_signature(output),
            side_files=tuple(external_files(output)),
            notes=tuple(notes),
            details=details.model_dump(mode="json"),
        )

    def _start(self, artifact: Artifact, context: Context, data: Dataset, scratch: Path) -> tuple[Workbench, Network]:
        model = prepare(artifact.path, scratch, context.threads)
        name_nodes(model)
        graph = read_graph(model)
        scheme = context.target.scheme
        settings = Settings(
            scheme=scheme,
            reduce_range=needs_reduced_range() if self.reduce_range is None else self.reduce_range,
            percentile=self.percentile,
            kept=frozenset(n.name for n in graph.nodes if n.name in self.keep_float or n.op_type in self.keep_float),
        )
        if not quantizable(graph, settings):
            raise StageError(
                f"int8 found no operator to quantize in {artifact.path.name} (looked for {', '.join(scheme.ops[:4])})."
            )
        split = Split(data, artifact.signature, self.batch)
        bench = Workbench(
            settings=settings,
            split=split,
            held=HeldOut(model, split, context.threads, scratch) if split.held_out else None,
            work=scratch,
            threads=context.threads,
            seed=context.seed,
            device=context.target.device,
            memory_mb=self.memory_mb,
            progress=context.progress,
        )
        method: Method = "mse" if self.calibration == "auto" else self.calibration
        what = f"calibrating on {len(data)} samples"
        return bench, bench.observed(model, method, what, count=self.calibration != "minmax")

    def _slow(
        self, plain: Path, network: Network, bench: Workbench, context: Context, notes: list[str]
    ) -> dict[str, str]:
        """Return the layers that INT8 slows down on the target, with the reason."""
        if not self.measure or context.trials is None:
            return {}
        paying = leave_slow(network.layers, plain, network.write, context.trials, bench.work, context.progress)
        notes.append(paying.note)
        return dict(paying.left)

    def _sensitivities(self, network: Network, bench: Workbench) -> dict[str, float]:
        if bench.held is None or not (self.sensitivity or self.max_drop is not None):
            return {}
        with bench.progress.task("int8: sensitivity of each layer", len(network.layers)) as advance:
            return sensitivities(network, bench.held, samples_for(network), advance)

    def _search(
        self,
        network: Network,
        bench: Workbench,
        context: Context,
        noise: Mapping[str, float],
        left: dict[str, str],
        notes: list[str],
    ) -> Search | None:
        """Put into ``left`` the layers that the limit of the drop needs in float."""
        if self.max_drop is None:
            return None
        trials = context.trials
        if trials is None or not noise:
            notes.append("No layers were searched for to keep max_drop: too few samples to judge by.")
            return None

        def measure(more: tuple[str, ...]) -> Drop:
            network.write(bench.draft, {*left, *more})
            return trials.drop(bench.draft)

        order = sorted((n for n in network.layers if n not in left), key=lambda n: -noise[n])
        bench.progress.line(f"int8: searching for the layers to leave in float for a drop of {self.max_drop:g} at most")
        found = search_layers(order, self.max_drop, lambda head: measure(tuple(head)))
        left |= dict.fromkeys(found.left, FOR_ACCURACY)
        return found.search

    def _check(self, output: Path, artifact: Artifact) -> None:
        if not quantized_ops(output):
            raise StageError(
                f"int8 changed nothing in {artifact.path.name}: no operator has float32 weights.",
                "Convert the model to float32 first.",
            )

    def _summary(self, network: Network, output: Path, data: Dataset) -> str:
        counts = ", ".join(f"{number} {op}" for op, number in quantized_ops(output).items())
        scheme, reduced = network.settings.scheme, network.settings.reduce_range
        return (
            f"{counts} quantized: {scheme.activation} activations "
            f"({'symmetric' if scheme.symmetric_activation else 'asymmetric'}), int8 "
            f"{'per-channel' if scheme.per_channel else 'per-tensor'} weights{' of 7 bits' if reduced else ''}, "
            f"{network.method} ranges from {len(data)} samples of {data.name}."
        )


def _corrected(bench: Workbench) -> list[str]:
    """Return a sentence on the corrections; nothing where none was tried."""
    kept = [c for c in bench.tried if c.kept and not c.name.endswith(" ranges")]
    if bench.held is None:
        return ["Too few calibration samples to hold some out, so no correction was tried."]
    names = ", ".join(f"{c.name} ({c.error_before:.2g} → {c.error_after:.2g})" for c in kept)
    what = f"error on {bench.held.samples} held-out samples"
    return [f"Kept, since the {what} fell: {names}."] if kept else []


def _layers(network: Network, noise: Mapping[str, float], left: Mapping[str, str]) -> list[Layer]:
    wanted = set(network.layers) | network.settings.kept
    reasons = {**dict.fromkeys(network.settings.kept, "kept in float by keep_float"), **left}
    return [
        Layer(
            name=node.name,
            op=node.op_type,
            precision="fp32" if node.name in reasons else "int8",
            sqnr_db=decibels(noise[node.name]) if node.name in noise else None,
            reason=reasons.get(node.name, ""),
        )
        for node in network.graph.nodes
        if node.name in wanted
    ]


def _record(path: Path, *, reduced: bool) -> None:
    """Write into the file's metadata which weights it has, so that a reader on another CPU can tell."""
    model = onnx.load(path, load_external_data=False)
    onnx.helper.set_model_props(
        model,
        {**{p.key: p.value for p in model.metadata_props}, "compress.weight_bits": "7" if reduced else "8"},
    )
    onnx.save(model, path)
