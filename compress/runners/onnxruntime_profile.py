"""Times every operator of an ONNX file in onnxruntime, and says which of the file's own nodes it was made of."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from compress.data.base import Array
from compress.results import Profile
from compress.runners.onnx_types import FLOATS, is_int8, is_int8_op, propagate
from compress.runners.profile import WARM_UP, Executed, Kind, profile_of

COMPUTE = re.compile(r"Conv|Gemm|MatMul|Attention|LSTM|GRU|RNN")
"""What the names of operators that multiply matrices contain, those of fused and quantized ones too."""
CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast", "ReorderInput",
                         "ReorderOutput", "MemcpyToHost", "MemcpyFromHost"})  # fmt: skip
_PAIR = frozenset({"QuantizeLinear", "DequantizeLinear"})
_ADDED = re.compile(r"(_nchwc|_token_\d+|/QuickGeluFusion/|/BiasGeluFusion/|/GeluFusion/|_quant)$")
"""What the optimizer adds to names."""


def profile_file(
    path: Path,
    options: onnxruntime.SessionOptions,
    providers: Sequence[Any],
    inputs: Mapping[str, Array],
    runs: int,
) -> Profile:
    """Run a file under onnxruntime's profiler.

    Args:
        path: ONNX file.
        options: A session's options; the profiler is switched on in them.
        providers: As for a session.
        inputs: Arrays by input name.
        runs: Inferences that count.
    """
    with tempfile.TemporaryDirectory(prefix="compress-", ignore_cleanup_errors=True) as folder:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        options.optimized_model_filepath = str(Path(folder) / "graph.onnx")
        # Weights in a file of their own: the graph alone is read back, and 2 GB are no limit.
        for key, value in (("file_name", "weights"), ("min_size_in_bytes", "1024")):
            options.add_session_config_entry(f"session.optimized_model_external_initializers_{key}", value)
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        for _ in range(WARM_UP + runs):
            session.run(None, dict(inputs))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        graph = onnx.load(options.optimized_model_filepath, load_external_data=False).graph
    origins = Origins(onnx.load(path, load_external_data=False).graph)
    times, order = _times(events, runs)
    known = _executed(graph, origins)
    executed = [known.get(name) or Executed(name, op, _kind(op), "", ()) for name, op in order.items()]
    batch = min((len(a) for a in inputs.values() if a.ndim), default=1)
    return profile_of(executed, times, batch, runs)


def _times(events: Sequence[Mapping[str, Any]], runs: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return milliseconds of each run by operator, and the operators' types, in the order of execution."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    order: dict[str, str] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name, op = event["name"].removesuffix("_kernel_time"), str(event["args"].get("op_name", ""))
            if name in order and order[name] != op:
                name = f"{name} ({op})"  # two operators of one name, as fusions leave them
            order.setdefault(name, op)
            found[name].append(event["dur"] / 1000)
    return {name: _by_run(values, WARM_UP + runs)[WARM_UP:] for name, values in found.items()}, order


def _by_run(values: list[float], runs: int) -> list[float]:
    """Add up what one run executes several times, as the body of a loop."""
    each = max(1, len(values) // runs)
    return [sum(values[start : start + each]) for start in range(0, each * runs, each)]


def _executed(graph: onnx.GraphProto, origins: Origins) -> dict[str, Executed]:
    types = propagate(graph)
    names = Counter(n.name for n in graph.node)
    found = {}
    for node in graph.node:
        if names[node.name] > 1:
            continue
        kind = _kind(node.op_type)
        made = types.get(node.output[0], 0)
        precision = "int8" if is_int8_op(node) or is_int8(made) else FLOATS.get(made, "")
        found[node.name] = Executed(
            node.name,
            node.op_type,
            kind,
            precision,
            () if kind == "conversion" else origins.of(node, compute=kind == "compute"),
            tuple(n for n in node.input if n),
            tuple(n for n in node.output if n),
        )
    return found


def _kind(op: str) -> Kind:
    if op in CONVERSIONS:
        return "conversion"
    return "compute" if COMPUTE.search(op) else "other"


class Origins:
    """Finds the nodes of a file that an operator of the optimized graph was made of.

    Fusions keep the weights' names, layout changes keep the node's name with something added, and either keeps the name
    of what it makes unless a change of layout follows; so these are looked at in turn.

    Args:
        graph: The file's own graph.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._nodes = {n.name: n for n in graph.node}
        self._maker = {name: n for n in graph.node for name in n.output}
        self._weights: defaultdict[str, list[str]] = defaultdict(list)
        constants = {i.name: i.name for i in graph.initializer if len(i.dims) > 1}
        for node in graph.node:
            if node.op_type == "DequantizeLinear" and node.input[0] in constants:
                constants[node.output[0]] = constants[node.input[0]]
            elif COMPUTE.search(node.op_type):
                for name in node.input:
                    if name in constants:
                        self._weights[constants[name]].append(node.name)

    def of(self, node: onnx.NodeProto, *, compute: bool) -> tuple[str, ...]:
        """Return the names of the file's nodes; none where they cannot be told."""
        if compute:
            by_weight = {layer: None for name in node.input for layer in self._weights.get(name, ())}
            # A weight that several layers share doesn't tell them apart.
            if len(by_weight) == 1:
                return tuple(by_weight)
        start = self._start(node)
        if start is None:
            return ()
        if not compute or COMPUTE.search(start.op_type):
            return (start.name,)
        return self._upstream(start)

    def _start(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        name, before = node.name, ""
        while name != before:
            if name in self._nodes:
                return self._nodes[name]
            if name in self._maker:
                return self._maker[name]
            name, before = _ADDED.sub("", name), name
        return next((self._maker[o] for o in node.output if o in self._maker), None)

    def _upstream(self, node: onnx.NodeProto) -> tuple[str, ...]:
        """Return the nearest computing node that feeds ``node``."""
        pending, seen = [node], {node.name}
        while pending:
            next_one = pending.pop(0)
            if COMPUTE.search(next_one.op_type):
                return (next_one.name,)
            for name in next_one.input:
                maker = self._maker.get(name)
                if maker is not None and maker.name not in seen and maker.op_type not in ("Constant", *_PAIR):
                    seen.add(maker.name)
                    pending.append(maker)
        return (node.name,)
