from __future__ import annotations

from types import ModuleType

import pytest

from compress.report import chips, explain
from compress.results import Profile, Ratio, Results, Verdict


def test_headline_of_a_variant_that_keeps_the_budget(samples: ModuleType) -> None:
    assert explain.headline(samples.labelled()) == (
        "good",
        "Ship int8: 2.94× faster than FP32 on ONNX Runtime (95 % interval 2.88–3.00), "
        "top-1 accuracy drop 0.10 points (inside the noise, 95 % interval −0.04 to 0.24).",
    )


def test_details_name_the_other_baseline(samples: ModuleType) -> None:
    assert explain.details(samples.labelled()) == [
        "Against the model as it was handed over: 5.40× faster than PyTorch (95 % interval 5.29–5.51), "
        "the change of runtime included.",
        "Budget: int8 is the fastest variant that keeps it.",
    ]


def test_headline_without_labels_or_budget_ships_nothing_and_says_what_is_missing(samples: ModuleType) -> None:
    results = samples.unlabelled()
    tone, text = explain.headline(results)
    assert tone == "good"
    assert text == (
        "Best choice: int8: 2.94× faster than FP32 on ONNX Runtime (95 % interval 2.88–3.00), outputs within 2.75 % "
        "of the baseline's (SQNR 31.2 dB, top-1 agreement 98.71 %)."
    )
    assert "Accuracy: not measured — the data has no labels." in explain.details(results)


def test_no_variant_keeps_the_budget(samples: ModuleType) -> None:
    results = samples.nothing_keeps_budget()
    assert explain.headline(results) == ("bad", "No variant keeps the budget.")
    assert explain.obstacles(results)[:2] == [
        "fp32: 1.16 MB, at most 0.15 MB allowed.",
        "fp16: 0.97× the runtime's FP32 (0.96–0.99), at least 2× asked.",
    ]


def test_nothing_is_recommended_although_a_slow_variant_keeps_the_budget(samples: ModuleType) -> None:
    results = samples.nothing_keeps_budget()
    results = samples.change(results, "fp16", verdict=Verdict(status="pass", reasons=["drop −0.01"]))
    assert explain.headline(results)[1] == "No variant is recommended."


def test_every_variant_failed(samples: ModuleType) -> None:
    results = samples.labelled()
    results = results.model_copy(update={"variants": results.variants[-1:], "best": None})
    assert explain.headline(results) == ("bad", "No variant could be made.")


def best_with_ratio(
    samples: ModuleType, ratio: Ratio | None, name: str = "int8", field: str = "vs_runtime_fp32"
) -> Results:
    results = samples.labelled()
    entry = next(e for e in results.variants if e.name == name)
    speedup = entry.speedup.model_copy(update={field: ratio})
    return samples.change(results, name, speedup=speedup).model_copy(update={"best": name})


def test_a_best_that_is_slower_is_never_something_to_ship(samples: ModuleType) -> None:
    tone, text = explain.headline(best_with_ratio(samples, Ratio(ratio=0.8, low=0.78, high=0.82, batch=1)))
    assert tone == "warn"
    assert text.startswith("int8 is the best choice of this run but slower than FP32 on ONNX Runtime: 0.80× its speed")
    assert "Ship" not in text


def test_a_best_inside_the_noise_says_so(samples: ModuleType) -> None:
    tone, text = explain.headline(best_with_ratio(samples, Ratio(ratio=1.01, low=0.97, high=1.05, batch=1)))
    assert tone == "warn"
    assert "as fast as FP32 on ONNX Runtime within the noise (1.01×, 95 % interval 0.97–1.05)" in text


def test_the_plain_export_as_best_is_compared_with_the_model_as_handed_over(samples: ModuleType) -> None:
    text = explain.headline(best_with_ratio(samples, samples.ratio(1.84), "fp32", "vs_torch"))[1]
    assert text.startswith("Ship fp32, the uncompressed model in ONNX Runtime: 1.84× faster than PyTorch")
    slower = Ratio(ratio=0.7, low=0.6, high=0.8, batch=1)
    tone, text = explain.headline(best_with_ratio(samples, slower, "fp32", "vs_torch"))
    assert tone == "warn"
    assert "slower than PyTorch: 0.70× its speed" in text
    assert "Ship" not in text


@pytest.mark.parametrize(
    ("bounds", "said"),
    [((2.0, 2.2), "faster than"), ((0.5, 0.9), "slower than"), ((0.9, 1.0), "within the noise"),
     ((1.0, 1.1), "within the noise")],
)  # fmt: skip
def test_an_interval_that_includes_1_is_noise(bounds: tuple[float, float], said: str) -> None:
    low, high = bounds
    assert said in explain.speed(Ratio(ratio=(low + high) / 2, low=low, high=high, batch=1), "FP32")


def test_a_gain_is_no_negative_drop(samples: ModuleType) -> None:
    assert explain.drop(samples.top1(93.0, -0.4, -0.6, -0.2)) == (
        "top-1 accuracy better by 0.40 points (95 % interval −0.60 to −0.20)"
    )


