"""Time ResNet-50 and MobileNetV2 on the CPU: ours side by side with what a user would pick instead.

Batch 1, 2 threads, torchvision's architectures with random seeded weights: time doesn't depend on what they learned.
Rows: torch eager; onnxruntime FP32; our INT8 in onnxruntime; our INT8 in OpenVINO; INT8 by onnxruntime's own defaults
(`quantize_static`); INT8 by NNCF's own defaults (`nncf.quantize`) in OpenVINO. All INT8 files are calibrated on the
same random images, which decide ranges and not speed.

Every model runs in a process of its own, one at a time, in turn, round after round. Speed is the ratio to onnxruntime
FP32 pair by pair, with its 95 % bootstrap interval over rounds.

    python benchmarks/cpu_resnet50.py [--nncf-python PATH] [--json FILE] [--quick]

NNCF pins versions that the project doesn't, so it lives in an environment of its own:

    python -m venv /tmp/nncf && /tmp/nncf/bin/pip install nncf==3.4.* openvino onnx
    python benchmarks/cpu_resnet50.py --nncf-python /tmp/nncf/bin/python

Exits 1 where a figure falls short of what is expected of a CPU with VNNI (see `EXPECTED`), or cannot be judged because
a row of it is missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import peers
from peers import Lines, machine, make, run_stage, save_samples

from compress.artifact import ModelSource
from compress.data.open import open_dataset
from compress.errors import CompressError
from compress.load.loader import open_source
from compress.load.probe import probe_inputs
from compress.passes.feeds import feeds
from compress.passes.int8.quantize import Int8
from compress.runners.base import RunOptions
from evaluators.harness import Subject, Timings, measure
from evaluators.statistics import latency, paired_ratio
from exporters.onnx import OnnxExporter
from exporters.openvino import OpenVinoExporter

THREADS, BATCH, SEED = 2, 1, 0
FLOAT, OURS_ORT, OURS_OPENVINO = "onnxruntime FP32", "ours INT8, onnxruntime", "ours INT8, OpenVINO"
NNCF = peers.NNCF.name

EXPECTED = {
    "resnet50": {OURS_OPENVINO: 3.2, OURS_ORT: 2.7},
    "mobilenet_v2": {OURS_OPENVINO: 2.5, OURS_ORT: 2.3},
}
"""Model → row → least speed-up against onnxruntime FP32. Ours in OpenVINO must also be no slower than NNCF's."""


