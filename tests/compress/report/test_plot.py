from __future__ import annotations

from types import ModuleType

import pytest

from compress.report import plot


def test_points_carry_both_intervals(samples: ModuleType) -> None:
    shown = plot.tradeoff(samples.labelled())
    points = {p.name: p for p in shown.points}
    assert list(points) == ["torch", "fp32", "fp16", "int8", "pruned-int8"]
    int8 = points["int8"]
    assert int8.role == "best"
    assert (int8.speed.value, int8.speed.low, int8.speed.high) == pytest.approx((2.94, 2.8812, 2.9988))
    # drop 0.10 with interval −0.04 to 0.24: the value may be 0.14 better or worse
    assert (int8.quality.value, int8.quality.low, int8.quality.high) == pytest.approx((92.5, 92.36, 92.64))
    assert shown.left_out == ("bf16: not measured — the variant could not be made: 2 outputs are NaN",)
    assert shown.floor == pytest.approx(92.1)
    assert shown.pace == 1.5


def test_the_model_as_handed_over_is_placed_by_the_inverse_of_the_plain_export(samples: ModuleType) -> None:
    torch = plot.tradeoff(samples.labelled()).points[0]
    assert torch.role == "reference"
    assert torch.speed.value == pytest.approx(1 / 1.84)
    assert (torch.speed.low, torch.speed.high) == pytest.approx((1 / (1.84 * 1.02), 1 / (1.84 * 0.98)))


def test_without_labels_the_agreement_is_shown_with_its_interval(samples: ModuleType) -> None:
    shown = plot.tradeoff(samples.unlabelled())
    assert shown.y_title == "Top-1 agreement with the baseline (%)"
    fp32 = next(p for p in shown.points if p.name == "fp32")
    # Wilson's interval of 256 of 256 is n / (n + z²) to 1
    assert fp32.quality.value == 100
    assert fp32.quality.low == pytest.approx(100 * 256 / (256 + 1.96**2))
    assert fp32.quality.high == 100


def test_without_labels_and_classes_the_sqnr_is_shown(samples: ModuleType) -> None:
    results = samples.unlabelled()
    for entry in results.variants[:4]:
        results = samples.change(results, entry.name, fidelity=samples.fidelity(entry.fidelity.sqnr_db, None))
    shown = plot.tradeoff(results)
    assert shown.y_title == "Closeness to the baseline, SQNR (dB)"
    assert next(p for p in shown.points if p.name == "int8").quality == plot.Value(31.2)


def test_the_axis_is_turned_where_low_is_good(samples: ModuleType) -> None:
    results = samples.labelled()
    error = samples.top1(3.2, 0.1, -0.1, 0.4).model_copy(
        update={"name": "mae", "unit": "°C", "higher_is_better": False}
    )
    results = samples.change(results, "int8", metric=error)
    results = results.model_copy(
        update={"baseline": samples.baseline(error.model_copy(update={"value": 3.1, "drop": None}))}
    )
    shown = plot.tradeoff(results)
    int8 = next(p for p in shown.points if p.name == "int8")
    assert (int8.quality.low, int8.quality.high) == pytest.approx((3.0, 3.5))
    assert shown.floor == pytest.approx(3.6)
    assert plot.figure(shown)["layout"]["yaxis"]["autorange"] == "reversed"


def test_figure_has_shapes_beside_colors_and_error_bars(samples: ModuleType) -> None:
    figure = plot.figure(plot.tradeoff(samples.labelled()))
    traces = {t["meta"]["role"]: t for t in figure["data"]}
    assert {r: t["marker"]["symbol"] for r, t in traces.items()} == {"best": "star", "fail": "x", "reference": "square"}
    best = traces["best"]
    assert best["error_x"]["array"] == pytest.approx([0.0588])
    assert best["error_y"]["arrayminus"] == pytest.approx([0.14])
    assert "template" not in figure["layout"]


def test_names_cannot_be_markup_in_the_plot(samples: ModuleType) -> None:
    results = samples.change(samples.labelled(), "int8", name="<b>int8</b>")
    figure = plot.figure(plot.tradeoff(results.model_copy(update={"best": "<b>int8</b>"})))
    best = next(t for t in figure["data"] if t["meta"]["role"] == "best")
    assert best["text"][0] == "<b>&lt;b&gt;int8&lt;/b&gt;</b>"


def test_description_in_words(samples: ModuleType) -> None:
    words = plot.tradeoff(samples.labelled()).describe()
    assert words.startswith("Top-1 accuracy (%) against Speed against FP32 on ONNX Runtime, batch 1 (×).")
    assert "int8 (best): 2.94× (95 % interval 2.88–3.00), top-1 accuracy 92.50 %" in words
