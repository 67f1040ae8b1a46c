"""The preprocessing that a model of timm or torchvision was trained with, read from the library without a download."""

from __future__ import annotations

import math
from typing import Any

from compress.data.preprocess import Preprocess
from compress.errors import UsageError


def own_preprocess(model_code: str) -> Preprocess | None:
    """Return the evaluation preprocessing of ``timm:NAME`` or ``torchvision:NAME``.

    Returns:
        None where the code names another source, the library isn't there, or it knows no image classification
        preprocessing for the name. (Whether the model itself exists is for the loader to say.)

    Raises:
        UsageError: The library's preprocessing is of a kind that :class:`Preprocess` doesn't express.
    """
    library, _, name = model_code.partition(":")
    if library == "timm":
        return _timm(name)
    if library == "torchvision":
        return _torchvision(name)
    return None


def _timm(name: str) -> Preprocess | None:
    try:
        from timm.data import resolve_data_config
        from timm.models import get_pretrained_cfg
    except ImportError:
        return None
    config = get_pretrained_cfg(name)
    if config is None:
        return None
    data: dict[str, Any] = resolve_data_config(args={}, pretrained_cfg=config.to_dict())
    channels, height, width = data["input_size"]
    if data["crop_mode"] not in ("center", "squash") or (data["crop_mode"] == "center" and height != width):
        raise UsageError(
            f"timm preprocesses images for {name} with crop mode '{data['crop_mode']}' to {height}×{width}, "
            "which cannot be taken over.",
            "Give the preprocess settings yourself.",
        )
    grown = (math.floor(height / data["crop_pct"]), math.floor(width / data["crop_pct"]))
    return Preprocess(
        resize=grown[0] if data["crop_mode"] == "center" else grown,
        crop=(height, width),
        interpolation=data["interpolation"],
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        channels=channels,
    )


def _torchvision(name: str) -> Preprocess | None:
    try:
        from torchvision.models import get_model_weights
        from torchvision.transforms._presets import ImageClassification
    except ImportError:
        return None
    try:
        weights = get_model_weights(name)
    except ValueError:  # no such model
        return None
    transform = weights.DEFAULT.transforms()
    if not isinstance(transform, ImageClassification):
        return None
    return Preprocess(
        resize=_size(transform.resize_size),
        crop=_size(transform.crop_size),
        interpolation=transform.interpolation.value,
        mean=tuple(transform.mean),
        std=tuple(transform.std),
    )


def _size(size: list[int]) -> int | tuple[int, int]:
    return size[0] if len(size) == 1 else (size[0], size[1])
