"""Which values are images, and their pixels in a size that fits."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_image", "mime_type", "resized"]

_SIDE_MIN = 4
_PIXELS_MAX = 1 << 26
"""A larger image is not decoded for a preview."""

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)


def mime_type(data: bytes) -> str | None:
    """Return the type of an image file by its first bytes, or `None`."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    # Two letters alone are no proof: the length follows them.
    if data[:2] == b"BM" and int.from_bytes(data[2:6], "little") != len(data):
        return None
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), None)


def as_image(value: Any) -> NDArray[np.uint8] | None:
    """Return a value as pixels of shape `(height, width, 3)`, or `None` if it is no image.

    Images are `uint8` and `bool` arrays of shape `(h, w)`, `(h, w, c)` or `(c, h, w)` with 1, 3 or 4 channels and sides
    of at least 4, and the bytes of an image file if Pillow is installed.
    """
    if isinstance(value, bytes):
        return _decoded(value) if mime_type(value) else None
    if not isinstance(value, np.ndarray) or value.dtype not in (np.uint8, np.bool_):
        return None
    pixels = value.astype(np.uint8) * 255 if value.dtype == np.bool_ else value
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    elif pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4) and pixels.shape[0] in (1, 3, 4):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or min(pixels.shape[:2]) < _SIDE_MIN:
        return None
    return np.ascontiguousarray(np.broadcast_to(pixels[..., :3], (*pixels.shape[:2], 3)))


def resized(pixels: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """Return an image of the same proportions that fits into a box; one that fits already is returned as it is."""
    rows, columns, _ = pixels.shape
    scale = max(rows / height, columns / width)
    if scale <= 1:
        return pixels
    shape = max(round(rows / scale), 1), max(round(columns / scale), 1)
    return _averaged(_averaged(pixels, shape[0], 0), shape[1], 1).round().astype(np.uint8)


def _averaged(pixels: NDArray[Any], length: int, axis: int) -> NDArray[Any]:
    """Return means over equal parts of an axis."""
    starts = np.arange(length) * pixels.shape[axis] // length
    counts = np.diff([*starts, pixels.shape[axis]])
    sums = np.add.reduceat(pixels.astype(np.float32), starts, axis=axis)
    return sums / np.expand_dims(counts, tuple(n for n in range(3) if n != axis))


def _decoded(data: bytes) -> NDArray[np.uint8] | None:
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > _PIXELS_MAX:
                return None
            return np.asarray(image.convert("RGB"))
    except Exception:  # noqa: BLE001 (whatever a decoder thinks of bytes of unknown origin, there is no picture)
        return None
