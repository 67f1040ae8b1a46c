"""Which operators onnxruntime really executes, and in which precision: read from the graph its optimizer leaves.

The optimizer runs in a process of its own. A second session in this one would keep its memory, and what is measured as
the model's would be that of two.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from compress.runners.onnx_types import is_int8, is_int8_op, propagate

_BOOT = "import sys; sys.path[:] = sys.argv[3:]; from compress.runners.onnxruntime_graph import main; main()"
_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast"})
_NAMES = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16",
          onnx.TensorProto.DOUBLE: "float64"}  # fmt: skip


def executed_ops(path: Path, providers: Sequence[str]) -> dict[str, Any]:
    """Count the operators that a session of ``path`` executes.

    Returns:
        ``precisions``: operators by the precision they compute in (``int8``, ``float32``, …), without shape arithmetic;
        ``conversions``: (dynamic) QuantizeLinear, DequantizeLinear and Cast operators that the optimizer left;
        ``operators``: all of them, by type. Where the graph could not be read ``precisions`` is empty and
        ``precisions_reason`` says why.
    """
    command = [sys.executable, "-c", _BOOT, str(path), ",".join(providers), *sys.path]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode != 0:
        last = next(
            (line for line in reversed(done.stderr.splitlines()) if line.strip()), f"exit code {done.returncode}"
        )
        return {"precisions": {}, "precisions_reason": f"the optimized graph could not be read: {last}"}
    counts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return counts


def count_ops(graph: onnx.GraphProto) -> dict[str, dict[str, int]]:
    """Count the operators of an optimized graph, as :func:`executed_ops` returns them."""
    types = propagate(graph)
    precisions: Counter[str] = Counter()
    for node in graph.node:
        if node.op_type in _CONVERSIONS or node.op_type == "Constant":
            continue
        made = types.get(node.output[0], 0)
        if is_int8_op(node) or is_int8(made):
            precisions["int8"] += 1
        elif made in _NAMES:
            precisions[_NAMES[made]] += 1
    operators = Counter(n.op_type for n in graph.node)
    return {
        "precisions": dict(precisions.most_common()),
        "conversions": {k: operators[k] for k in sorted(_CONVERSIONS) if operators[k]},
        "operators": dict(operators.most_common()),
    }


def main() -> None:
    """Optimize the file that the command line names and print its counts as one line of JSON."""
    import onnxruntime

    path, providers = sys.argv[1], sys.argv[2].split(",")
    with tempfile.TemporaryDirectory(prefix="compress-", ignore_cleanup_errors=True) as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(Path(folder) / "graph.onnx")
        options.add_session_config_entry("session.disable_prepacking", "1")
        # Weights in a file of their own: the graph alone is read back, and 2 GB are no limit.
        for key, value in (("file_name", "weights"), ("min_size_in_bytes", "1024")):
            options.add_session_config_entry(f"session.optimized_model_external_initializers_{key}", value)
        onnxruntime.InferenceSession(path, options, providers=providers)
        counts = count_ops(onnx.load(options.optimized_model_filepath, load_external_data=False).graph)
    sys.stdout.write(json.dumps(counts) + "\n")
