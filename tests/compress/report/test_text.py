from __future__ import annotations

import io
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from compress.report import text
from compress.report.compare import ONE_RUN, TWO_RUNS, compare_entries


def printed(what: Any, width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=False, color_system=None).print(what)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("sample", ["labelled", "unlabelled", "nothing_keeps_budget", "hostile"])
def test_the_summary_fits_and_starts_with_the_verdict(samples: ModuleType, sample: str, width: int) -> None:
    lines = printed(text.summary_table(getattr(samples, sample)()), width)
    assert max(map(len, lines)) <= width
    assert " ".join(lines[:2]).startswith(("Ship int8", "No variant keeps the budget.", "Best choice: int8"))
    assert "\x1b" not in "".join(lines)


def test_names_and_intervals_are_whole_at_80_columns(samples: ModuleType) -> None:
    lines = printed(text.summary_table(samples.labelled()), 80)
    rows = [line.split() for line in lines]
    assert ["pruned-int8", "✗", "fail", "90.90", "%", "3.96×", "7.28×", "0.470", "ms", "0.184", "MB"] in rows
    assert ["drop", "1.70", "3.88–4.04", "7.13–7.43"] in rows
    assert ["−0.04", "to", "0.24"] in rows


def test_plain_lines(samples: ModuleType) -> None:
    lines = text.plain_summary(samples.labelled())
    assert max(map(len, lines)) <= 100
    whole = " ".join(line.strip() for line in lines)
    assert whole.startswith("Ship int8: 2.94× faster than FP32 on ONNX Runtime")
    assert (
        "int8 [best]: int8 (ONNX Runtime; ort-cpu); 92.50 % (drop 0.10 points; −0.04 to 0.24; inside the noise)"
        in whole
    )
    assert "bf16 [failed]: unknown (ONNX Runtime; ort-cpu); not measured — the variant could not be made" in whole
    assert whole.count("2 outputs are NaN") == 2  # once for the values, once as the verdict's reason


def test_time_is_said_in_one_sentence(samples: ModuleType) -> None:
    whole = " ".join(line.strip() for line in text.plain_summary(samples.labelled()))
    assert "Most of the lost time: 19 conversions that take 0.114 ms (before: 2, 0.0160 ms), and" in whole
    # of int8, which is faster; the operators of fp16 are named already, and pruned-int8 has no profile
    assert whole.count("Time: compute ") == 1
    assert "Time: compute 1.45 → 0.387 ms, conversions 0.0160 → 0.0130 ms, other operators" in whole
    table = " ".join(printed(text.summary_table(samples.labelled()), 100))
    assert "Time: compute 1.45 → 0.387 ms" in table


def test_comparison_of_two_entries(samples: ModuleType) -> None:
    results = samples.labelled()
    rows = {r.what: r for r in compare_entries(results.variants[0], results.variants[2])}
    assert rows["precision"].change == "differs"
    assert rows["top-1 accuracy"].change == "0.10 points worse"
    assert (rows["latency, batch 1"].a, rows["latency, batch 1"].b) == ("1.86 ms", "0.633 ms")
    assert rows["latency, batch 1"].change == "2.94× faster"
    assert rows["throughput, batch 8"].change == "2.94× more"
    assert rows["file"].change == "3.50× smaller"
    back = {r.what: r for r in compare_entries(results.variants[2], results.variants[0])}
    assert back["latency, batch 1"].change == "2.94× slower"
    assert back["top-1 accuracy"].change == "0.10 points better"
    assert back["closeness (SQNR)"].change == "100.6 dB closer"


def test_comparison_with_itself_and_with_what_failed(samples: ModuleType) -> None:
    results = samples.labelled()
    same = compare_entries(results.variants[2], results.variants[2])
    assert {r.change for r in same} == {"same"}
    failed = {r.what: r for r in compare_entries(results.variants[2], results.variants[4])}
    assert failed["latency, batch 1"].change == "not comparable"
    assert failed["latency, batch 1"].b == "not measured (the variant could not be made: 2 outputs are NaN)"


def test_comparison_says_whether_it_was_measured_in_turn(samples: ModuleType) -> None:
    a, b = samples.labelled().variants[0], samples.labelled().variants[2]
    assert TWO_RUNS in " ".join(s.strip() for s in text.plain_comparison(a, b, ("run-1/fp32", "run-2/int8")))
    assert ONE_RUN in " ".join(s.strip() for s in text.plain_comparison(a, b, same_run=True))
    lines = printed(text.comparison(a, b), 80)
    assert max(map(len, lines)) <= 80
    assert any("0.10 points worse" in line for line in lines)
