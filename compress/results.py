"""What a run found: the schema of ``results.json``. A number never travels without its unit, spread and reason."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = "1.0"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Metric(_Model):
    """A score on labelled data."""

    name: str
    unit: str = Field(description="'%' for accuracies, 'points' for correlations ×100, else the label's unit")
    higher_is_better: bool
    value: float
    drop: float | None = Field(
        description="baseline minus this, or the reverse where lower is better: positive is worse"
    )
    drop_low: float | None = Field(default=None, description="lower end of the drop's paired 95 % bootstrap interval")
    drop_high: float | None = Field(default=None, description="upper end of that interval")
    samples: int
    extra: dict[str, float] = Field(default_factory=dict, description="further scores from the same pass, such as top5")


class Fidelity(_Model):
    """How close the outputs are to the baseline's on the same inputs; needs no labels."""

    sqnr_db: float
    cosine: float
    max_abs: float
    top1_agreement: float | None = Field(description="0–1; null where outputs aren't classes")
    samples: int


class Latency(_Model):
    """Time of one inference at one batch size, in milliseconds, over all rounds."""

    median: float
    p90: float
    p99: float
    rounds: list[float] = Field(description="median of each round, in the order measured")
    runs: int = Field(description="timed inferences over all rounds; warm-up isn't counted")


class Throughput(_Model):
    """Samples a second at one batch size, back to back."""

    value: float
    low: float = Field(description="lower end of the 95 % bootstrap interval over rounds")
    high: float
    unit: Literal["samples/s"] = "samples/s"


class Memory(_Model):
    """Three different numbers, in MB (10^6 bytes), from a fresh process."""

    file: float | None = Field(description="the artifact's files on disk; null for an architecture without one")
    weights: float | None = Field(description="growth of resident memory by loading the model, before any inference")
    peak: float | None = Field(description="highest resident memory of the process during inference, less what it held "
                               "before the model was loaded")  # fmt: skip


class Ratio(_Model):
    """Speed against a baseline, pair by pair in the same rounds; above 1 is faster."""

    ratio: float
    low: float
    high: float
    batch: int


class Speedup(_Model):
    """Both baselines, so that a change of runtime isn't sold as compression. At the first batch size asked."""

    vs_torch: Ratio | None
    vs_runtime_fp32: Ratio | None
    by_batch: dict[str, dict[Literal["vs_torch", "vs_runtime_fp32"], Ratio | None]] = Field(default_factory=dict)


class Correction(_Model):
    """A correction that was tried on calibration samples held out from it, and kept only where the error fell."""

    name: str = Field(description="calibration:METHOD, smoothquant, equalization, bias correction, adaround")
    error_before: float = Field(description="noise power over signal power of the outputs, held-out samples")
    error_after: float
    kept: bool
    layers: int = Field(description="layers it changed")


class Layer(_Model):
    """One layer of the network, as a low-precision pass treated it."""

    name: str
    op: str
    precision: str = Field(description="what the pass made of it: int8, int4, fp16, bf16 or fp32")
    sqnr_db: float | None = Field(default=None, description="of the outputs with this layer alone quantized")
    metric_drop: float | None = Field(default=None, description="of the metric with this layer alone quantized")
    reason: str = Field(default="", description="why it was left in float; empty where it wasn't")


class Search(_Model):
    """The search for the fewest layers in float that bring the drop within the limit."""

    limit: float
    samples: int = Field(description="selection samples, none of them used for evaluation")
    evaluations: int
    drop: float = Field(description="on the selection samples, of what was chosen")
    met: bool
    explanation: str


class StageDetails(_Model):
    """What a low-precision pass measured before it decided."""

    corrections: list[Correction] = Field(default_factory=list)
    layers: list[Layer] = Field(default_factory=list, description="in the order of the graph")
    sensitivity_samples: int = Field(default=0, description="samples behind each layer's sqnr_db and metric_drop")
    search: Search | None = None


