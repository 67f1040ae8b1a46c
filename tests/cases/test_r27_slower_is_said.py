"""R27 (microsoft/onnxruntime#20052, VainF/Torch-Pruning#149): the "optimized" model is slower or the same.

Every form of the report says so plainly with the spread, recommends nothing for it, and reads no speed off size or
multiply-accumulates.
"""

from __future__ import annotations

import pytest

from compress.report import explain
from compress.report.html import render_html
from compress.report.markdown import render_markdown
from compress.report.text import plain_summary
from compress.results import Budget, Entry, Latency, Memory, ModelInfo, Ratio, Results, Speedup, Verdict


def entry(name: str, median: float, ratio: Ratio | None, megabytes: float, status: str) -> Entry:
    return Entry.model_validate(
        {
            "name": name,
            "form": "torch" if name == "torch" else "onnx",
            "target": "ort-cpu",
            "precision": "int8" if name == "int8" else "fp32",
            "artifact": f"artifacts/{name}.onnx",
            "size_bytes": int(megabytes * 1e6),
            "metric": None,
            "fidelity": None,
            "latency_ms": {"1": Latency(median=median, p90=median, p99=median, rounds=[median] * 3, runs=30)},
            "throughput": None,
            "memory_mb": Memory(file=megabytes, weights=1.0, peak=2.0),
            "speedup": Speedup(vs_torch=None, vs_runtime_fp32=ratio) if ratio else None,
            "facts": {"runtime": "onnxruntime"},
            "stages": [],
            "verdict": Verdict.model_validate({"status": status, "reasons": []}),
            "reasons": dict.fromkeys(("metric", "fidelity", "throughput"), "not asked for"),
        }
    )


def run(ratio: Ratio, best: str | None, status: str) -> Results:
    """A quarter of the size and of the multiply-accumulates, and yet not faster."""
    budget = Budget(
        max_drop=None,
        min_speedup=None,
        max_latency_ms=None,
        max_size_mb=0.2,
        met=best is not None,
        explanation="int8 is the smallest.",
    )
    return Results(
        created="2026-01-15T10:42:07Z",
        run="tiny-1",
        model=ModelInfo(
            path="tiny.pt",
            name="tiny",
            kind="module",
            code=None,
            sha256="0" * 64,
            parameters=1000,
            macs=10**9,
            subnormal_weights=0,
            inputs=["x: float32[batch, 3, 8, 8]"],
            outputs=[],
            notes=[],
        ),
        environment={},
        baseline=entry("torch", 0.5, None, 0.4, "not judged"),
        variants=[entry("fp32", 0.4, None, 0.4, "fail"), entry("int8", 0.4 / ratio.ratio, ratio, 0.1, status)],
        best=best,
        budget=budget,
        recipe={"batch": [1]},
        seconds=10.0,
    )


@pytest.mark.parametrize("best", [None, "int8"])
@pytest.mark.parametrize("value", [0.43, 0.8, 0.97])
def test_slower_is_said_everywhere_and_never_shipped(value: float, best: str | None) -> None:
    slower = Ratio(ratio=value, low=value - 0.01, high=value + 0.01, batch=1)
    results = run(slower, best, "best" if best else "pass")
    tone, headline = explain.headline(results)
    assert tone != "good"
    assert "Ship" not in headline
    assert ("slower" in headline) == (best is not None)
    for text in (render_html(results), render_markdown(results), " ".join(plain_summary(results))):
        assert "It is slower than FP32 on ONNX Runtime." in text
        assert f"{value:.2f}×" in text
        assert f"{value - 0.01:.2f}–{value + 0.01:.2f}" in text
        assert "4.00× faster" not in text


@pytest.mark.parametrize(("low", "high"), [(0.9, 1.1), (0.99, 1.01), (1.0, 1.2)])
def test_the_same_speed_is_no_gain(low: float, high: float) -> None:
    results = run(Ratio(ratio=(low + high) / 2, low=low, high=high, batch=1), "int8", "best")
    tone, headline = explain.headline(results)
    assert tone == "warn"
    assert "within the noise" in headline
    assert "faster" not in headline
    said = "Its speed cannot be told from that of FP32 on ONNX Runtime: the interval includes 1."
    assert said in render_markdown(results)


def test_size_and_work_say_nothing_about_speed_that_was_not_measured() -> None:
    results = run(Ratio(ratio=1, low=1, high=1, batch=1), "int8", "best")
    unmeasured = results.variants[1].model_copy(
        update={"speedup": None, "latency_ms": None, "reasons": dict.fromkeys(("speedup", "latency_ms"), "no timing")}
    )
    results = results.model_copy(update={"variants": [results.variants[0], unmeasured]})
    tone, headline = explain.headline(results)
    assert tone == "warn"
    assert headline.startswith("Best choice: int8: speed not measured — no timing")
    assert "faster" not in headline
