"""What sample results are put together from: each builder fills in what a test doesn't care about."""

from __future__ import annotations

from typing import Any

from compress.results import (
    Entry,
    Fidelity,
    Latency,
    Memory,
    Metric,
    Ratio,
    Speedup,
    StageDetails,
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
    name: str,
    sqnr: float | None,
    *,
    seconds: float = 2.0,
    notes: tuple[str, ...] = (),
    details: StageDetails | None = None,
    **config: Any,
) -> StageResult:
    difference = None if sqnr is None else fidelity(sqnr, min(1.0, 1 - 10 ** (-sqnr / 18)), 64)
    return StageResult(
        stage=name, config=config, seconds=seconds, notes=list(notes), difference=difference, details=details
    )


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
