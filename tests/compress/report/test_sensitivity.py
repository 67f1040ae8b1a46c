from __future__ import annotations

from types import ModuleType

import pytest

from compress.report import sensitivity
from compress.report.cells import Cell
from compress.results import Layer, StageDetails


def details(*layers: Layer) -> StageDetails:
    return StageDetails(layers=list(layers), sensitivity_samples=16)


def conv(name: str, db: float | None, **more: object) -> Layer:
    return Layer.model_validate({"name": name, "op": "Conv", "precision": "int8", "sqnr_db": db, **more})


def test_bars_in_the_order_of_the_graph_and_rows_by_sqnr(samples: ModuleType, profiles: ModuleType) -> None:
    shown = sensitivity.sensitivity(samples.labelled(), profiles.details())
    assert [b.place for b in shown.bars] == list(range(1, 21))
    assert [b.role for b in shown.bars] == ["fail", *["best"] * 18, "fail"]
    assert shown.bars[0] == sensitivity.Bar(
        1,
        "/conv1/Conv",
        "fail",
        31.0,
        ("Conv", "SQNR 31.0 dB", "fp32 (put back into float to keep the drop within the limit)"),
    )
    assert shown.head == ("Layer", "Operator", "SQNR", "Kept as")
    assert len(shown.rows) == sensitivity.MOST
    assert shown.rows[0] == (
        "/conv1/Conv",
        "Conv",
        "31.0 dB",
        Cell("fp32", ("put back into float to keep the drop within the limit",)),
    )
    assert shown.rows[1] == ("/layer1/layer1.0/conv2/Conv", "Conv", "40.7 dB", Cell("int8"))
    assert shown.lead == (
        "Each layer alone quantized, on 60 calibration samples: the lower the SQNR of the outputs, the more sensitive "
        "the layer."
    )


def test_description_in_words(samples: ModuleType, profiles: ModuleType) -> None:
    assert sensitivity.sensitivity(samples.labelled(), profiles.details()).describe() == (
        "SQNR of the outputs by layer, 20 layers. Lowest: /conv1/Conv: 31.0 dB, left in float; "
        "/layer1/layer1.0/conv2/Conv: 40.7 dB, in low precision; /layer2/layer2.0/conv2/Conv: 44.3 dB, "
        "in low precision."
    )


def test_a_drop_of_the_metric_has_a_column_where_it_was_measured(samples: ModuleType) -> None:
    found = details(conv("a", 20.0, metric_drop=0.5), conv("b", 30.0))
    shown = sensitivity.sensitivity(samples.labelled(), found)
    assert shown.head == ("Layer", "Operator", "SQNR", "Drop of top-1 accuracy", "Kept as")
    assert [row[3] for row in shown.rows] == ["0.50 points", "not measured"]
    assert shown.bars[0].words == ("Conv", "SQNR 20.0 dB", "metric: 0.50 points", "int8")
    unlabelled = sensitivity.sensitivity(samples.unlabelled(), found)
    assert unlabelled.head[3] == "Metric drop"
    assert unlabelled.rows[0][3] == "0.5"


def test_layers_that_were_not_measured_are_counted(samples: ModuleType) -> None:
    shown = sensitivity.sensitivity(samples.labelled(), details(conv("a", None), conv("b", 30.0)))
    assert [(b.place, b.name) for b in shown.bars] == [(2, "b")]
    assert shown.lead.endswith(" 1 of 2 layers were not measured alone.")


def test_nothing_measured(samples: ModuleType, profiles: ModuleType) -> None:
    shown = sensitivity.sensitivity(samples.labelled(), profiles.bare_details())
    assert (shown.bars, shown.rows) == ((), ())
    assert shown.lead == "Sensitivity: not measured — no layer was quantized alone."


def test_figure_says_by_a_pattern_what_color_says(samples: ModuleType, profiles: ModuleType) -> None:
    figure = sensitivity.figure(sensitivity.sensitivity(samples.labelled(), profiles.details()))
    traces = {t["meta"]["role"]: t for t in figure["data"]}
    assert {role: t["marker"]["pattern"]["shape"] for role, t in traces.items()} == {"best": "", "fail": "/"}
    assert list(traces["fail"]["x"]) == [1, 20]
    assert list(traces["fail"]["y"]) == [31.0, 58.2]
    assert list(figure["layout"]["yaxis"]["range"]) == [25.0, 60.0]
    assert figure["layout"]["xaxis"]["ticktext"][1] == "…yer1.0/conv1/Conv"
    assert "template" not in figure["layout"]


def test_many_layers_are_numbered(samples: ModuleType) -> None:
    shown = sensitivity.sensitivity(samples.labelled(), details(*(conv(f"l{i}", 30.0 + i) for i in range(25))))
    axis = sensitivity.figure(shown)["layout"]["xaxis"]
    assert "ticktext" not in axis
    assert axis["tickformat"] == "d"


@pytest.mark.parametrize(
    ("values", "ends"),
    [((-3.0, 12.0), [-10.0, 15.0]), ((2.0, 200.0), [0.0, 5.0]), ((200.0,), [195.0, 205.0]),
     ((30.0, 40.0), [25.0, 45.0])],
)  # fmt: skip
def test_ends_of_the_axis(samples: ModuleType, values: tuple[float, ...], ends: list[float]) -> None:
    shown = sensitivity.sensitivity(samples.labelled(), details(*(conv(str(v), v) for v in values)))
    assert list(sensitivity.figure(shown)["layout"]["yaxis"]["range"]) == ends


def test_names_cannot_be_markup_in_the_chart(samples: ModuleType) -> None:
    shown = sensitivity.sensitivity(samples.labelled(), details(conv("<b>x</b>", 30.0)))
    figure = sensitivity.figure(shown)
    assert figure["data"][0]["hovertext"][0].startswith("<b>&lt;b&gt;x&lt;/b&gt;</b><br>")
    assert figure["layout"]["xaxis"]["ticktext"][0] == "&lt;b&gt;x&lt;/b&gt;"


def test_which_layers_are_in_float() -> None:
    assert sensitivity.in_float(conv("a", 1.0, precision="fp32"))
    assert sensitivity.in_float(conv("a", 1.0, precision="fp16", reason="slower in INT8"))
    assert not sensitivity.in_float(conv("a", 1.0))
