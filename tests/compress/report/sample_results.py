"""Realistic results to make reports from: a run with labels, one without, and runs where things went wrong."""

from __future__ import annotations

from typing import Any

import sample_profiles
from sample_parts import EXPORT, baseline, fidelity, latency, ratio, stage, top1, variant

from compress.results import Budget, Entry, Layer, ModelInfo, Results, StageDetails, Verdict

__all__ = ["baseline", "fidelity", "latency", "ratio", "stage", "top1"]


def labelled() -> Results:
    """A ResNet-20 on CIFAR-10 with a budget that int8 keeps."""
    fp32 = variant(
        "fp32",
        precision="fp32",
        median=1.86,
        runtime=1.0,
        torch=1.84,
        megabytes=1.157998,
        metric=top1(92.6, 0.0, 0.0, 0.0),
        sqnr=131.8,
        agreement=1.0,
        stages=[EXPORT],
        status="fail",
        reasons=("1.16 MB, at most 0.5 MB allowed",),
        profile=sample_profiles.fp32(),
    )
    fp32 = fp32.model_copy(
        update={
            "speedup": fp32.speedup.model_copy(update={"vs_runtime_fp32": None}) if fp32.speedup else None,
            "reasons": {"speedup.vs_runtime_fp32": "it is the reference itself"},
        }
    )
    fp16 = variant(
        "fp16",
        precision="fp16",
        median=1.91,
        runtime=0.975,
        torch=1.79,
        megabytes=0.594,
        spread=0.011,
        metric=top1(92.61, -0.01, -0.04, 0.02),
        sqnr=68.4,
        agreement=0.9996,
        status="fail",
        stages=[
            EXPORT,
            stage(
                "mixed_precision", 68.4, seconds=1.2, precision="fp16", notes=("all 22 operators are stored in FP16",)
            ),
        ],
        reasons=("0.97× the runtime's FP32 (0.96–0.99), at least 1.5× asked",),
        profile=sample_profiles.fp16(),
    )
    int8 = variant(
        "int8",
        precision="int8",
        median=0.633,
        runtime=2.94,
        torch=5.40,
        megabytes=0.331,
        metric=top1(92.5, 0.10, -0.04, 0.24),
        sqnr=31.2,
        agreement=0.9871,
        status="best",
        stages=[
            EXPORT,
            stage(
                "int8",
                31.3,
                seconds=38.0,
                method="mse",
                samples=300,
                per_channel=True,
                notes=("18 of 20 operators run in int8",),
                details=sample_profiles.details(),
            ),
        ],
        reasons=(
            "the fastest that keeps the budget",
            "drop 0.10 (-0.04 to 0.24, inside the noise), at most 0.5 allowed",
            "2.94× the runtime's FP32 (2.88–3.00), at least 1.5× asked",
        ),
        profile=sample_profiles.int8(),
    )
    pruned = variant(
        "pruned-int8",
        precision="int8",
        median=0.47,
        runtime=3.96,
        torch=7.28,
        megabytes=0.184,
        metric=top1(90.9, 1.70, 1.31, 2.08),
        sqnr=14.1,
        agreement=0.9312,
        status="fail",
        stages=[
            stage("prune", 8.3, seconds=5.0, ratio=0.3, notes=("30 % of the channels removed; macs 41 → 22 million",)),
            stage("recover", 17.2, seconds=912.0, epochs=5),
            EXPORT,
            stage("int8", 29.9, seconds=36.0, method="mse", details=sample_profiles.bare_details()),
        ],
        reasons=("drop 1.70 (1.31 to 2.08), at most 0.5 allowed",),
    )
    pruned = pruned.model_copy(update={"reasons": {"profile": "the profiler wrote no file"}})
    broken = Entry(
        name="bf16",
        form="onnx",
        target="ort-cpu",
        precision="unknown",
        artifact=None,
        size_bytes=None,
        metric=None,
        fidelity=None,
        latency_ms=None,
        throughput=None,
        memory_mb=None,
        speedup=None,
        facts={},
        stages=[EXPORT],
        verdict=Verdict(status="failed", reasons=["mixed_precision failed after onnx: 2 outputs are NaN"]),
        reasons=dict.fromkeys(
            ("artifact", "size_bytes", "metric", "fidelity", "latency_ms", "throughput", "memory_mb", "speedup"),
            "the variant could not be made: 2 outputs are NaN",
        ),
    )
    return Results(
        created="2026-01-15T10:42:07Z",
        run="resnet20-1",
        model=ModelInfo(
            path="models/resnet20.pt",
            name="resnet20",
            kind="state_dict",
            code="models/resnet.py:resnet20",
            sha256="9f3c1f6a5d0b7e2c4a8890bb12cd34ef56a7b8c9d0e1f2a3b4c5d6e7f8091a2b",
            parameters=272_474,
            macs=40_813_184,
            subnormal_weights=0,
            inputs=["input: float32[batch, 3, 32, 32]"],
            outputs=["logits: float32[batch, 10]"],
            notes=["the prefix 'module.' was on every key and was removed"],
        ),
        environment={
            "compress": "0.1.0",
            "python": "3.11.14",
            "system": "Linux-6.8-x86_64",
            "cpu": "Example CPU @ 2.50GHz",
            "cpu_features": ["avx2", "avx512f", "avx512_vnni"],
            "cpus_of_machine": 2,
            "threads": 2,
            "memory_gb": 24.0,
            "packages": {"torch": "2.14.1", "onnx": "1.23.0", "onnxruntime": "1.31.0"},
        },
        baseline=baseline(top1(92.6, None)),
        variants=[fp32, fp16, int8, pruned, broken],
        best="int8",
        budget=Budget(
            max_drop=0.5,
            min_speedup=1.5,
            max_latency_ms=None,
            max_size_mb=0.5,
            met=True,
            explanation="int8 is the fastest variant that keeps it.",
        ),
        notes=["INT8 accuracy was measured on a CPU with VNNI; on one without it 16-bit sums may saturate."],
        recipe={
            "model": "models/resnet20.pt",
            "data": "cifar10/test",
            "target": "ort-cpu",
            "batch": [1, 8],
            "rounds": 7,
            "variants": [
                {"name": "fp32", "passes": []},
                {"name": "int8", "passes": [{"name": "int8", "settings": {}}]},
            ],
            "max_drop": 0.5,
            "min_speedup": 1.5,
            "max_size_mb": 0.5,
        },
        seconds=1342.0,
    )


