"""From what was made and measured to the entries of the results, with a reason for everything that wasn't measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from compress.artifact import Artifact, Form, StageRecord
from compress.pipeline.profiles import Profiled
from compress.pipeline.score import Scored
from compress.results import Entry, Fidelity, Ratio, Speedup, StageDetails, StageResult, Verdict
from compress.runners.onnx_file import precision_of
from evaluators.harness import Timings
from evaluators.statistics import latency, paired_ratio, throughput

_COMPARED_WITH = "the baseline is what others are compared with"


@dataclasses.dataclass(frozen=True)
class Made:
    """One model of the comparison, as far as it got.

    Attributes:
        name: Its name in the results.
        target: Where it runs.
        artifact: The file that is measured; None where it could not be made.
        published: Its path inside the run folder; None where it is the user's own.
        scored: Accuracy and fidelity; None where it failed.
        failure: Why it failed; empty where it didn't.
        cached: Records of stages whose result came from the cache.
    """

    name: str
    target: str
    artifact: Artifact | None
    published: str | None = None
    scored: Scored | None = None
    failure: str = ""
    cached: Sequence[StageRecord] = ()


@dataclasses.dataclass(frozen=True)
class Bases:
    """What speed is compared with.

    Attributes:
        torch: Timings of the model as it was handed over; None where that isn't a torch model.
        plain: Timings of the plain export in the target's runtime; None where it could not be made.
        no_metric: Why nothing was scored; empty where something was.
    """

    torch: Timings | None
    plain: Timings | None
    no_metric: str
    seed: int


def entry_of(
    made: Made, timings: Timings | None, profiled: Profiled | None, bases: Bases, *, is_baseline: bool = False
) -> Entry:
    """Return the entry of one model."""
    reasons: dict[str, str] = {}
    artifact = made.artifact
    facts: dict[str, Any] = dict(timings.facts) if timings is not None else {}
    if timings is not None and timings.load_seconds is not None:
        facts["load_seconds"] = round(timings.load_seconds, 3)
    failed = made.failure or (timings.failure if timings is not None else "") or ""
    metric = made.scored.metric if made.scored else None
    if metric is None:
        reasons["metric"] = made.failure or bases.no_metric
    elif metric.drop is None:
        reasons["metric.drop"] = _COMPARED_WITH
    fidelity = made.scored.fidelity if made.scored else None
    if fidelity is None:
        reasons["fidelity"] = _COMPARED_WITH if is_baseline else failed
    rounds = timings.rounds if timings is not None else {}
    latencies = {str(b): latency(r) for b, r in rounds.items()} or None
    rates = {str(b): throughput(r, b, bases.seed) for b, r in rounds.items()} or None
    memory = timings.memory if timings is not None else None
    for field, value in (("latency_ms", latencies), ("throughput", rates), ("memory_mb", memory)):
        if value is None:
            reasons[field] = failed or "it was not timed"
    for batch, why in (timings.skipped if timings is not None else {}).items():
        reasons[f"latency_ms.{batch}"] = why
    if profiled is None or profiled.found is None:
        reasons["profile"] = failed or (profiled.reason if profiled is not None else "it was not profiled")
    speedup = _speedup(rounds, timings, bases, reasons, failed)
    size = artifact.size_bytes if artifact is not None and artifact.path.is_file() else None
    if artifact is None:
        reasons |= {"artifact": failed, "size_bytes": failed}
    elif size is None:
        no_file = "an architecture without a weights file"
        reasons |= {"artifact": no_file, "size_bytes": no_file, "memory_mb.file": no_file}
    elif made.published is None:
        reasons["artifact"] = "the user's own file"
    return Entry(
        name=made.name,
        form=artifact.form.value if artifact else "none",
        target=made.target,
        precision=precision_label(artifact, facts) if artifact else "none",
        artifact=made.published,
        size_bytes=size,
        metric=metric,
        fidelity=fidelity,
        latency_ms=latencies,
        throughput=rates,
        memory_mb=memory,
        speedup=speedup,
        profile=profiled.found if profiled is not None else None,
        facts=facts,
        stages=_stages(artifact, made.cached),
        verdict=Verdict(status="failed" if failed else "not judged", reasons=[failed] if failed else []),
        reasons=reasons,
    )


def precision_label(artifact: Artifact, facts: Mapping[str, Any]) -> str:
    """Return the precision, from the file and from what the runtime says it runs; both where they differ."""
    ran = _ran(facts.get("precisions", {}))
    if artifact.form is Form.ONNX:
        held = precision_of(artifact.path).removesuffix(" (QDQ)")
        lower = {"fp16", "bf16"} & set(held.split("+"))
        return f"{held} file, computed in {ran}" if lower and ran and not lower & set(ran.split("+")) else held
    return ran or "unknown"


_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "f32": "fp32", "f16": "fp16"}
_SHORT |= {"i8": "int8", "u8": "int8"}
_ORDER = ("int4", "int8", "bf16", "fp16", "fp32", "float64")


def _ran(precisions: Mapping[str, int]) -> str:
    """Return the precisions that operators run in, lowest first; one with less than a tenth of them isn't named."""
    counts: dict[str, int] = {}
    for name, count in precisions.items():
        short = _SHORT.get(name, name)
        if short in _ORDER:
            counts[short] = counts.get(short, 0) + count
    total = sum(counts.values())
    return "+".join(p for p in _ORDER if counts.get(p, 0) * 10 >= total and counts.get(p))


def _speedup(
    rounds: Mapping[int, Any], timings: Timings | None, bases: Bases, reasons: dict[str, str], failed: str
) -> Speedup | None:
    if not rounds:
        reasons["speedup"] = failed or "it was not timed"
        return None
    by_batch = {
        str(batch): {
            "vs_torch": _ratio(bases.torch, timings, batch, bases.seed),
            "vs_runtime_fp32": _ratio(bases.plain, timings, batch, bases.seed),
        }
        for batch in rounds
    }
    first = next(iter(by_batch.values()))
    if first["vs_torch"] is None:
        reasons["speedup.vs_torch"] = _why_not(bases.torch, "the model was not handed over as a torch model")
    if first["vs_runtime_fp32"] is None:
        reasons["speedup.vs_runtime_fp32"] = _why_not(bases.plain, "the plain export could not be made")
    return Speedup.model_validate({**first, "by_batch": by_batch})


def _why_not(base: Timings | None, otherwise: str) -> str:
    return (base.failure if base is not None else None) or otherwise


def _ratio(base: Timings | None, variant: Timings | None, batch: int, seed: int) -> Ratio | None:
    if base is None or variant is None or batch not in base.rounds:
        return None
    return paired_ratio(base.rounds[batch], variant.rounds[batch], batch, seed)


def _stages(artifact: Artifact | None, cached: Sequence[StageRecord]) -> list[StageResult]:
    records = artifact.lineage if artifact is not None else ()
    return [
        StageResult(
            stage=r.stage,
            config=dict(r.config),
            seconds=r.seconds,
            notes=list(r.notes),
            difference=Fidelity(**dataclasses.asdict(r.difference)) if r.difference else None,
            cached=r in cached,
            details=StageDetails.model_validate(r.details) if r.details else None,
        )
        for r in records
    ]
