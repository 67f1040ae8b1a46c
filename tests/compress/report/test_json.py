from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest

from compress.errors import StageError, UsageError
from compress.report.json import SCHEMA_FILE, read_results, schema_text, to_json


@pytest.mark.parametrize("sample", ["labelled", "unlabelled", "nothing_keeps_budget", "hostile"])
def test_results_come_back_equal_and_keep_the_published_schema(
    samples: ModuleType, sample: str, tmp_path: Path
) -> None:
    results = getattr(samples, sample)()
    file = tmp_path / "results.json"
    file.write_text(to_json(results), encoding="utf-8")
    assert read_results(file) == results
    assert read_results(tmp_path) == results
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(file.read_text(encoding="utf-8")), schema)


def test_the_published_schema_is_that_of_the_code() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()


def test_a_number_that_is_not_finite_is_refused(samples: ModuleType) -> None:
    results = samples.change(samples.labelled(), "int8", metric=samples.top1(float("nan"), 0.1))
    with pytest.raises(StageError, match=r"not finite: variants\.2\.metric\.value\."):
        to_json(results)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no valid JSON"),
        ("[]", "schema version none"),
        ('{"schema_version": "9.9"}', "schema version 9.9"),
        ('{"schema_version": "1.0"}', "does not hold results of a run: created: Field required"),
    ],
)
def test_what_is_no_results_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "results.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_results(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json cannot be read: No such file"):
        read_results(tmp_path / "none.json")