def change(results: Results, which: str, **update: Any) -> Results:
    """Return the results with the fields of one variant replaced."""
    variants = [e.model_copy(update=update) if e.name == which else e for e in results.variants]
    return results.model_copy(update={"variants": variants})


def nothing_keeps_budget() -> Results:
    """The same run under a budget that no variant keeps."""
    full = labelled()
    budget = Budget(max_drop=0.05, min_speedup=2.0, max_latency_ms=None, max_size_mb=0.15, met=False,
                    explanation="No variant keeps it.")  # fmt: skip
    failing = {
        "fp32": "1.16 MB, at most 0.15 MB allowed",
        "fp16": "0.97× the runtime's FP32 (0.96–0.99), at least 2× asked",
        "int8": "drop 0.10 (-0.04 to 0.24, inside the noise), at most 0.05 allowed",
        "pruned-int8": "drop 1.70 (1.31 to 2.08), at most 0.05 allowed",
    }
    variants = [
        e.model_copy(update={"verdict": Verdict(status="fail", reasons=[failing[e.name]])}) if e.name in failing else e
        for e in full.variants
    ]
    return full.model_copy(update={"variants": variants, "best": None, "budget": budget})


def unlabelled() -> Results:
    """The same run without labels or budget: closeness to the baseline is all there is."""
    full = labelled()
    why = "the data has no labels"
    variants = [
        e.model_copy(update={"metric": None, "reasons": {**e.reasons, "metric": e.reasons.get("metric", why)}})
        for e in full.variants
    ]
    budget = Budget(max_drop=None, min_speedup=None, max_latency_ms=None, max_size_mb=None, met=None,
                    explanation="No budget was given.")  # fmt: skip
    return full.model_copy(update={"baseline": baseline(), "variants": variants, "budget": budget})


EVIL = "<script>alert('ü')</script>|`x`\n\x1b[31m*a*_b_ [c](http://evil.example/) @team"


def hostile() -> Results:
    """Text that wants to be markup, in every place that a user or a file can fill."""
    full = change(labelled(), "int8", name="int8" + "x" * 120)
    model = full.model.model_copy(
        update={"path": f"/tmp/{EVIL}.pt", "name": EVIL, "kind": EVIL, "inputs": [EVIL], "notes": [EVIL]}
    )
    spent = sample_profiles.profile(sample_profiles.op(EVIL, "compute", 9.0, EVIL, (EVIL,), EVIL))
    details = sample_profiles.details()
    layer = Layer(name=EVIL, op=EVIL, precision=EVIL, sqnr_db=3.0, metric_drop=0.5, reason=EVIL)
    tried = details.corrections[0].model_copy(update={"name": EVIL})
    search = details.search.model_copy(update={"explanation": EVIL}) if details.search else None
    chosen = StageDetails(corrections=[tried], layers=[layer], sensitivity_samples=60, search=search)
    last = full.variants[-1].model_copy(
        update={
            "name": EVIL,
            "profile": spent,
            "precision": EVIL,
            "reasons": {"latency_ms": EVIL},
            "verdict": Verdict(status="failed", reasons=[EVIL]),
            "facts": {EVIL: {EVIL: [EVIL]}},
            "stages": [stage(EVIL, 20.0, notes=(EVIL,), details=chosen, setting=EVIL)],
        }
    )
    return full.model_copy(
        update={
            "model": model,
            "run": EVIL,
            "best": full.variants[2].name,
            "variants": [*full.variants[:-1], last],
            "notes": [EVIL],
            "environment": {EVIL: EVIL},
            "recipe": {**full.recipe, "model": EVIL},
            "budget": full.budget.model_copy(update={"explanation": EVIL}),
        }
    )


def with_layer(name: str) -> Results:
    """The labelled run; ``name`` is the one layer that is profiled and was quantized alone in int8."""
    full = labelled()
    spent = sample_profiles.profile(sample_profiles.op(name, "compute", 0.5, "int8", (name,), "QLinearConv"))
    details = StageDetails(layers=[Layer(name=name, op="Conv", precision="int8", sqnr_db=30.0)], sensitivity_samples=60)
    stages = [s.model_copy(update={"details": details}) if s.details else s for s in full.variants[2].stages]
    return change(full, "int8", profile=spent, stages=stages)
