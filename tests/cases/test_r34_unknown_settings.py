"""R34, microsoft/winml-cli#555: what isn't known is refused at once with what is allowed; labels come from the file."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--variants", "banana"], "Known: fp32, fp16, bf16, int8"),
        (["--variants", "x=int8:bits=3"], "bits"),
        (["--variants", "x=int8:percentile=1.5"], "percentile"),
        (["--variants", "x=mixed_precision:precision=fp12"], "'fp16' or 'bf16'"),
        (["--variants", "bf16", "--target", "ort-cpu"], "bf16 is not to be had on target ort-cpu. It can do fp16"),
        (["--target", "gpu9000"], "'auto', 'ort-cpu' or 'openvino'"),
        (["--max-drop", "nan"], "max_drop"),
        (["--min-speedup", "-2"], "min_speedup"),
        (["--batch", "1,two"], "--batch takes whole numbers"),
        (["--batch", "0"], "whole numbers from 1"),
        (["--metric", "banana", "--data", "DATA"], "banana"),
        (["--preprocess", "banana"], "banana"),
        (["--opset", "9000"], "opset"),
        (["--max-drop", "1"], "--max-drop needs labelled evaluation data"),
        (["--nonsense"], "--nonsense"),
        (["--variants", "int8"], "needs calibration data"),
    ],
)
def test_refused_with_exit_2_and_one_sentence(cli, small_model, small_data, tmp_path, arguments, words):
    given = [str(small_data) if a == "DATA" else a for a in arguments]
    done = cli("run", small_model, "--out", "r", *given, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "r").exists()
    assert done.stdout == ""


def test_a_misspelt_key_in_a_recipe(cli, small_model, tmp_path):
    (tmp_path / "r.yaml").write_text(f"model: {small_model}\nmax_dorp: 1\n", encoding="utf-8")
    done = cli("run", "--recipe", "r.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "'max_dorp' is no setting of a recipe" in done.stderr


def test_labels_are_read_from_what_ran(finished):
    """fp16 was asked for on a runtime without such kernels; the label says what ran."""
    from compress.report import read_results

    by_name = {v.name: v for v in read_results(finished[0]).variants}
    assert by_name["fp16"].precision == "fp16 file, computed in fp32"
    assert by_name["int8"].facts["precisions"]["int8"] >= 3
