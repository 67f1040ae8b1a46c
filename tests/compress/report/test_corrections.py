from __future__ import annotations

from types import ModuleType

import pytest

from compress.report import corrections
from compress.results import Correction, Layer, StageDetails


def test_what_was_tried_in_that_order(profiles: ModuleType) -> None:
    assert corrections.rows(profiles.details()) == [
        ("minmax ranges", "4.36 → 4.36 %", "none", "– not kept", "20"),
        ("mse ranges", "4.36 → 3.32 %", "+2.37 dB", "✓ kept", "20"),
        ("SmoothQuant (α 0.5)", "3.32 → 3.46 %", "−0.38 dB", "– not kept", "7"),
        ("cross-layer equalization", "3.32 → 3.02 %", "+0.82 dB", "✓ kept", "12"),
        ("bias correction", "3.02 → 2.81 %", "+0.61 dB", "✓ kept", "20"),
        ("AdaRound", "2.81 → 2.79 %", "+0.06 dB", "– not kept", "20"),
    ]
    assert corrections.rows(profiles.bare_details()) == []


@pytest.mark.parametrize(
    ("before", "after", "error", "gain"),
    [(1e-2, 0.0, "10 % → none", "+180.00 dB"), (0.0, 0.0, "none → none", "none"),
     (1e-4, 1e-12, "1.0 % → < 0.001 %", "+80.00 dB")],
)  # fmt: skip
def test_errors_near_none(before: float, after: float, error: str, gain: str) -> None:
    tried = Correction(name="x", error_before=before, error_after=after, kept=True, layers=1_200)
    assert corrections.rows(StageDetails(corrections=[tried])) == [("x", error, gain, "✓ kept", "1,200")]


def test_layers_in_float_by_reason_and_the_search(profiles: ModuleType) -> None:
    assert corrections.choices(profiles.details()) == [
        "2 of 20 layers stayed in float: 1 put back into float to keep the drop within the limit; 1 slower in INT8.",
        "1 of 20 layers in float keep the drop within 0.5: 0.10 ± 0.07 points of top1 on 2000 selection samples. "
        "3 combinations were evaluated.",
    ]


def test_no_layer_in_float_and_no_search(profiles: ModuleType) -> None:
    assert corrections.choices(profiles.bare_details()) == ["0 of 20 layers stayed in float."]
    assert corrections.choices(StageDetails()) == []


def test_reasons_are_counted_without_the_numbers_of_each_layer() -> None:
    layers = [
        Layer(name=str(i), op="Conv", precision="fp32", reason=f"slower in INT8: {i} ms in float") for i in range(3)
    ]
    layers.append(Layer(name="x", op="Conv", precision="fp32"))
    assert corrections.choices(StageDetails(layers=layers)) == [
        "4 of 4 layers stayed in float: 3 slower in INT8; 1 without a recorded reason."
    ]


def test_a_limit_that_was_not_kept_is_said(profiles: ModuleType) -> None:
    search = profiles.details().search.model_copy(
        update={"met": False, "evaluations": 1, "explanation": "no choice was sure to keep it"}
    )
    assert corrections.choices(StageDetails(search=search)) == [
        "No choice was sure to keep it. The limit was not kept. 1 combination was evaluated."
    ]