class StageResult(_Model):
    """What one stage did to the model."""

    stage: str
    config: dict[str, Any]
    seconds: float
    notes: list[str]
    difference: Fidelity | None = Field(description="against the parent artifact; null for the first stage")
    cached: bool = False
    details: StageDetails | None = None


class Verdict(_Model):
    """Whether a variant may ship."""

    status: Literal["best", "pass", "fail", "failed", "not judged"] = Field(
        description="best: the fastest that keeps the budget; pass: keeps it; fail: breaks it; "
        "failed: could not be made; not judged: a baseline, or a budget that could not be checked"
    )
    reasons: list[str]


class OpTime(_Model):
    """One operator as the runtime executes it, after its fusions."""

    name: str = Field(description="the runtime's own name of it")
    op: str = Field(description="the runtime's operator or kernel type, such as QLinearConv, Convolution, Reorder")
    kind: Literal["compute", "conversion", "other"] = Field(
        description="conversion: QuantizeLinear, DequantizeLinear, Cast, Reorder and other changes of type or layout"
    )
    precision: str = Field(description="what it really computes in: int8, fp32, bf16, fp16; empty where unknown")
    layers: list[str] = Field(description="names of the model's own nodes it was fused from, as far as known")
    ms: float = Field(description="median of one inference, in milliseconds")


class Profile(_Model):
    """Where the time of one inference goes, by the runtime's own profiler."""

    batch: int
    runs: int
    total_ms: float = Field(description="sum of the operators; profiling itself costs time, so it isn't the latency")
    ops: list[OpTime] = Field(description="in the order of execution")


class Entry(_Model):
    """The baseline or one variant."""

    name: str
    form: str
    target: str
    precision: str = Field(description="read from the file and the runner's facts, never from the request")
    artifact: str | None = Field(
        description="path inside the run folder; null for the user's own file or a failed stage"
    )
    size_bytes: int | None
    metric: Metric | None
    fidelity: Fidelity | None
    latency_ms: dict[str, Latency] | None
    throughput: dict[str, Throughput] | None
    memory_mb: Memory | None
    speedup: Speedup | None
    profile: Profile | None = None
    facts: dict[str, Any]
    stages: list[StageResult]
    verdict: Verdict
    reasons: dict[str, str] = Field(
        default_factory=dict, description="field → why it is null (not measured), for each null field above"
    )


class ModelInfo(_Model):
    """The model as it was handed over."""

    path: str
    name: str
    kind: str = Field(description="module, state_dict, checkpoint, torchscript, exported program, safetensors, onnx, …")
    code: str | None
    sha256: str
    parameters: int | None
    macs: int | None = Field(description="multiply-accumulates of one sample; null where they could not be counted")
    subnormal_weights: int = Field(
        description="non-zero weights below the smallest normal float32: they slow CPUs down"
    )
    inputs: list[str]
    outputs: list[str]
    notes: list[str]


class Budget(_Model):
    """What was asked, and whether it was met."""

    max_drop: float | None
    min_speedup: float | None
    max_latency_ms: float | None
    max_size_mb: float | None
    met: bool | None = Field(description="null where no budget was given")
    explanation: str


class Results(_Model):
    """All of a run. Written to ``results.json``; the report is made from it alone."""

    schema_version: str = SCHEMA_VERSION
    created: str = Field(description="ISO 8601, UTC")
    run: str = Field(description="name of the run folder")
    model: ModelInfo
    environment: dict[str, Any]
    baseline: Entry
    variants: list[Entry]
    best: str | None = Field(description="name of the variant in artifacts/best.*")
    budget: Budget
    notes: list[str] = Field(default_factory=list, description="what the user should know of the whole run")
    recipe: dict[str, Any] = Field(description="the recipe that reproduces the run")
    seconds: float


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of ``results.json``."""
    return Results.model_json_schema()
