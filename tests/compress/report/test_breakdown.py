from __future__ import annotations

from types import ModuleType

from compress.report import breakdown
from compress.report.cells import Cell
from compress.results import Results


def test_every_variant_beside_the_reference_has_one(samples: ModuleType) -> None:
    found = breakdown.breakdowns(samples.labelled())
    assert [b.name for b in found] == ["fp16", "int8", "pruned-int8"]
    assert [b.absent for b in found] == ["", "", "not measured — the profiler wrote no file"]


def test_totals_by_kind(samples: ModuleType) -> None:
    int8 = breakdown.breakdowns(samples.labelled())[1]
    assert int8.totals == (
        ("Compute", "1.45 ms (99 %)", "0.387 ms (88 %)", "−1.06 ms"),
        ("Conversions", "0.0160 ms (1 %)", "0.0130 ms (3 %)", "−0.00300 ms"),
        ("Other", "0.00300 ms (0 %)", "0.0410 ms (9 %)", "+0.0380 ms"),
        ("Total", "1.47 ms", "0.441 ms", "−1.03 ms"),
    )
    assert {len(row) for row in int8.totals} == {len(breakdown.TOTALS_HEAD)}


def test_a_row_says_before_after_precision_conversions_and_change(samples: ModuleType) -> None:
    first, second = breakdown.breakdowns(samples.labelled())[1].lines[:2]
    assert first == breakdown.Line(
        "/conv1/Conv",
        (
            Cell("0.100 ms", ("Conv",)),
            Cell("0.0263 ms", ("QLinearConv",)),
            Cell("int8"),
            Cell("0.0110 ms", ("QuantizeLinear", "before 0.0120 ms")),
            Cell("−0.0747 ms"),
        ),
        100.0,
    )
    assert second.name == "9 QLinearAdd"
    assert second.cells[0] == Cell("none")
    assert second.bar == 96.5  # 0.0360 of 0.0373 ms
    assert len(first.cells) + 1 == len(breakdown.HEAD)


def test_the_rest_is_one_row_without_a_bar(samples: ModuleType) -> None:
    int8 = breakdown.breakdowns(samples.labelled(), 8)[1]
    assert len(int8.lines) == 9
    assert int8.lines[-1] == breakdown.Line(
        "14 more rows",
        (
            Cell("0.809 ms"),
            Cell("0.222 ms"),
            Cell("int8, fp32"),
            Cell("0.00200 ms", ("before 0.00400 ms",)),
            Cell("−0.589 ms"),
        ),
    )
    assert len(breakdown.breakdowns(samples.labelled())[1].lines) == breakdown.SHOWN + 1


def without_reference(samples: ModuleType) -> Results:
    return samples.change(samples.labelled(), "fp32", profile=None, reasons={"profile": "no profiler here"})  # type: ignore[no-any-return]


def test_without_a_profile_of_the_reference_nothing_is_compared(samples: ModuleType) -> None:
    found = {b.name: b.absent for b in breakdown.breakdowns(without_reference(samples))}
    assert found == {
        "fp32": "not measured — no profiler here",
        "fp16": "not compared — the float reference was not profiled: no profiler here",
        "int8": "not compared — the float reference was not profiled: no profiler here",
        "pruned-int8": "not measured — the profiler wrote no file",
    }
    assert breakdown.lead(without_reference(samples)) == ""


def test_profiles_at_other_batch_sizes_are_not_compared(samples: ModuleType, profiles: ModuleType) -> None:
    eight = profiles.int8().model_copy(update={"batch": 8})
    found = breakdown.breakdowns(samples.change(samples.labelled(), "int8", profile=eight))
    assert found[1].absent == "not compared — profiled at batch 8, the float reference at batch 1"


def test_the_lead_says_how_it_was_measured(samples: ModuleType) -> None:
    said = breakdown.lead(samples.labelled())
    assert said.startswith(
        "One inference at batch 1, operator by operator: median of 20 by the runtime's own profiler, "
        "before (FP32 on ONNX Runtime) and after."
    )


def test_old_results_have_no_breakdown(samples: ModuleType) -> None:
    results = samples.labelled()
    for entry in results.variants:
        results = samples.change(results, entry.name, profile=None, reasons={})
    assert breakdown.breakdowns(results) == []
