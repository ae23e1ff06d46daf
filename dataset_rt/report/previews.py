"""Some samples to look at: pictures, lines and beginnings of texts."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dataset_rt.errors import DatasetRTError
from dataset_rt.inspection.images import as_image, mime_type, resized
from dataset_rt.inspection.png import encoded
from dataset_rt.inspection.values import fields_of, summary, text_of

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from dataset_rt.dataset import CachedDataset

__all__ = ["FieldPreview", "Preview", "previewed"]

_SIDE = 112
"""Pixels of a side of a picture at most; a screen of twice the density still shows it well."""

_RECORD_BYTES_MAX = 64 << 20
"""Longer records are not read for a preview."""

_FILE_BYTES_MAX = 16 << 10
"""An image file up to this length is shown as it is."""

_FIELDS = 4
"""Fields of a sample that are shown."""

_SHOWABLE = ("image/png", "image/jpeg", "image/gif", "image/webp")
_POINTS = 64
_LETTERS = 180


@dataclass(frozen=True)
class FieldPreview:
    """One field: a picture, a line, a text, or what it is in words."""

    name: str
    words: str
    image: str | None = None
    """A data URI."""

    is_small: bool = False
    """Whether the picture has so few pixels that they should be seen."""

    text: str | None = None
    line: list[float] | None = None


@dataclass(frozen=True)
class Preview:
    """One sample."""

    cache_id: int
    sample_id: int
    metadata: dict[str, Any]
    fields: list[FieldPreview]
    more_fields: int = 0
    error: str | None = None


def previewed(
    dataset: CachedDataset, table: pl.DataFrame, lengths: NDArray[np.uint64], wanted: int, seed: int
) -> list[Preview]:
    """Return previews of some rows, drawn at random without repetition."""
    rows = np.flatnonzero(lengths <= _RECORD_BYTES_MAX)
    chosen = np.random.default_rng(seed).choice(rows, min(wanted, len(rows)), replace=False)
    return [_preview(dataset, table, int(row)) for row in np.sort(chosen)]


def _preview(dataset: CachedDataset, table: pl.DataFrame, row: int) -> Preview:
    cells = table.row(row, named=True)
    place = cells.pop("cache_id"), cells.pop("sample_id")
    cells.pop("weight")
    try:
        fields = list(fields_of(dataset[row].data))
    except DatasetRTError as error:
        return Preview(*place, cells, [], error=str(error))
    return Preview(*place, cells, [_field(name, value) for name, value in fields[:_FIELDS]], len(fields[_FIELDS:]))


def _field(name: str, value: Any) -> FieldPreview:
    found = summary(name, value)
    shape = " × ".join(map(str, found["shape"]))
    if isinstance(value, np.ndarray):
        words = f"{found['dtype']} {shape}".strip()
    else:
        words = found["image"] or f"{found['bytes']:,} bytes"
    image, is_small = _picture(value)
    if image is not None:
        return FieldPreview(name, words, image=image, is_small=is_small)
    if found["text"] is not None:
        return FieldPreview(name, words, text=text_of(bytes(value), _LETTERS))
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.size > 2 and value.dtype.kind in "biuf":
        return FieldPreview(name, words, line=_line(value))
    if found["hex"]:
        return FieldPreview(name, words, text=bytes.fromhex(found["hex"][:64]).hex(" "))
    if found["min"] is not None:
        words += (
            f", {found['min']:.4g} to {found['max']:.4g}" if found["min"] != found["max"] else f", {found['min']:.4g}"
        )
    return FieldPreview(name, words)


def _picture(value: Any) -> tuple[str | None, bool]:
    """Return a picture of a value as a data URI, and whether it has few pixels."""
    pixels = as_image(value)
    kind = mime_type(value) if isinstance(value, bytes) else None
    is_small = pixels is not None and max(pixels.shape) <= _SIDE // 2
    if kind in _SHOWABLE and len(value) <= _FILE_BYTES_MAX:
        return _data_uri(kind, value), is_small
    if pixels is None:
        return None, False
    return _data_uri("image/png", encoded(resized(pixels, _SIDE, _SIDE))), is_small


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _line(value: NDArray[Any]) -> list[float]:
    """Return up to 64 values between 0 and 1 that run like an array of one axis."""
    points = value[np.linspace(0, value.size - 1, min(value.size, _POINTS)).astype(np.intp)].astype(np.float64)
    points = np.nan_to_num(points, nan=0.0, posinf=0.0, neginf=0.0)
    span = float(np.ptp(points)) or 1.0
    return ((points - points.min()) / span).round(3).tolist()
