"""Realistic results to make reports from: a run with labels, one without, and runs where things went wrong."""

from __future__ import annotations

from typing import Any

from compress.results import (
    Budget,
    Entry,
    Fidelity,
    Latency,
    Memory,
    Metric,
    ModelInfo,
    Ratio,
    Results,
    Speedup,
    StageResult,
    Throughput,
    Verdict,
)

BATCHES = ("1", "8")


def latency(median: float, rounds: int = 7) -> Latency:
    drift = [1.0, 0.991, 1.006, 0.997, 1.012, 1.003, 0.994]
    return Latency(
        median=median,
        p90=median * 1.06,
        p99=median * 1.19,
        rounds=[median * drift[i % 7] for i in range(rounds)],
        runs=rounds * 50,
    )


def ratio(value: float, spread: float = 0.02, batch: int = 1) -> Ratio:
    return Ratio(ratio=value, low=value * (1 - spread), high=value * (1 + spread), batch=batch)


def speedup(runtime: float, torch: float, spread: float = 0.02) -> Speedup:
    by_batch: dict[str, Any] = {
        b: {"vs_torch": ratio(torch, spread, int(b)), "vs_runtime_fp32": ratio(runtime, spread, int(b))}
        for b in BATCHES
    }
    first = by_batch["1"]
    return Speedup(vs_torch=first["vs_torch"], vs_runtime_fp32=first["vs_runtime_fp32"], by_batch=by_batch)


def top1(value: float, drop: float | None, low: float | None = None, high: float | None = None) -> Metric:
    return Metric(
        name="top1",
        unit="%",
        higher_is_better=True,
        value=value,
        drop=drop,
        drop_low=low,
        drop_high=high,
        samples=10_000,
        extra={"top5": 99.7},
    )


def fidelity(sqnr: float, agreement: float | None = 0.99, samples: int = 256) -> Fidelity:
    return Fidelity(
        sqnr_db=sqnr,
        cosine=1 - 10 ** (-sqnr / 10) / 2,
        max_abs=20 * 10 ** (-sqnr / 20),
        top1_agreement=agreement,
        samples=samples,
    )


def stage(
    name: str, sqnr: float | None, *, seconds: float = 2.0, notes: tuple[str, ...] = (), **config: Any
) -> StageResult:
    difference = None if sqnr is None else fidelity(sqnr, min(1.0, 1 - 10 ** (-sqnr / 18)), 64)
    return StageResult(stage=name, config=config, seconds=seconds, notes=list(notes), difference=difference)


EXPORT = stage(
    "onnx",
    131.8,
    seconds=4.1,
    notes=("opset 20; the batch axis is dynamic: ran at batch 1, 3 and 8",),
    opset=20,
    optimize=True,
)


def facts(**more: Any) -> dict[str, Any]:
    return {
        "runtime": "onnxruntime",
        "version": "1.31.0",
        "device": "cpu",
        "providers": ["CPUExecutionProvider"],
        "threads": 2,
        **more,
    }


def variant(
    name: str,
    *,
    precision: str,
    median: float,
    runtime: float,
    torch: float,
    megabytes: float,
    metric: Metric | None,
    sqnr: float,
    agreement: float | None,
    stages: list[StageResult],
    status: str = "pass",
    reasons: tuple[str, ...] = (),
    spread: float = 0.02,
    **more: Any,
) -> Entry:
    return Entry.model_validate(
        {
            "name": name,
            "form": "onnx",
            "target": "ort-cpu",
            "precision": precision,
            "artifact": f"artifacts/{name}.onnx",
            "size_bytes": round(megabytes * 1e6),
            "metric": metric,
            "fidelity": fidelity(sqnr, agreement),
            "latency_ms": {"1": latency(median), "8": latency(median * 6.1)},
            "throughput": {
                b: Throughput(value=1000 / median * f, low=980 / median * f, high=1015 / median * f)
                for b, f in zip(BATCHES, (1.0, 1.31), strict=True)
            },
            "memory_mb": Memory(file=megabytes, weights=megabytes * 1.6, peak=megabytes * 1.6 + 11.4),
            "speedup": speedup(runtime, torch, spread),
            "facts": facts(precisions={precision: 21} if precision == "fp32" else {precision: 19, "fp32": 3}),
            "stages": stages,
            "verdict": Verdict(status=status, reasons=list(reasons)),  # type: ignore[arg-type]
            **more,
        }
    )


def baseline(metric: Metric | None = None) -> Entry:
    reasons = {
        "artifact": "it is the file as it was handed over",
        "speedup": "it is what the others are measured against",
        "fidelity": "it is what the others are compared with",
    }
    if metric is None:
        reasons["metric"] = "the data has no labels"
    return Entry(
        name="torch",
        form="torch",
        target="torch-cpu",
        precision="fp32",
        artifact=None,
        size_bytes=1_117_210,
        metric=metric,
        fidelity=None,
        latency_ms={"1": latency(3.42), "8": latency(17.9)},
        throughput={"1": Throughput(value=292, low=287, high=297), "8": Throughput(value=447, low=441, high=452)},
        memory_mb=Memory(file=1.11721, weights=2.3, peak=24.8),
        speedup=None,
        facts={"runtime": "torch", "version": "2.14.1", "device": "cpu", "threads": 2, "precisions": {"fp32": 65}},
        stages=[],
        verdict=Verdict(status="not judged", reasons=[]),
        reasons=reasons,
    )


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
                notes=("21 of 22 operators run in int8", "the last layer stays in FP32: it is the most sensitive one"),
            ),
        ],
        reasons=(
            "the fastest that keeps the budget",
            "drop 0.10 (-0.04 to 0.24, inside the noise), at most 0.5 allowed",
            "2.94× the runtime's FP32 (2.88–3.00), at least 1.5× asked",
        ),
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
            stage("int8", 29.9, seconds=36.0, method="mse"),
        ],
        reasons=("drop 1.70 (1.31 to 2.08), at most 0.5 allowed",),
    )
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
    last = full.variants[-1].model_copy(
        update={
            "name": EVIL,
            "precision": EVIL,
            "reasons": {"latency_ms": EVIL},
            "verdict": Verdict(status="failed", reasons=[EVIL]),
            "facts": {EVIL: {EVIL: [EVIL]}},
            "stages": [stage(EVIL, 20.0, notes=(EVIL,), setting=EVIL)],
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
