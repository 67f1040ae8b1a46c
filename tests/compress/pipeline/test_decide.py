"""Which variant is recommended, and with which words."""

from __future__ import annotations

import pytest

from compress.pipeline.decide import decide
from compress.recipe import make_recipe
from compress.results import Entry, Fidelity, Latency, Metric, Ratio, Speedup, Verdict


def _entry(
    name, ratio=(1.0, 1.0, 1.0), drop=0.0, interval=(-0.1, 0.1), median=1.0, size=1_000_000, sqnr=40.0, unit="%"
):
    speed = Ratio(ratio=ratio[0], low=ratio[1], high=ratio[2], batch=1)
    metric = None
    if drop is not None:
        metric = Metric(
            name="top1", unit=unit, higher_is_better=True, value=90 - drop, drop=drop, drop_low=drop + interval[0],
            drop_high=drop + interval[1], samples=1000,
        )  # fmt: skip
    return Entry(
        name=name,
        form="onnx",
        target="ort-cpu",
        precision="fp32",
        artifact=f"artifacts/{name}.onnx",
        size_bytes=size,
        metric=metric,
        fidelity=Fidelity(sqnr_db=sqnr, cosine=1, max_abs=0, top1_agreement=1, samples=10),
        latency_ms={"1": Latency(median=median, p90=median, p99=median, rounds=[median], runs=10)},
        throughput=None,
        memory_mb=None,
        speedup=Speedup(vs_torch=None, vs_runtime_fp32=speed),
        facts={},
        stages=[],
        verdict=Verdict(status="not judged", reasons=[]),
        reasons={} if metric else {"metric": "no labels"},
    )


def _decide(entries, **budget):
    judged, best, outcome = decide(entries, make_recipe({"model": "m.pt", **budget}), "fp32")
    return {e.name: e.verdict for e in judged}, best, outcome


def test_the_fastest_that_keeps_the_budget_is_best():
    entries = [_entry("fp32"), _entry("int8", (3, 2.9, 3.1), drop=0.4), _entry("mini", (5, 4.9, 5.1), drop=2.0)]
    verdicts, best, budget = _decide(entries, max_drop=0.5, min_speedup=1.5)
    assert best == "int8"
    assert budget.met is True
    assert {n: v.status for n, v in verdicts.items()} == {"fp32": "fail", "int8": "best", "mini": "fail"}
    assert verdicts["mini"].reasons == ["drop 2.00 (1.90 to 2.10), at most 0.5 allowed"]
    assert "1.00× the runtime's FP32" in verdicts["fp32"].reasons[0]


def test_a_collapse_is_not_recommended_though_no_budget_was_given():
    """Tiarin-Hino/ability-draft-plus PR 80: a collapse is flagged, not shipped."""
    verdicts, best, budget = _decide([_entry("fp32"), _entry("int8", (3, 2.9, 3.1), drop=40.0)])
    assert best == "fp32"
    assert verdicts["int8"].status == "fail"
    assert budget.met is None


def test_a_slower_variant_is_not_recommended():
    """microsoft/onnxruntime#20052: a slow-down is said plainly."""
    verdicts, best, _ = _decide([_entry("fp32"), _entry("int8", (0.7, 0.68, 0.72), size=250_000)])
    assert best == "fp32"
    assert verdicts["int8"].status == "pass"


def test_a_speed_within_the_noise_is_not_chosen_for_its_speed():
    verdicts, best, _ = _decide([_entry("fp32"), _entry("int8", (1.02, 0.97, 1.06))])
    assert best == "fp32"
    assert "within the noise" in verdicts["int8"].reasons[0]


def test_a_clearly_faster_one_wins_over_one_within_the_noise():
    entries = [_entry("fp32"), _entry("a", (1.5, 0.9, 2.0)), _entry("b", (1.3, 1.25, 1.35))]
    assert _decide(entries)[1] == "b"


def test_a_smaller_file_may_win_where_size_was_asked_though_slower():
    entries = [_entry("fp32"), _entry("int8", (0.9, 0.88, 0.92), size=250_000)]
    verdicts, best, _ = _decide(entries, max_size_mb=0.5)
    assert best == "int8"
    assert "although it is slower than fp32" in verdicts["int8"].reasons[0]


@pytest.mark.parametrize(
    "budget", [{"max_drop": 0.1}, {"min_speedup": 4}, {"max_latency_ms": 0.1}, {"max_size_mb": 0.01}]
)
def test_no_variant_keeps_an_impossible_budget(budget):
    verdicts, best, outcome = _decide([_entry("fp32", drop=0.2), _entry("int8", (3, 2.9, 3.1), drop=0.3)], **budget)
    assert best is None
    assert outcome.met is False
    assert {v.status for v in verdicts.values()} == {"fail"}


def test_a_limit_inside_the_interval_is_called_so():
    verdicts, best, _ = _decide([_entry("fp32"), _entry("int8", (2.0, 1.9, 2.1))], min_speedup=1.95)
    assert best == "int8"
    assert "the interval includes the limit" in " ".join(verdicts["int8"].reasons)


def test_what_was_not_measured_cannot_keep_a_budget():
    verdicts, best, _ = _decide([_entry("fp32", drop=None)], max_drop=1.0)
    assert best is None
    assert verdicts["fp32"].reasons == ["the drop was not measured (no labels)"]


def test_without_labels_outputs_far_from_the_baseline_are_not_shipped():
    entries = [_entry("fp32", drop=None), _entry("int8", (3, 2.9, 3.1), drop=None, sqnr=4.0)]
    verdicts, best, _ = _decide(entries)
    assert best == "fp32"
    assert "far from the baseline's" in verdicts["int8"].reasons[0]


def test_a_default_drop_makes_no_sense_in_the_labels_unit():
    assert _decide([_entry("fp32"), _entry("int8", (3, 2.9, 3.1), drop=5.0, unit="label")])[1] == "int8"


def test_a_variant_that_failed_keeps_its_reason():
    broken = _entry("x").model_copy(update={"verdict": Verdict(status="failed", reasons=["no"]), "speedup": None})
    verdicts, best, _ = _decide([_entry("fp32"), broken])
    assert verdicts["x"].reasons == ["no"]
    assert best == "fp32"
