"""Every pass by the name a recipe uses. Adding one is adding a line here."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from compress.errors import UsageError
from compress.passes.int8.quantize import Int8
from compress.passes.mixed_precision import MixedPrecision
from compress.recipe import PassSpec
from compress.stage import Pass

PASSES: dict[str, type[Pass]] = {
    "int8": Int8,
    "mixed_precision": MixedPrecision,
}


def make_pass(spec: PassSpec) -> Pass:
    """Return the pass that ``spec`` names, with its settings checked.

    Raises:
        UsageError: No such pass, or a setting it doesn't have or that is out of range.
    """
    kind = PASSES.get(spec.name)
    if kind is None:
        raise UsageError(f"'{spec.name}' is no pass or variant.", f"Known: fp32, fp16, bf16, {', '.join(PASSES)}.")
    try:
        return kind.model_validate(spec.settings)
    except ValidationError as error:
        raise UsageError(f"Pass {spec.name}: {'; '.join(map(_problem, error.errors()))}.") from error


def _problem(item: Any) -> str:
    where = ".".join(map(str, item["loc"]))
    return f"{where}: {item['msg'].removeprefix('Value error, ').lower()}, not {item['input']!r}"
