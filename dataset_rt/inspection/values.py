"""Payloads in short: what each field is, its range, and how it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dataset_rt.inspection.images import mime_type

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["fields_of", "hexdump", "summary", "text_of"]

_TEXT_LONGEST = 400
"""Letters of a text that are shown."""

_ELEMENTS = 8
"""Elements of an array that are shown."""


def fields_of(data: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of the fields of a payload; plain bytes are the field `data`."""
    if isinstance(data, dict):
        yield from data.items()
    else:
        yield "data", data


def summary(name: str, value: Any, hex_bytes: int = 64) -> dict[str, Any]:
    """Return what a field of one payload is.

    Args:
        name: Name of the field.
        value: Its value: `bytes` or an array.
        hex_bytes: Bytes of the hexadecimal preview of bytes.

    Returns:
        `field`, `dtype`, `shape`, `bytes`; for numbers `min`, `max`, `mean`, `nan` and the first `values`; for bytes
        `text` if they are text, `image` if they are an image file, `hex` otherwise. What does not apply is `None`.
    """
    found: dict[str, Any] = dict.fromkeys(
        ("field", "dtype", "shape", "bytes", "min", "max", "mean", "nan", "values", "text", "image", "hex")
    )
    found["field"] = name
    if isinstance(value, np.ndarray):
        found.update(dtype=value.dtype.name, shape=list(value.shape), bytes=value.nbytes, **_range(value))
        return found
    data = bytes(value)
    found.update(dtype="bytes", shape=[len(data)], bytes=len(data), image=mime_type(data))
    if found["image"] is None:
        found["text"] = text_of(data)
    if found["text"] is None:
        found["hex"] = data[:hex_bytes].hex()
    return found


def text_of(data: bytes, longest: int = _TEXT_LONGEST) -> str | None:
    """Return how bytes begin if they are UTF-8 text, or `None`."""
    start = data[: 4 * longest + 4]
    try:
        text = start.decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut may have gone through a letter.
        if len(start) == len(data) or error.start < len(start) - 3:
            return None
        text = start[: error.start].decode("utf-8")
    if any(letter < " " and letter not in "\t\n\r" for letter in text) or "\x7f" in text:
        return None
    return text if len(text) <= longest and len(start) == len(data) else text[:longest] + "…"


def hexdump(data: bytes) -> str:
    """Return bytes as lines of offset, hexadecimal and ASCII, 16 bytes a line."""
    lines = []
    for start in range(0, len(data), 16):
        part = data[start : start + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {shown}")
    return "\n".join(lines)


def _range(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return range and mean of an array, NaN left out, and its first elements."""
    first = value.reshape(-1)[:_ELEMENTS]
    if np.iscomplexobj(value):
        return {"values": [str(item) for item in first.tolist()]}
    # The small floats of ml_dtypes have no reductions of their own that are exact.
    numbers = value if value.dtype.kind in "biuf" else value.astype(np.float32)
    found: dict[str, Any] = {"values": first.astype(numbers.dtype).tolist()}
    if numbers.dtype.kind == "f":
        is_nan = np.isnan(numbers)
        found["nan"] = int(is_nan.sum())
        numbers = numbers[~is_nan] if found["nan"] else numbers
    if numbers.size:
        wide = np.float64 if numbers.dtype.kind in "biu" or numbers.itemsize < 8 else None
        found.update(min=numbers.min().item(), max=numbers.max().item(), mean=float(numbers.mean(dtype=wide)))
    return found
