"""From an image or a text to what a model takes: one object for baseline, calibration, evaluation and every variant."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from compress.data.base import Array
from compress.data.pixels import Interpolation, center_crop, resize, to_pixels
from compress.errors import DataError, UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

Size = Annotated[int, Field(ge=1, le=65536)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_yaml(self) -> str:
        """Return YAML that :func:`load_preprocess` reads back to an equal object."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


class Preprocess(_Settings):
    """How an image becomes a model's input: channels, resize, crop, scale, normalize, layout, in this order.

    Eight-bit images without ``scale`` are divided by 255, which gives bit for bit what torchvision's ``ToTensor`` and
    ``Normalize`` give. ``mean`` and ``std`` apply after scaling, in the order of the output's channels: for ``BGR``
    write them in the order blue, green, red.
    """

    kind: Literal["image"] = "image"
    resize: Size | tuple[Size, Size] | None = Field(
        default=None, description="shorter side, or (height, width); pixels"
    )
    crop: Size | tuple[Size, Size] | None = Field(default=None, description="center crop: side, or (height, width)")
    interpolation: Interpolation = "bilinear"
    scale: float | None = Field(
        default=None, description="multiplier; None: 1/255 for 8-bit, 1/65535 for 16-bit images, 1 for float arrays"
    )
    mean: tuple[float, ...] = Field(default=(), description="one value, or one a channel; empty: none subtracted")
    std: tuple[float, ...] = Field(default=(), description="one value, or one a channel; empty: not divided")
    channel_order: Literal["RGB", "BGR"] = "RGB"
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    channels: Literal[1, 3] = 3
    dtype: Literal["float32", "float16", "uint8"] = "float32"

    @field_validator("mean", "std", mode="before")
    @classmethod
    def _one_value(cls, value: Any) -> Any:
        return (value,) if isinstance(value, (int, float)) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _consistent(self) -> Preprocess:
        for name in ("mean", "std"):
            values: tuple[float, ...] = getattr(self, name)
            if len(values) not in (0, 1, self.channels):
                raise ValueError(f"{name} has {len(values)} values for {self.channels} channels")
            if not all(map(math.isfinite, values)):
                raise ValueError(f"{name} must be finite")
        if any(s <= 0 for s in self.std):
            raise ValueError("std must be above 0")
        if self.scale is not None and (not math.isfinite(self.scale) or self.scale == 0):
            raise ValueError("scale must be a finite number other than 0")
        if self.dtype == "uint8" and (self.mean or self.std or self.scale not in (None, 1)):
            raise ValueError("dtype uint8 takes the pixels as they are: leave out scale, mean and std")
        return self

    def __call__(self, image: Image | Array) -> Array:
        """Return one preprocessed sample, [C, H, W] or [H, W, C] by ``layout``, of type ``dtype``.

        Args:
            image: A Pillow image, or an array [H, W] or [H, W, C] in RGB order.

        Raises:
            DataError: The image has another number of axes or channels, or is smaller than the crop.
        """
        pixels = to_pixels(image, self.channels)
        original = pixels.dtype
        if self.resize is not None:
            pixels = resize(pixels, self.resize, self.interpolation)
        if self.crop is not None:
            pixels = center_crop(pixels, self.crop)
        if self.channel_order == "BGR":
            pixels = pixels[..., ::-1]
        if self.dtype != "uint8":
            pixels = self._normalized(pixels, original)
        elif pixels.dtype != np.uint8:
            pixels = np.clip(np.rint(pixels.astype(np.float32)), 0, 255)
        if self.layout == "NCHW":
            pixels = pixels.transpose(2, 0, 1)
        return np.ascontiguousarray(pixels, dtype=self.dtype)

    def _normalized(self, pixels: Array, original: np.dtype[Any]) -> Array:
        values = pixels.astype(np.float32)
        if self.scale is not None:
            values *= np.float32(self.scale)
        elif original in (np.uint8, np.uint16):
            # Divided, not multiplied by the reciprocal: this is what ToTensor does, to the last bit.
            values /= np.float32(np.iinfo(original).max)
        elif original.kind != "f":
            raise DataError(f"images are of type {original}, whose range isn't known.", "Set scale in the preprocess.")
        if self.mean:
            values -= np.array(self.mean, dtype=np.float32)
        if self.std:
            values /= np.array(self.std, dtype=np.float32)
        return values


class TextPreprocess(_Settings):
    """How a text becomes token ids. The tokenizer file's own padding and truncation are overridden by these."""

    kind: Literal["text"] = "text"
    tokenizer: str = Field(description="path of a tokenizer.json, as Hugging Face's tokenizers write it")
    max_length: int = Field(default=128, ge=2, le=65536, description="tokens a text; longer texts are cut")
    padding: Literal["longest", "max"] = Field(
        default="longest", description="longest: to the longest text of the batch; max: always to max_length"
    )