def test_metrics_with_units_of_their_own(samples: ModuleType) -> None:
    metric = samples.top1(3.21, 0.0123, 0.001, 0.024).model_copy(
        update={"name": "mean_absolute_error", "unit": "°C", "higher_is_better": False}
    )
    assert explain.metric_value(metric) == "3.21 °C"
    assert explain.drop(metric) == "mean absolute error rise 0.0123 °C (95 % interval 0.0010–0.0240)"


def test_why_a_slow_variant_is_slow(samples: ModuleType) -> None:
    results = samples.labelled()
    why = explain.why(results, results.variants[1])
    assert why[1] == "It is slower than FP32 on ONNX Runtime."
    assert why[2] == (
        "Most of the lost time: 19 conversions that take 0.114 ms (before: 2, 0.0160 ms), and "
        "/layer1/layer1.0/conv1/Conv (Conv) 0.0973 → 0.147 ms."
    )
    assert why[3].startswith("fp16 on ort-cpu is storage only")


def test_a_variant_that_is_faster_has_no_lost_time(samples: ModuleType) -> None:
    results = samples.labelled()
    assert "lost time" not in " ".join(explain.why(results, results.variants[2]))


def test_lost_time_names_new_operators_and_leaves_out_small_losses(profiles: ModuleType) -> None:
    assert explain.lost_time(profiles.fp32(), profiles.int8()) == (
        "Most of the lost time: 9 new QLinearAdd 0.0360 ms, and /GlobalAveragePool (QLinearGlobalAveragePool) "
        "0.00300 → 0.00500 ms."
    )
    assert explain.lost_time(profiles.fp32(), profiles.fp32()) == ""
    one = profiles.op("/a/Conv", "compute", 1.0, layers=("/a/Conv",))
    small = profiles.op("/b/Conv", "compute", 1.0, layers=("/b/Conv",))
    cast = profiles.op("Cast", "conversion", 0.5, layers=("/a/Conv",))
    after = profiles.profile(one.model_copy(update={"ms": 3.0}), small.model_copy(update={"ms": 1.1}), cast)
    assert explain.lost_time(profiles.profile(one, small), after) == (
        "Most of the lost time: /a/Conv (Conv) 1.00 → 3.00 ms, and 1 conversion that takes 0.500 ms."
    )


def test_at_most_three_losses_are_named_beside_the_conversions(profiles: ModuleType) -> None:
    def side(ms: float) -> Profile:
        ops = [profiles.op(f"/{n}/Conv", "compute", ms, layers=(f"/{n}/Conv",)) for n in range(10)]
        return profiles.profile(*ops)  # type: ignore[no-any-return]

    said = explain.lost_time(side(1.0), side(2.0))
    assert said.startswith("The largest losses of time: ")
    assert said.count("1.00 → 2.00 ms") == 3


def test_time_by_kind(profiles: ModuleType) -> None:
    assert explain.spent_time(profiles.fp32(), profiles.int8()) == (
        "compute 1.45 → 0.387 ms, conversions 0.0160 → 0.0130 ms, other operators 0.00300 → 0.0410 ms "
        "(profiled, batch 1)"
    )


def test_where_the_difference_arose(samples: ModuleType) -> None:
    results = samples.labelled()
    assert (
        explain.where(results.variants[3]) == "Most of the difference arose in prune: it changed the outputs by 38 %."
    )
    assert explain.where(results.variants[0]) == "No stage changed the outputs by 0.001 % or more."
    assert explain.where(results.baseline) == ""


def test_how_it_was_measured_counts_rounds_and_samples(samples: ModuleType) -> None:
    text = " ".join(explain.how_measured(samples.labelled()))
    assert "7 rounds" in text
    assert "350 timed inferences" in text
    assert "10,000 samples" in text


def test_names_keep_their_spelling_at_the_start_of_a_sentence() -> None:
    assert explain.sentence("int8 is fast") == "int8 is fast."
    assert explain.sentence("the fastest") == "The fastest."
    assert explain.sentence("mixed_precision failed.") == "mixed_precision failed."


def test_chips_of_a_budget_that_is_met(samples: ModuleType) -> None:
    assert chips.budget_chips(samples.labelled()) == [
        chips.Chip("top-1 accuracy drop ≤ 0.5 points", "0.10 points", "met"),
        chips.Chip("speed-up ≥ 1.5×", "2.94×", "met"),
        chips.Chip("size ≤ 0.5 MB", "0.331 MB", "met"),
    ]


def test_chips_of_a_budget_that_is_not_met_show_how_near_it_was(samples: ModuleType) -> None:
    assert chips.budget_chips(samples.nothing_keeps_budget()) == [
        chips.Chip("top-1 accuracy drop ≤ 0.05 points", "−0.01 points (fp16)", "open"),
        chips.Chip("speed-up ≥ 2×", "3.96× (pruned-int8)", "open"),
        chips.Chip("size ≤ 0.15 MB", "nearest: 0.184 MB (pruned-int8)", "not met"),
    ]
    assert chips.budget_chips(samples.unlabelled()) == []
