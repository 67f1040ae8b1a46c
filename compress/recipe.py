"""The typed recipe that YAML and flags both become."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from compress.errors import UsageError

TargetName = Literal["auto", "ort-cpu", "openvino"]


_PATHS = ("model", "code", "data", "calibration", "train", "preprocess", "metric")
"""Fields that may name a file."""


class PassSpec(BaseModel):
    """One pass of a variant's chain, by name, with its settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    settings: dict[str, Any] = Field(default_factory=dict)


class VariantSpec(BaseModel):
    """A variant: a name and a chain of passes. An empty chain is the model in the target's runtime at FP32."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    passes: tuple[PassSpec, ...] = ()

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name in ("best", "baseline", "torch"):
            raise ValueError(f"'{name}' is a name of the report's own; choose another")
        return name

    def __str__(self) -> str:
        def written(p: PassSpec) -> str:
            return ":".join([p.name, *(f"{k}={_flow(v)}" for k, v in p.settings.items())])

        return f"{self.name}={'+'.join(map(written, self.passes))}"


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=math.inf).splitlines()[0]


def _value(key: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(
            f"--variants: '{text}' is no value for {key}.", "Write a number, a word or [a, list]."
        ) from error


def parse_variant(text: str) -> VariantSpec:
    """Read ``NAME`` or ``NAME=PASS[:key=value…][+PASS…]``, as ``--variants`` takes it.

    ``int8`` alone means ``int8=int8``, ``fp32`` alone the empty chain; ``a-b`` alone the chain ``a+b``
    (``pruned-int8`` is ``prune+recover+int8``).
    """
    name, equals, chain = text.strip().partition("=")
    if not equals:
        known = (p for part in name.split("-") for p in _SHORT.get(part, (PassSpec(name=part),)))
        return VariantSpec(name=name, passes=tuple(known))
    passes: list[PassSpec] = []
    for link in filter(None, chain.split("+")):
        pass_name, *settings = link.split(":")
        pairs = [s.partition("=") for s in settings]
        wrong = [k for k, eq, _ in pairs if not eq]
        if wrong:
            raise UsageError(f"--variants: '{wrong[0]}' in '{text}' is no setting.", "Write PASS:key=value.")
        passes.append(PassSpec(name=pass_name, settings={k: _value(k, v) for k, _, v in pairs}))
    return VariantSpec(name=name, passes=tuple(passes))


_SHORT: dict[str, tuple[PassSpec, ...]] = {
    "fp32": (),
    "fp16": (PassSpec(name="mixed_precision", settings={"precision": "fp16"}),),
    "bf16": (PassSpec(name="mixed_precision", settings={"precision": "bf16"}),),
    "pruned": (PassSpec(name="prune"), PassSpec(name="recover")),
}
"""Short names of chains, as they may be joined with ``-`` in a variant's name."""