AnyPreprocess = Preprocess | TextPreprocess

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

PRESETS: dict[str, Preprocess] = {
    "imagenet": Preprocess(resize=256, crop=224, mean=_MEAN, std=_STD),
    "cifar10": Preprocess(mean=_MEAN, std=_STD),
    "none": Preprocess(scale=1.0),
}
"""Presets by name. ``none``: pixels as they are (0–255, RGB), as float32 in NCHW."""


def load_preprocess(spec: str | Mapping[str, Any] | None, model_code: str = "") -> AnyPreprocess | None:
    """Return the preprocessing that ``spec`` describes.

    Args:
        spec: A preset's name; the path of a YAML or JSON file with settings; the path of a ``tokenizer.json`` or of a
            folder that holds one; or settings, which may start from a preset: ``{"preset": "imagenet", "crop": 160}``.
        model_code: Where ``spec`` is None: ``timm:NAME`` and ``torchvision:NAME`` bring their own preprocessing.

    Returns:
        None where ``spec`` is None and the model brings none: inputs go in as they are, and data sets say so.

    Raises:
        UsageError: No such preset or file, or a wrong setting.
    """
    if spec is None:
        from compress.data.own_config import own_preprocess

        return own_preprocess(model_code)
    if not isinstance(spec, str):
        return _from_settings(spec, "preprocess", Path())
    if spec in PRESETS:
        return PRESETS[spec]
    path = Path(spec).expanduser()
    if path.is_dir() and (path / "tokenizer.json").is_file():
        return TextPreprocess(tokenizer=str((path / "tokenizer.json").resolve()))
    if not path.is_file():
        raise UsageError(
            f"'{spec}' is no preset of preprocessing and no file.",
            f"Presets: {', '.join(PRESETS)}; or give a YAML or JSON file, or a tokenizer.json.",
        )
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8")) if path.suffix != ".json" else _json(path)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"Preprocess file {path} cannot be read: {' '.join(str(error).split())}.") from error
    if isinstance(settings, Mapping) and {"model", "added_tokens"} <= set(settings):
        return TextPreprocess(tokenizer=str(path.resolve()))
    return _from_settings(settings, str(path), path.parent)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _from_settings(settings: Any, where: str, folder: Path) -> AnyPreprocess:
    if not isinstance(settings, Mapping):
        raise UsageError(f"{where} must be a mapping of settings, such as 'resize: 256', or a preset's name.")
    settings = dict(settings)
    preset = settings.pop("preset", None)
    if preset is not None:
        if preset not in PRESETS:
            raise UsageError(f"{where}: '{preset}' is no preset of preprocessing.", f"Presets: {', '.join(PRESETS)}.")
        settings = {**PRESETS[preset].model_dump(), **settings}
    settings.setdefault("kind", "text" if "tokenizer" in settings else "image")
    try:
        made: AnyPreprocess = _ADAPTER.validate_python(settings)
    except ValidationError as error:
        raise UsageError(f"{where}: {_sentence(error, settings['kind'])}.") from error
    return _with_tokenizer_file(made, where, folder) if isinstance(made, TextPreprocess) else made


_ADAPTER: TypeAdapter[AnyPreprocess] = TypeAdapter(Annotated[AnyPreprocess, Field(discriminator="kind")])


def _with_tokenizer_file(made: TextPreprocess, where: str, folder: Path) -> TextPreprocess:
    path = folder / Path(made.tokenizer).expanduser()
    path = path / "tokenizer.json" if path.is_dir() else path
    if not path.is_file():
        raise UsageError(f"{where}: no tokenizer at {path}.", "Give a tokenizer.json or a folder that holds one.")
    return made.model_copy(update={"tokenizer": str(path.resolve())})


def _sentence(error: ValidationError, kind: str) -> str:
    parts: dict[str, None] = {}
    for item in error.errors():
        # The first step of a place is the union's tag; a union's member types may follow the field's name.
        name = next((str(p) for p in item["loc"] if p not in ("image", "text")), "")
        if item["type"] == "extra_forbidden":
            model = TextPreprocess if kind == "text" else Preprocess
            parts[f"'{name}' is no setting (known: {', '.join(model.model_fields)})"] = None
        else:
            message = item["msg"].removeprefix("Value error, ")
            got = "" if item["type"] in ("missing", "value_error") else f", not {item['input']!r}"
            parts[f"{name}{': ' if name else ''}{message[0].lower()}{message[1:]}{got}"] = None
    return "; ".join(parts)
