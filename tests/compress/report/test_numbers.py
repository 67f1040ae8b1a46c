from __future__ import annotations

import pytest

from compress.report import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2.9444, "2.94"), (0.6333, "0.633"), (12345.6, "12,300"), (999.6, "1,000"), (0.00123, "0.00123"),
     (-0.5, "−0.500"), (5.14e-6, "5.14×10⁻⁶"), (99.96, "100"), (1.0, "1.00")],
)  # fmt: skip
def test_three_significant_digits(value: float, text: str) -> None:
    assert numbers.sig(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.00"), (-0.001, "0.00"), (-0.12, "−0.12"), (1234.5, "1,234.50")])
def test_fixed_has_a_true_minus_and_no_minus_zero(value: float, text: str) -> None:
    assert numbers.fixed(value, 2) == text


def test_intervals_with_a_negative_bound_are_joined_by_a_word() -> None:
    assert numbers.span(2.84, 3.02) == "2.84–3.02"
    assert numbers.span(-0.05, 0.25) == "−0.05 to 0.25"


@pytest.mark.parametrize(("value", "text"), [(4.214, "4.21 s"), (192.0, "3 min 12 s"), (3901, "1 h 5 min")])
def test_durations(value: float, text: str) -> None:
    assert numbers.seconds(value) == text


def test_a_cosine_that_only_rounds_to_one_is_not_shown_as_one() -> None:
    assert numbers.cosine(1.0) == "1.00000"
    assert numbers.cosine(0.99987) == "0.99987"
    assert numbers.cosine(1 - 2.1e-7) == "1 − 2.1×10⁻⁷"


def test_sqnr_and_change_agree() -> None:
    assert numbers.noise_share(40.0) == pytest.approx(0.01)
    assert numbers.change(numbers.noise_share(20.0)) == "10 %"
    assert numbers.change(numbers.noise_share(200.0)) == "none"
    assert numbers.change(1e-6) == "< 0.001 %"
    assert numbers.decibels(200.0) == "≥ 200 dB (identical)"


def test_counts() -> None:
    assert [numbers.count(n) for n in (272_474, 25_557_032, 4_089_184_256)] == [
        "272,474",
        "25.6 million",
        "4.09 billion",
    ]


def test_facts_of_any_kind_become_text() -> None:
    value = {"threads": 2, "ops": ["Conv", "Gemm"], "pinned": True, "share": 0.12345, "none": None, "empty": []}
    assert numbers.fact(value) == "threads: 2; ops: Conv, Gemm; pinned: yes; share: 0.123; none: none; empty: none"


def test_control_and_direction_characters_do_not_reach_a_terminal() -> None:
    assert numbers.clean("a\x1b[31m\u202eb\nc\udc80") == "a\ufffd[31m\ufffdb c?"


def test_moments() -> None:
    assert numbers.moment("2026-01-15T10:42:07Z") == "2026-01-15 10:42 UTC"
    assert numbers.moment("2026-01-15T12:42:07+02:00") == "2026-01-15 10:42 UTC"
    assert numbers.moment("yesterday") == "yesterday"
