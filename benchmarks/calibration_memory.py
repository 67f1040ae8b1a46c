"""Measure the peak memory of INT8 calibration with entropy ranges against the number of samples.

A small U-Net at 256×256 (an encoder-decoder with skip connections: its activations are large beside its weights) is
quantized with 50, 200 and 400 samples. Rows: our whole INT8 pass with its default corrections, and onnxruntime's own
entropy calibrator on the same file and samples, one a call. Each runs in a process of its own, whose resident memory is
watched; one that grows beyond `--limit-gb` or takes longer than `--limit-s` is ended, and its row says so. Samples are
made one batch at a time, so that none of the memory is theirs.

    python benchmarks/calibration_memory.py [--limit-gb GB] [--limit-s SECONDS] [--json FILE] [--quick]

Linux only. Exits 1 where one of ours is missing, or
- ours takes 2 GB or more at 200 samples, or
- the peak at 400 samples is more than 5 % above that at 50.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from peers import finish, machine, parser_for, tell

SIDE = 256
COUNTS = (50, 200, 400)
OURS, THEIRS = "ours", "onnxruntime"
MOST_GB, GROWTH = 2.0, 1.05
"""What ours may take at 200 samples; the peak at 400 samples over that at 50."""

LOADER = """
import numpy as np

def samples():
    for seed in range({count}):
        yield {{"x": np.random.default_rng(seed).standard_normal((1, 1, {side}, {side})).astype(np.float32)}}
"""
"""A user's own loader. Smoothed noise or pictures would take as much."""


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, help="taken and not used: random images take as much memory")
    parser.add_argument("--limit-gb", type=float, default=8.0, help="resident memory at which a process is ended (8)")
    parser.add_argument("--limit-s", type=float, default=1800.0, help="seconds after which a process is ended (1800)")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    if options.worker:
        tool, model, count, work = options.worker
        return _WORKERS[tool](Path(model), int(count), Path(work))
    counts = (10, 20) if options.quick else COUNTS
    rows = []
    with tempfile.TemporaryDirectory(prefix="compress-bench-") as folder:
        model = unet(Path(folder) / "unet.onnx")
        for tool in (OURS, THEIRS):
            for count in counts:
                tell(f"{tool}, {count} samples")
                work = Path(folder) / f"{tool}-{count}"
                work.mkdir()
                command = [sys.executable, __file__, "--worker", tool, str(model), str(count), str(work)]
                rows.append({"row": tool, "samples": count, **watch(command, options.limit_gb, options.limit_s)})
    show(rows)
    return finish(rows, judge(rows, counts), options.json, limit_gb=options.limit_gb, limit_s=options.limit_s)


def unet(path: Path) -> Path:
    """Write a U-Net of three levels, 1 to 1 channels, random seeded weights."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes: list[Any] = []
    weights = [numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "twice")]

    def block(source: str, ins: int, outs: int, name: str) -> str:
        for step, (i, o) in enumerate(((ins, outs), (outs, outs))):
            kernel = random.standard_normal((o, i, 3, 3)) * np.sqrt(2 / (9 * i))
            weights.append(numpy_helper.from_array(kernel.astype(np.float32), f"{name}{step}.w"))
            nodes.append(helper.make_node("Conv", [source, f"{name}{step}.w"], [f"{name}{step}.c"], pads=[1, 1, 1, 1]))
            nodes.append(helper.make_node("Relu", [f"{name}{step}.c"], [f"{name}{step}"]))
            source = f"{name}{step}"
        return source

    def up(source: str, skip: str, name: str) -> str:
        nodes.append(helper.make_node("Resize", [source, "", "twice"], [f"{name}.up"], mode="nearest"))
        nodes.append(helper.make_node("Concat", [skip, f"{name}.up"], [f"{name}.cat"], axis=1))
        return f"{name}.cat"

    def down(source: str) -> str:
        nodes.append(helper.make_node("MaxPool", [source], [f"{source}.down"], kernel_shape=[2, 2], strides=[2, 2]))
        return f"{source}.down"

    first = block("x", 1, 8, "e1")
    second = block(down(first), 8, 16, "e2")
    deep = block(down(second), 16, 32, "e3")
    second = block(up(deep, second, "u2"), 48, 16, "d2")
    first = block(up(second, first, "u1"), 24, 8, "d1")
    weights.append(numpy_helper.from_array(random.standard_normal((1, 8, 1, 1)).astype(np.float32), "last.w"))
    nodes.append(helper.make_node("Conv", [first, "last.w"], ["y"]))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 1, SIDE, SIDE]) for n in "xy"]
    graph = helper.make_graph(nodes, "unet", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def ours(model: Path, count: int, work: Path) -> int:
    """Run our pass; the check of its output, which runs in other processes, is left out."""
    from compress.artifact import Artifact, Difference, Form, sha256_of
    from compress.data.open import open_dataset
    from compress.passes.int8.quantize import Int8
    from compress.progress import Quiet
    from compress.runners.onnx_file import read_signature
    from compress.runners.targets import TARGETS
    from compress.stage import Context
    from evaluators.threads import available_threads

    loader = work / "loader.py"
    loader.write_text(LOADER.format(count=count, side=SIDE), encoding="utf-8")
    (work / "pass").mkdir()
    context = Context(
        target=TARGETS["ort-cpu"],
        work=work / "pass",
        progress=Quiet(),
        verify=lambda child, parent: Difference(0.0, 0.0, 0.0, None, 0),
        calibration=open_dataset(f"{loader}:samples", None, workers=0),
        threads=available_threads(),
    )
    Int8(calibration="entropy").run(Artifact(Form.ONNX, model, read_signature(model), sha256_of(model)), context)
    return 0


def theirs(model: Path, count: int, work: Path) -> int:
    """Run onnxruntime's own quantization with its entropy calibrator."""
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, quantize_static

    made: dict[str, Any] = {}
    exec(compile(LOADER.format(count=count, side=SIDE), "loader.py", "exec"), made)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left: Iterator[dict[str, Any]] = made["samples"]()

        def get_next(self) -> dict[str, Any] | None:
            return next(self._left, None)

    quantize_static(model, work / "model.onnx", Reader(), calibrate_method=CalibrationMethod.Entropy)
    return 0


