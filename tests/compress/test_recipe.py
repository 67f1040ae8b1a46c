"""Recipes: what is refused, with which words, and that YAML and flags say the same."""

from __future__ import annotations

import pytest

from compress.errors import UsageError
from compress.recipe import Recipe, load_recipe, make_recipe, parse_variant


def test_round_trip_through_yaml(tmp_path):
    recipe = make_recipe(
        {
            "model": "m.pt",
            "variants": ["fp32", "int8", "tight=int8:calibration=percentile:percentile=99.9"],
            "batch": [1, 4],
            "max_drop": 0.5,
            "preprocess": {"mean": [0.5], "std": [0.5]},
        }
    )
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml(), encoding="utf-8")
    assert load_recipe(file) == recipe


def test_flags_win_over_the_file(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text("model: a.pt\nrounds: 9\nseed: 3\n", encoding="utf-8")
    recipe = load_recipe(file, {"rounds": 4})
    assert (recipe.rounds, recipe.seed) == (4, 3)


def test_paths_are_relative_to_the_recipe(tmp_path):
    (tmp_path / "m.pt").write_bytes(b"x")
    (tmp_path / "net.py").write_text("", encoding="utf-8")
    file = tmp_path / "r.yaml"
    file.write_text("model: m.pt\ncode: net.py:Net\npreprocess: imagenet\ndata: nowhere\n", encoding="utf-8")
    recipe = load_recipe(file)
    assert recipe.model == str(tmp_path / "m.pt")
    assert recipe.code == f"{tmp_path / 'net.py'}:Net"
    assert recipe.preprocess == "imagenet"
    assert recipe.data == "nowhere"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"targett": "openvino"}, "'targett' is no setting"),
        ({"target": "banana"}, "'auto', 'ort-cpu' or 'openvino'"),
        ({"max_drop": float("nan")}, "max_drop"),
        ({"max_drop": -1}, "max_drop"),
        ({"min_speedup": float("inf")}, "finite"),
        ({"batch": [0]}, "whole numbers from 1"),
        ({"batch": []}, "whole numbers from 1"),
        ({"samples": 0}, "samples"),
        ({"rounds": 1}, "rounds"),
        ({"threads": 0}, "threads"),
        ({"variants": ["int8", "int8"]}, "two variants are called int8"),
        ({"variants": ["best=int8"]}, "name of the report's own"),
        ({"variants": ["../x=int8"]}, "name"),
        ({"variants": ["a=int8:percentile"]}, "is no setting"),
        ({"variants": ["a=int8:calibration=[["]}, "is no value for calibration"),
        ({"seed": 10**23}, "seed"),
    ],
)
def test_refused_with_the_setting_named(settings, words):
    with pytest.raises(UsageError, match=words.replace("(", r"\(")) as caught:
        make_recipe({"model": "m.pt", **settings})
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (": :", "no valid YAML"),
        ("- a", "must be a mapping"),
        ("model: [", "no valid YAML"),
        ("seed: 2024-99-99", "cannot be read"),
    ],
)
def test_files_that_are_no_recipe(tmp_path, text, words):
    file = tmp_path / "r.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=words):
        load_recipe(file)


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load_recipe(tmp_path / "none.yaml")


def test_variant_grammar():
    assert [p.name for p in parse_variant("int8").passes] == ["int8"]
    assert parse_variant("fp32").passes == ()
    assert parse_variant("fp16").passes[0].settings == {"precision": "fp16"}
    assert [p.name for p in parse_variant("pruned-int8").passes] == ["prune", "recover", "int8"]
    mixed = parse_variant("both=int8:keep_float=[head, stem]+mixed_precision:precision=fp16")
    assert mixed.name == "both"
    assert mixed.passes[0].settings == {"keep_float": ["head", "stem"]}
    assert parse_variant(str(mixed)) == mixed


def test_the_recipe_cannot_be_changed():
    recipe = Recipe(model="m.pt")
    with pytest.raises(ValueError, match="frozen"):
        recipe.model = "other"
