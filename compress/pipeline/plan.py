"""From a recipe to what will be done: the target, the variants and their passes. The one place that knows the order."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

from compress.artifact import Form
from compress.errors import UsageError
from compress.passes.table import PASSES, make_pass
from compress.recipe import PassSpec, Recipe, VariantSpec, parse_variant
from compress.runners.targets import TARGETS, Target
from compress.stage import Exporter, Pass
from exporters.onnx import OnnxExporter
from exporters.openvino import OpenVinoExporter

FLOAT = "fp32"
"""Name of the variant that is only exported: the baseline in the target's own runtime."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """A variant whose settings have been checked."""

    name: str
    passes: tuple[Pass, ...]


def choose_target(name: str) -> tuple[Target, str]:
    """Return the target and, for ``auto``, the sentence that says why it was chosen.

    Raises:
        UsageError: The target's package isn't installed.
    """
    if name == "auto":
        # Ordered by what measured fastest on CPUs; see TARGETS.
        for candidate in ("openvino", "ort-cpu"):
            if importlib.util.find_spec(TARGETS[candidate].module):
                return TARGETS[candidate], f"Target {candidate}: the fastest CPU runtime that is installed."
    target = TARGETS["ort-cpu" if name == "auto" else name]
    if importlib.util.find_spec(target.module) is None:
        raise UsageError(f"Target {target.name} needs the package {target.module}.", f"pip install {target.module}")
    return target, ""


def plan_variants(recipe: Recipe, target: Target) -> tuple[tuple[Variant, ...], tuple[str, ...]]:
    """Return the variants to make, the plain export first, and what to tell the user about the choice.

    Raises:
        UsageError: A variant names an unknown pass or a wrong setting, or needs data that wasn't given.
    """
    specs, notes = (recipe.variants, ()) if recipe.variants is not None else _default(recipe, target)
    variants = [Variant(s.name, tuple(make_pass(_filled(p, recipe)) for p in s.passes)) for s in specs]
    if all(v.passes for v in variants):
        variants.insert(0, Variant(FLOAT, ()))
    variants.sort(key=lambda v: bool(v.passes))  # stable: the plain export first
    for variant in variants:
        _check(variant, recipe, target)
    return tuple(variants), notes


def exporters_for(recipe: Recipe, have: Form, wanted: Form) -> tuple[Exporter, ...]:
    """Return the exporters that lower ``have`` to ``wanted``, in order; none where they are the same.

    Raises:
        UsageError: There is no way from one to the other.
    """
    to_onnx = OnnxExporter(opset=recipe.opset, optimize=recipe.optimize, external_data_mb=recipe.external_data_mb)
    ways: dict[tuple[Form, Form], tuple[Exporter, ...]] = {
        (Form.TORCH, Form.ONNX): (to_onnx,),
        (Form.TORCH, Form.OPENVINO): (to_onnx, OpenVinoExporter()),
        (Form.ONNX, Form.OPENVINO): (OpenVinoExporter(),),
    }
    if have is wanted:
        return ()
    if (have, wanted) not in ways:
        raise UsageError(f"A {have.value} file cannot be turned into a {wanted.value} file.")
    return ways[have, wanted]


def _filled(spec: PassSpec, recipe: Recipe) -> PassSpec:
    """Return a pass's settings with those of the run put in that it may need."""
    of_run: dict[str, dict[str, Any]] = {
        "int8": {"max_drop": recipe.max_drop},
        "mixed_precision": {"io_types": recipe.io_types},
    }
    known = of_run.get(spec.name, {})
    given = {key: value for key, value in known.items() if value is not None}
    return PassSpec(name=spec.name, settings={**given, **spec.settings})


def _default(recipe: Recipe, target: Target) -> tuple[tuple[VariantSpec, ...], tuple[str, ...]]:
    names, notes = [FLOAT], []
    low = _low_precision(target)
    if low:
        names.append(low)
    if recipe.calibration or recipe.train or recipe.data:
        names.append("int8")
        if recipe.train and "prune" in PASSES:
            names += ["pruned", "pruned-int8"]
    else:
        notes.append("int8 was left out: it needs calibration data (--calibration, --train or --data).")
    return tuple(parse_variant(n) for n in names), tuple(notes)


def _low_precision(target: Target) -> str:
    """Return the first of the target's low precisions that this machine can compute or store."""
    for precision in target.precisions:
        if precision != "bf16" or (target.form is Form.OPENVINO and computes_bf16()):
            return precision
    return ""


def computes_bf16() -> bool:
    """Return whether OpenVINO says that this CPU computes in BF16."""
    import openvino

    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def _check(variant: Variant, recipe: Recipe, target: Target) -> None:
    for step in variant.passes:
        settings = step.model_dump()
        precision = settings.get("precision")
        if precision and precision not in target.precisions:
            raise UsageError(
                f"Variant {variant.name}: {precision} is not to be had on target {target.name}.",
                f"It can do {', '.join(target.precisions)}.",
            )
        if precision == "bf16" and not computes_bf16():
            raise UsageError(f"Variant {variant.name}: this CPU has no BF16 arithmetic.", "Leave it out, or use fp16.")
        if step.kind == "int8" and not (recipe.calibration or recipe.train or recipe.data):
            raise UsageError(
                f"Variant {variant.name} needs calibration data.", "Give --calibration, --train or --data."
            )
