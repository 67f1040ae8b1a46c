from __future__ import annotations

from types import ModuleType

import pytest

from compress.report import profiles as sides
from compress.results import Profile


def test_the_rows_add_up_to_both_profiles(profiles: ModuleType) -> None:
    before, after = profiles.fp32(), profiles.int8()
    rows = sides.rows(before, after)
    assert sum(r.before.all_ms for r in rows) == pytest.approx(before.total_ms)
    assert sum(r.after.all_ms for r in rows) == pytest.approx(after.total_ms)
    assert [r.after.all_ms for r in rows] == sorted((r.after.all_ms for r in rows), reverse=True)


def test_a_layer_meets_itself_whatever_the_runtime_calls_it(profiles: ModuleType) -> None:
    rows = {r.title: r for r in sides.rows(profiles.fp32(), profiles.int8())}
    first = rows["/conv1/Conv"]
    assert (first.before.types, first.after.types) == ("Conv", "QLinearConv")
    assert (first.before.ms, first.after.ms) == (0.1, 0.0263)
    assert first.after.precisions == ("int8",)
    assert first.after.conversion_types == "QuantizeLinear"
    assert (first.before.conversion_ms, first.after.conversion_ms) == (0.012, 0.011)
    assert first.loss == pytest.approx(-0.0737)


def test_a_conversion_between_two_rows_counts_half_in_each(profiles: ModuleType) -> None:
    rows = {r.title: r for r in sides.rows(profiles.fp32(), profiles.int8())}
    assert rows["/GlobalAveragePool"].after.conversion_ms == pytest.approx(0.001)
    assert rows["/fc/Gemm"].after.conversion_ms == pytest.approx(0.001)


def test_what_has_no_counterpart_is_put_together_by_type(profiles: ModuleType) -> None:
    row = next(r for r in sides.rows(profiles.fp32(), profiles.int8()) if not r.before.ops)
    assert row.title == "9 QLinearAdd"
    assert row.layers == ()
    assert row.after.ms == pytest.approx(0.036)


def test_a_fused_operator_meets_all_that_it_was_made_of(profiles: ModuleType) -> None:
    before = profiles.profile(
        *(profiles.op(n, "compute", 1.0, layers=(n,)) for n in ("/q/MatMul", "/k/MatMul", "/v/MatMul", "/o/MatMul"))
    )
    names = ("/q/MatMul", "/k/MatMul", "/v/MatMul", "/o/MatMul")
    (row,) = sides.rows(before, profiles.profile(profiles.op("fused", "compute", 2.0, layers=names, type_="Attention")))
    assert row.layers == names
    assert row.title == "/q/MatMul + /k/MatMul + /v/MatMul and 1 more"
    assert (row.before.ms, row.before.types, row.after.types) == (4.0, "4 MatMul", "Attention")


def test_conversions_beside_no_layer_have_a_row_of_their_own(profiles: ModuleType) -> None:
    convolution = profiles.op("/c/Conv", "compute", 1.0, layers=("/c/Conv",))
    rows = sides.rows(
        profiles.profile(convolution), profiles.profile(convolution, profiles.op("Cast", "conversion", 0.5))
    )
    assert [(r.title, r.after.all_ms) for r in rows] == [
        ("/c/Conv", 1.0),
        ("conversions beside no known layer", 0.5),
    ]


def test_slower_rows_come_by_loss(profiles: ModuleType) -> None:
    found = sides.slower(sides.rows(profiles.fp32(), profiles.fp16()))
    assert [(row.title, round(ms, 4)) for row, ms in found] == [("/layer1/layer1.0/conv1/Conv", 0.05)]


def test_another_name_is_no_loss(profiles: ModuleType) -> None:
    before = profiles.profile(profiles.op("a", "other", 1.0, layers=("a",), type_="Softmax"))

    def renamed(ms: float) -> Profile:
        return profiles.profile(profiles.op("b", "other", ms, layers=("b",), type_="SoftMax"))  # type: ignore[no-any-return]

    assert sides.slower(sides.rows(before, renamed(1.0))) == []
    ((row, lost),) = sides.slower(sides.rows(before, renamed(1.25)))
    assert (row.title, lost) == ("b", 0.25)


def test_what_each_kind_takes(profiles: ModuleType) -> None:
    profile = profiles.int8()
    assert sides.spent(profile, "conversion") == pytest.approx(0.013)
    assert sides.spent(profile, "other") == pytest.approx(0.041)
    assert (sides.count(profile, "conversion"), sides.count(profile, "compute")) == (2, 20)