_WORKERS = {OURS: ours, THEIRS: theirs}


def watch(command: Sequence[str], limit_gb: float, limit_s: float) -> dict[str, Any]:
    """Run a command; return its peak resident memory and time, and why it was ended, if it was."""
    started = time.monotonic()
    peak, failure = 0.0, ""
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as process,
    ):
        try:
            while process.poll() is None:
                peak = max(peak, _peak_gb(process.pid))
                if peak > limit_gb:
                    failure = f"ended: it took more than {limit_gb:g} GB"
                elif time.monotonic() - started > limit_s:
                    failure = f"ended: it took more than {limit_s:g} s"
                if failure:
                    process.kill()
                    break
                time.sleep(0.01)
        finally:
            process.kill()
        if process.wait() != 0 and not failure:
            log.seek(0)
            last = log.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            failure = f"failed: {last[0] if last else f'exit code {process.returncode}'}"
    return {"peak_gb": round(peak, 3), "seconds": round(time.monotonic() - started, 1), "failure": failure}


def _peak_gb(pid: int) -> float:
    """Return the most resident memory of a process so far, in GB of 10^9 bytes, as the kernel counts it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    kilobytes = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), "0")
    return int(kilobytes) * 1024 / 1e9


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the table."""
    print(f"Entropy calibration of a U-Net at {SIDE}×{SIDE}, peak resident memory, {machine()}\n")
    print(f"{'row':14}{'samples':>8}{'peak GB':>9}{'seconds':>9}")
    for row in rows:
        line = f"{row['row']:14}{row['samples']:>8}{row['peak_gb']:>9.2f}{row['seconds']:>9.0f}"
        print(f"{line}   {row['failure']}".rstrip())


def judge(rows: Sequence[Mapping[str, Any]], counts: Sequence[int]) -> list[str]:
    """Return what falls short, in words; a quick run's most samples stand for 400, and for 200."""
    peaks = {r["samples"]: r["peak_gb"] for r in rows if r["row"] == OURS and not r["failure"]}
    problems = [f"{OURS} at {count} samples is missing" for count in counts if count not in peaks]
    if problems:
        return problems
    few, middle, many = counts[0], counts[len(counts) // 2], counts[-1]
    if peaks[middle] >= MOST_GB:
        problems.append(f"{OURS} takes {peaks[middle]:.2f} GB at {middle} samples, not less than {MOST_GB:g}")
    if peaks[many] > GROWTH * peaks[few]:
        more = peaks[many] / peaks[few] - 1
        problems.append(f"{OURS} takes {more:.0%} more at {many} samples than at {few}, not {GROWTH - 1:.0%} at most")
    return problems


if __name__ == "__main__":
    sys.exit(main())
