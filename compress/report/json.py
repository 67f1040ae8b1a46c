"""Results as JSON: writing, reading back, and the published schema."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compress.errors import StageError, UsageError
from compress.results import SCHEMA_VERSION, Results, json_schema

SCHEMA_FILE = Path(__file__).with_name("results.schema.json")
"""The published schema; a copy of :func:`schema_text`."""


def to_json(results: Results) -> str:
    """Return the text of ``results.json``.

    Raises:
        StageError: A number is NaN or infinite: JSON cannot hold it, and a report must not hide it behind a null.
    """
    data = results.model_dump(mode="json")
    broken = [".".join(where) for where in _not_finite(data, ())]
    if broken:
        raise StageError(
            f"The results hold a number that is not finite: {', '.join(broken[:5])}.",
            "The measurement behind it failed; run it again, or leave the variant out.",
        )
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")  # file names may hold bytes that are no UTF-8


def read_results(path: Path) -> Results:
    """Read ``results.json``, or the one in the run folder ``path``.

    Raises:
        UsageError: There is no such file, it is damaged, or it has another schema version.
    """
    file = path / "results.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror or error}.", "Name a run folder or its results.json."
        ) from error
    except ValueError as error:
        raise UsageError(f"{file} is no valid JSON (damaged or incomplete).", "Run the command again.") from error
    found = data.get("schema_version") if isinstance(data, dict) else None
    if found != SCHEMA_VERSION:
        raise UsageError(
            f"{file} has schema version {found or 'none'}; this compress reads {SCHEMA_VERSION}.",
            "Use the version of compress that wrote it, or run again.",
        )
    try:
        return Results.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{file} does not hold results of a run: {where}: {first['msg']}.") from error


def schema_text() -> str:
    """Return the JSON schema of ``results.json`` as it is published."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **json_schema()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _not_finite(value: Any, where: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield where
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, (*where, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_finite(item, (*where, str(index)))
