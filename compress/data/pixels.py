"""Geometry and channels of one image, as arrays [H, W, C]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from compress.data.base import Array
from compress.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

Interpolation = Literal["bilinear", "bicubic", "nearest"]

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R BT.601, what Pillow's mode L uses


def to_pixels(image: Image | Array, channels: int) -> Array:
    """Return an image as an array [H, W, channels] in RGB order, without changing its values' range.

    Eight-bit images stay uint8, 16-bit ones become uint16, floating-point arrays float32. Transparency is dropped, as
    torchvision's loader does; the EXIF orientation isn't applied, as neither torchvision nor timm applies it.

    Raises:
        DataError: An array isn't [H, W], [H, W, 1] or [H, W, 3].
    """
    if not isinstance(image, np.ndarray):
        if image.mode in ("I;16", "I;16L", "I;16B", "I;16N", "I"):
            return _with_channels(np.clip(np.asarray(image), 0, 65535).astype(np.uint16), channels)
        if image.mode == "F":
            return _with_channels(np.asarray(image), channels)
        pixels: Array = np.asarray(image.convert("L" if channels == 1 else "RGB"))
        return pixels[..., None] if channels == 1 else pixels
    if image.dtype.kind == "f":
        image = image.astype(np.float32, copy=False)
    return _with_channels(image, channels)


def resize(pixels: Array, size: int | tuple[int, int], interpolation: Interpolation) -> Array:
    """Resize [H, W, C]: an int is the length of the shorter side, a pair is (height, width).

    Done by Pillow with its antialiasing filters, as torchvision and timm do for images from files. The longer side is
    rounded down, as torchvision does.
    """
    height, width = pixels.shape[:2]
    if isinstance(size, int):
        short = min(height, width)
        new = (size * height // short, size * width // short)
    else:
        new = size
    if new == (height, width):
        return pixels
    from PIL import Image

    method = Image.Resampling[interpolation.upper()]

    def one(plane: Array) -> Array:
        return np.asarray(Image.fromarray(plane).resize((new[1], new[0]), method))

    if pixels.dtype == np.uint8 and pixels.shape[2] == 3:
        return one(pixels)
    plain = pixels if pixels.dtype == np.uint8 else pixels.astype(np.float32)
    planes = [one(np.ascontiguousarray(plain[..., c])) for c in range(pixels.shape[2])]
    return np.stack(planes, axis=-1)


def center_crop(pixels: Array, size: int | tuple[int, int]) -> Array:
    """Cut the middle out of [H, W, C].

    Raises:
        DataError: The image is smaller than the crop. (torchvision would pad with black.)
    """
    height, width = pixels.shape[:2]
    high, wide = (size, size) if isinstance(size, int) else size
    if height < high or width < wide:
        raise DataError(
            f"an image of {height}×{width} pixels is smaller than the crop of {high}×{wide}.",
            "Set resize in the preprocess settings.",
        )
    top, left = round((height - high) / 2), round((width - wide) / 2)
    return pixels[top : top + high, left : left + wide]


def _with_channels(array: Any, channels: int) -> Array:
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3):
        raise DataError(
            f"an image array must be [height, width] or [height, width, 1 or 3], not {list(array.shape)}.",
            "Use preprocess 'none' for data that isn't images.",
        )
    if array.shape[2] == channels:
        return np.asarray(array)
    if channels == 3:
        return np.repeat(array, 3, axis=2)
    gray = array.astype(np.float32) @ _LUMA
    return np.asarray(gray.round() if array.dtype.kind in "ui" else gray).astype(array.dtype)[..., None]