class Recipe(BaseModel):
    """Everything that decides a run. Each field is a flag of ``compress run`` and the other way round."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(description="file to compress, or an architecture such as torchvision:resnet50")
    code: str = Field(default="", description="FILE.py:factory, package.module:factory, torchvision:NAME, timm:NAME")
    input: tuple[str, ...] = Field(default=(), description="input specs: 1x3x32x32, ids:int64:1x128")
    data: str | None = Field(default=None, description="evaluation data")
    calibration: str | None = Field(default=None, description="calibration data; else drawn from train or data, said")
    train: str | None = Field(default=None, description="training data")
    samples: int = Field(default=300, ge=1, description="calibration samples")
    selection_samples: int = Field(
        default=5000, ge=1, description="samples that searches within max_drop are judged on"
    )
    eval_samples: int | None = Field(default=None, ge=1, description="evaluation samples; all where not given")
    preprocess: str | dict[str, Any] | None = Field(default=None, description="preset, file, or settings")
    bad_samples: Literal["stop", "skip"] = Field(
        default="stop", description="what to do with unreadable or NaN samples"
    )
    workers: int = Field(default=2, ge=0, le=64, description="threads that load data")
    metric: str | None = Field(default=None, description="name, or FILE.py:function")
    target: TargetName = "auto"
    variants: tuple[VariantSpec, ...] | None = Field(default=None, description="None: what suits the target")
    batch: tuple[int, ...] = Field(default=(1, 8), description="batch sizes to measure; the first one is judged")
    threads: int | None = Field(default=None, ge=1, description="None: as many as CPUs may be used")
    rounds: int = Field(default=7, ge=3, le=1000, description="rounds of measuring, all variants in turn in each")
    opset: int | None = Field(default=None, ge=17, le=25, description="ONNX opset; None: the exporter's")
    io_types: Literal["keep", "low"] = Field(default="keep", description="types of FP16 files' inputs and outputs")
    optimize: bool = Field(default=True, description="run the ONNX optimizer after export")
    external_data_mb: float = Field(default=1900, gt=0, le=1900, description="weights above this go into a side file")
    max_drop: float | None = Field(default=None, ge=0, description="points of the metric")
    min_speedup: float | None = Field(default=None, gt=0, description="against the runtime at FP32")
    max_latency_ms: float | None = Field(default=None, gt=0)
    max_size_mb: float | None = Field(default=None, gt=0)
    allow_chance: bool = Field(default=False, description="go on although the baseline is near chance")
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    trust_pickle: bool = False

    @field_validator("max_drop", "min_speedup", "max_latency_ms", "max_size_mb", "external_data_mb")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        if value is not None and not math.isfinite(value):
            raise ValueError("must be a finite number")
        return value

    @field_validator("variants", mode="before")
    @classmethod
    def _short_variants(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple(parse_variant(v) if isinstance(v, str) else v for v in value)
        return value

    @field_validator("batch", mode="after")
    @classmethod
    def _batches(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or any(b < 1 for b in value):
            raise ValueError("batch sizes must be whole numbers from 1 on")
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _distinct(self) -> Recipe:
        names = [v.name for v in self.variants or ()]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"two variants are called {', '.join(twice)}")
        return self

    def anywhere(self) -> Recipe:
        """Return the recipe with local paths made absolute, so that it says the same from any folder."""
        found = {key: _absolute(value) for key in _PATHS if isinstance(value := getattr(self, key), str) and value}
        return self.model_copy(update=found)

    def to_yaml(self) -> str:
        """Return YAML that :func:`load_recipe` reads back to an equal recipe; defaults are written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def make_recipe(settings: dict[str, Any]) -> Recipe:
    """Check settings and return a recipe.

    Raises:
        UsageError: A setting is unknown, missing or out of range; the message names it and what is allowed.
    """
    try:
        return Recipe.model_validate(settings)
    except ValidationError as error:
        raise UsageError(_sentence(error)) from error


def load_recipe(path: Path, overrides: dict[str, Any] | None = None) -> Recipe:
    """Read a YAML recipe; ``overrides`` (flags the user gave) win.

    Relative paths in the file are relative to the file's folder.

    Raises:
        UsageError: The file cannot be read, isn't a mapping, or holds a wrong setting.
    """
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Recipe {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where else ""
        raise UsageError(f"Recipe {path} is no valid YAML{line}: {getattr(error, 'problem', error)}.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"Recipe {path} holds a value that cannot be read: {error}.") from error
    if not isinstance(settings, dict):
        raise UsageError(f"Recipe {path} must be a mapping of settings, such as 'target: openvino'.")
    for key in _PATHS:
        if isinstance(settings.get(key), str):
            settings[key] = _beside(path.parent, settings[key])
    return make_recipe({**settings, **(overrides or {})})


def _absolute(value: str) -> str:
    """Return ``value`` with the file it begins with made absolute, where there is such a file or folder."""
    return _beside(Path.cwd(), value)


def _beside(folder: Path, value: str) -> str:
    """Return ``value`` relative to ``folder`` where that names something that exists, else as it is."""
    file, colon, rest = value.partition(":")
    for candidate, tail in ((value, ""), (file, colon + rest)):
        if candidate and not Path(candidate).is_absolute() and (folder / candidate).exists():
            return str(folder / candidate) + tail
    return value


def _sentence(error: ValidationError) -> str:
    parts = []
    for item in error.errors():
        where = ".".join(str(p) for p in item["loc"]) or "recipe"
        if item["type"] == "extra_forbidden":
            parts.append(f"'{where}' is no setting of a recipe (known: {', '.join(Recipe.model_fields)})")
        else:
            message = item["msg"].removeprefix("Value error, ")
            got = "" if item["type"] in ("missing", "value_error") else f", not {item['input']!r}"
            parts.append(f"{where}: {message[0].lower()}{message[1:]}{got}")
    return "Wrong setting: " + "; ".join(parts) + "."