@dataclasses.dataclass(frozen=True)
class Made:
    """The files to time, and why others are missing.

    Attributes:
        subjects: What is timed.
        missing: Row → reason.
    """

    subjects: tuple[Subject, ...]
    missing: Mapping[str, str]


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="taken and not used: random images calibrate as fast")
    parser.add_argument("--nncf-python", type=Path, help="Python of an environment that has NNCF")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--quick", action="store_true", help="few rounds and images, to see that it works")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    rounds, samples = (4, 4) if options.quick else (16, 32)
    results = {}
    for model in EXPECTED:
        with tempfile.TemporaryDirectory(prefix="compress-bench-") as folder:
            made = make_files(model, Path(folder), samples, options.nncf_python)
            timed = measure(
                made.subjects,
                (BATCH,),
                rounds,
                RunOptions(THREADS),
                lambda signature, batch: probe_inputs(signature, batch, SEED),
                Lines(),
                SEED,
            )
            results[model] = summarize(made, timed)
        show(model, results[model])
    problems = judge(results)
    for problem in problems:
        print(f"short: {problem}")
    if options.json:
        text = json.dumps({"machine": machine(), "rounds": rounds, "models": results, "short": problems}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 1 if problems else 0


def make_files(model: str, work: Path, samples: int, nncf_python: Path | None) -> Made:
    """Export the model and make every INT8 file. A peer that fails becomes a missing row."""
    images = work / "images.npz"
    np.savez(images, x=np.random.default_rng(SEED).standard_normal((samples, 3, 224, 224)).astype(np.float32))
    source, _ = open_source(ModelSource("", f"torchvision:{model}", ("1x3x224x224",), seed=SEED))
    plain = run_stage(OnnxExporter(), source, "ort-cpu", work, THREADS, images)
    ours = run_stage(Int8(), plain, "ort-cpu", work, THREADS, images)
    for_openvino = run_stage(Int8(), plain, "openvino", work, THREADS, images)
    lowered = run_stage(OpenVinoExporter(), for_openvino, "openvino", work, THREADS, images)
    subjects = [
        Subject("torch eager", source),
        Subject(FLOAT, plain),
        Subject(OURS_ORT, ours),
        Subject(OURS_OPENVINO, lowered),
    ]
    missing: dict[str, str] = {}
    kept = save_samples(feeds(open_dataset(str(images), None, workers=0), plain.signature, 1), work / "samples.npz")
    for peer, python in ((peers.ONNXRUNTIME, Path(sys.executable)), (peers.NNCF, nncf_python)):
        try:
            subjects.append(Subject(peer.name, make(peer, python, plain.path, kept, work)))
        except CompressError as error:
            missing[peer.name] = str(error)
    return Made(tuple(subjects), missing)


def summarize(made: Made, timed: Mapping[str, Timings]) -> dict[str, Any]:
    """Return one row a model file: latency, and speed against onnxruntime FP32 and, for ours, against NNCF."""
    rows: dict[str, Any] = {name: {"failure": reason} for name, reason in made.missing.items()}
    good = {name: t.rounds[BATCH] for name, t in timed.items() if t.failure is None}
    for subject in made.subjects:
        found = timed[subject.name]
        if found.failure is not None:
            rows[subject.name] = {"failure": found.failure}
            continue
        row: dict[str, Any] = {
            "latency_ms": latency(good[subject.name]).model_dump(),
            "size_mb": round(subject.artifact.size_bytes / 1e6, 1),
            "precisions": found.facts.get("precisions"),
        }
        for key, base in (("speedup", FLOAT), ("vs_nncf", NNCF)):
            if base in good and (key == "speedup" or subject.name == OURS_OPENVINO):
                row[key] = paired_ratio(good[base], good[subject.name], BATCH, SEED).model_dump()
        rows[subject.name] = row
    return rows


def show(model: str, rows: Mapping[str, Any]) -> None:
    """Print a table."""
    print(f"\n{model}, batch {BATCH}, {THREADS} threads, {machine()}")
    print(f"{'':26}{'median ms':>10}{'p90 ms':>9}{'MB':>8}   speed against {FLOAT} (95 % interval)")
    for name, row in rows.items():
        if "failure" in row:
            print(f"{name:26}{row['failure']}")
            continue
        ratio, time = row.get("speedup"), row["latency_ms"]
        speed = f"{ratio['ratio']:.2f}× ({ratio['low']:.2f}–{ratio['high']:.2f})" if ratio else "not measured"
        print(f"{name:26}{time['median']:10.2f}{time['p90']:9.2f}{row['size_mb'] or '–':>8}   {speed}")
        if "vs_nncf" in row:
            against = row["vs_nncf"]
            print(f"{'':56}{against['ratio']:.2f}× NNCF's ({against['low']:.2f}–{against['high']:.2f})")


def judge(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what falls short of `EXPECTED`, in words."""
    problems = []
    for model, least in EXPECTED.items():
        rows = results[model]
        for name, wanted in least.items():
            speedup = rows.get(name, {}).get("speedup")
            if speedup is None:
                problems.append(f"{model}: {name} was not measured against {FLOAT}")
            elif speedup["ratio"] < wanted:
                problems.append(f"{model}: {name} is {speedup['ratio']:.2f}× as fast as {FLOAT}, not {wanted}×")
        against = rows.get(OURS_OPENVINO, {}).get("vs_nncf")
        if against is None:
            problems.append(f"{model}: {OURS_OPENVINO} was not measured against {NNCF}")
        elif against["high"] < 1:
            problems.append(f"{model}: {OURS_OPENVINO} is slower than {NNCF} ({against['ratio']:.2f}×)")
    return problems


if __name__ == "__main__":
    sys.exit(main())
