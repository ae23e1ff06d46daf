"""Pixels as a PNG file, with nothing but zlib."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["encoded"]

_GREY, _COLOUR = 0, 2


def encoded(pixels: NDArray[np.uint8]) -> bytes:
    """Return an image as a PNG file.

    Args:
        pixels: `uint8` of shape `(height, width, 3)`, red, green, blue. Grey images are stored as such.
    """
    height, width, _ = pixels.shape
    is_grey = bool((pixels == pixels[..., :1]).all())
    kept = pixels[..., :1] if is_grey else pixels
    # Each line begins with the number of its filter: 0 for none.
    lines = np.zeros((height, 1 + width * kept.shape[2]), np.uint8)
    lines[:, 1:] = kept.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _GREY if is_grey else _COLOUR, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: Any) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
