"""Finding things in results: which entry is the reference, which batch is judged, why a value is missing."""

from __future__ import annotations

from typing import Literal

from compress.report.numbers import clean
from compress.results import Entry, Metric, Profile, Ratio, Results, StageDetails

_RUNTIMES = {
    "onnx": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch": "PyTorch",
    "tensorrt": "TensorRT",
    "tensorrt-rtx": "TensorRT-RTX",
}
Against = Literal["vs_torch", "vs_runtime_fp32"]
_METRICS = {"top1": "top-1 accuracy", "top5": "top-5 accuracy", "f1": "F1 score"}


def entries(results: Results) -> list[Entry]:
    """Return the baseline and the variants, in that order."""
    return [results.baseline, *results.variants]


def variant(results: Results, name: str | None) -> Entry | None:
    """Return the variant of that name; None where there is none."""
    return next((e for e in results.variants if e.name == name), None)


def plain(results: Results) -> Entry | None:
    """Return the variant that is the model in the target's runtime at FP32: a chain without passes."""
    chains = results.recipe.get("variants") or []
    names = [c["name"] for c in chains if isinstance(c, dict) and "name" in c and not c.get("passes")]
    found = (variant(results, n) for n in (*names, "fp32"))
    return next((e for e in found if e is not None), None)


def is_reference(results: Results, entry: Entry) -> bool:
    """Tell whether an entry is one of the two baselines, against which the others are measured."""
    return entry is results.baseline or entry is plain(results)


def judged_batch(results: Results) -> str:
    """Return the batch size at which speed is judged, as the results write it."""
    for entry in results.variants:
        ratio = runtime_ratio(entry)
        if ratio is not None:
            return str(ratio.batch)
    asked = results.recipe.get("batch")
    if isinstance(asked, (list, tuple)) and asked:
        return str(asked[0])
    return next((b for e in entries(results) for b in e.latency_ms or {}), "1")


def batches(results: Results) -> list[str]:
    """Return the batch sizes at which any entry was timed, in the order measured."""
    return list(dict.fromkeys(b for e in entries(results) for b in e.latency_ms or {}))


def runtime_ratio(entry: Entry) -> Ratio | None:
    """Return the speed against the target's runtime at FP32."""
    return entry.speedup.vs_runtime_fp32 if entry.speedup else None


def torch_ratio(entry: Entry) -> Ratio | None:
    """Return the speed against the model as it was handed over."""
    return entry.speedup.vs_torch if entry.speedup else None


def ratio(results: Results, entry: Entry, against: Against, batch: str) -> Ratio | None:
    """Return an entry's speed at a batch size against one of the two references; None where it wasn't measured.

    The model as handed over against the runtime at FP32 is the plain export's own comparison read the other way round:
    the same pairs.
    """
    found = _ratio(entry, against, batch)
    reference = plain(results)
    if found is None and against == "vs_runtime_fp32" and entry is results.baseline and reference is not None:
        other = _ratio(reference, "vs_torch", batch)
        if other is not None:
            return Ratio(ratio=1 / other.ratio, low=1 / other.high, high=1 / other.low, batch=other.batch)
    return found


def _ratio(entry: Entry, against: Against, batch: str) -> Ratio | None:
    if entry.speedup is None:
        return None
    if batch in entry.speedup.by_batch:
        return entry.speedup.by_batch[batch].get(against)
    first = entry.speedup.vs_torch if against == "vs_torch" else entry.speedup.vs_runtime_fp32
    return first if first is not None and str(first.batch) == batch else None


def runtime(entry: Entry) -> str:
    """Return the name of the runtime that an entry runs in."""
    return _RUNTIMES.get(entry.form, clean(entry.form))


def float_reference(results: Results) -> str:
    """Return how to call the fair baseline: ``FP32 on ONNX Runtime``."""
    reference = plain(results) or next(iter(results.variants), None)
    return f"FP32 on {runtime(reference)}" if reference else "FP32"


def metric_name(metric: Metric) -> str:
    """Return a metric's name for prose."""
    return _METRICS.get(metric.name, clean(metric.name).replace("_", " "))


def metric_title(metric: Metric) -> str:
    """Return a metric's name for the start of a sentence or the head of a column."""
    name = metric_name(metric)
    return name[:1].upper() + name[1:]


def profiles(results: Results, entry: Entry) -> tuple[Profile, Profile] | None:
    """Return the profiles of the float reference and of a variant; None where they cannot be compared."""
    reference = plain(results)
    if reference is None or entry is reference or reference.profile is None or entry.profile is None:
        return None
    return (reference.profile, entry.profile) if reference.profile.batch == entry.profile.batch else None


def detailed(results: Results) -> list[tuple[str, StageDetails]]:
    """Return the stages' details, each with what to call it: the variant, and the stage where it has several.

    A variant that goes on from another's stage holds the same details; they are given once, with the first.
    """
    found: list[tuple[str, StageDetails]] = []
    for entry in results.variants:
        stages = [(s.stage, s.details) for s in entry.stages if s.details is not None]
        for stage, details in stages:
            if all(details != known for _, known in found):
                name = clean(entry.name) if len(stages) == 1 else f"{clean(entry.name)}, {clean(stage)}"
                found.append((name, details))
    return found


def any_metric(results: Results) -> Metric | None:
    """Return the first metric measured; None where there were no labels."""
    return next((e.metric for e in entries(results) if e.metric is not None), None)


def reason(entry: Entry, *fields: str) -> str:
    """Return why a field is null: the reason of the first of ``fields`` that has one, without a full stop.

    A part of a field (``memory_mb.weights``) is explained by its own reason, else by that of the whole.
    """
    for field in fields:
        for name in (field, field.rpartition(".")[2], field.partition(".")[0]):
            if entry.reasons.get(name):
                return clean(entry.reasons[name]).strip().rstrip(".")
    if entry.verdict.status == "failed" and entry.verdict.reasons:
        return clean(entry.verdict.reasons[0]).strip().rstrip(".")
    return "no reason was recorded"


def missing(entry: Entry, *fields: str) -> str:
    """Return the text that stands where a number would."""
    return f"not measured — {reason(entry, *fields)}"
