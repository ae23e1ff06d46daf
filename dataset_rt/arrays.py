"""Arrays and frames on their way into a cache: checked, and cut into blocks where their memory has to be rearranged."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from dataset_rt.fields import RefusedError, dtype_of, laid_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ArrayBlock", "ArraySource", "exportable"]

_BLOCK_BYTES = 16 << 20
"""Bytes of rearranged values that exist at a time, beside those on their way through the writer."""

_IN_PLACE = "=|<" if sys.byteorder == "little" else "|"
"""Byte orders of arrays that lie in memory as in a cache."""


class ArrayBlock(NamedTuple):
    """Consecutive samples by column, as the native half takes them."""

    rows: int
    fields: list[tuple[str, str, tuple[int | None, ...], Any, Any]]
    """Name, dtype, shape, flat bytes, and the offsets of a ragged field."""

    columns: pl.DataFrame | None
    """Fields that are Arrow columns."""

    metadata: pl.DataFrame | None


class _Dense:
    """A field of equal shape in every sample; axis 0 of the array counts samples."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        if array.ndim == 0:
            raise RefusedError("an array without axes; axis 0 counts the samples")
        self.array = array
        self.rows = len(array)
        self.dtype = dtype_of(array.dtype)
        self.shape: tuple[int | None, ...] = array.shape[1:]
        self.is_in_place = _is_in_place(array)

    def end(self, start: int, budget: int) -> int:
        row_bytes = math.prod(self.array.shape[1:]) * self.array.dtype.itemsize
        return start + budget // max(row_bytes, 1)

    def block(self, start: int, stop: int) -> tuple[Any, None]:
        return _flat(self.array[start:stop]), None


class _Ragged:
    """A field whose first axis differs: sample `n` is `values[offsets[n]:offsets[n + 1]]`."""

    def __init__(self, values: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any]) -> None:
        if values.ndim == 0:
            raise RefusedError("values without axes; axis 0 is the one that differs between samples")
        if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) == 0:
            shown = f"{offsets.dtype} {offsets.shape}"
            raise RefusedError(f"offsets of {shown}; give one axis of integers, one more than there are samples")
        self.values = values
        self.offsets = np.require(offsets, np.int64, ["C", "A"])
        is_ascending = bool((np.diff(self.offsets) >= 0).all())
        if not is_ascending or self.offsets[0] < 0 or self.offsets[-1] > len(values):
            raise RefusedError(f"offsets that do not ascend between 0 and {len(values)}, the number of values")
        self.rows = len(offsets) - 1
        self.dtype = dtype_of(values.dtype)
        self.shape: tuple[int | None, ...] = (None, *values.shape[1:])
        self.is_in_place = _is_in_place(values)

    def end(self, start: int, budget: int) -> int:
        element_bytes = math.prod(self.values.shape[1:]) * self.values.dtype.itemsize
        last = self.offsets[start] + budget // max(element_bytes, 1)
        return int(np.searchsorted(self.offsets, last, side="right")) - 1

    def block(self, start: int, stop: int) -> tuple[Any, Any]:
        offsets = self.offsets[start : stop + 1]
        return _flat(self.values[offsets[0] : offsets[-1]]), offsets - offsets[0]


_Field: TypeAlias = _Dense | _Ragged | pl.Series


class ArraySource:
    """The arrays of `write_arrays` as a cache source.

    Raises:
        RefusedError: What cannot be stored, and why.
    """

    def __init__(self, name: Any, arrays: Mapping[str, Any], metadata: Any) -> None:
        self.name = name
        fields = {key: _named(key, values) for key, values in arrays.items()}
        if not fields:
            raise RefusedError("no arrays; expected at least one payload field")
        lengths = {f"payload field `{key}`": _rows(field) for key, field in fields.items()}
        self._metadata = None if metadata is None else _frame(metadata)
        if self._metadata is not None:
            lengths["the metadata"] = self._metadata.height
        (first, self._rows), *others = lengths.items()
        for what, rows in others:
            if rows != self._rows:
                raise RefusedError(f"{first} has {self._rows} samples and {what} {rows}; all need as many")
        self._arrays = {key: field for key, field in fields.items() if not isinstance(field, pl.Series)}
        columns = {key: field for key, field in fields.items() if isinstance(field, pl.Series)}
        self._columns = pl.DataFrame(columns) if columns else None

    def __iter__(self) -> Iterator[ArrayBlock]:
        """Yield everything at once, or block by block where memory has to be rearranged."""
        rearranged = [field for field in self._arrays.values() if not field.is_in_place]
        start = 0
        while start < self._rows:
            budget = _BLOCK_BYTES // max(len(rearranged), 1)
            stop = min([self._rows, *(max(field.end(start, budget), start + 1) for field in rearranged)])
            columns, metadata = (_part(frame, start, stop) for frame in (self._columns, self._metadata))
            fields = [self._block(key, start, stop) for key in self._arrays]
            yield ArrayBlock(stop - start, fields, columns, metadata)
            start = stop

    def _block(self, key: str, start: int, stop: int) -> tuple[str, str, tuple[int | None, ...], Any, Any]:
        field = self._arrays[key]
        values, offsets = field.block(start, stop)
        return key, field.dtype, field.shape, values, offsets


def _named(key: Any, values: Any) -> _Field:
    """Return one entry of the mapping as a field."""
    if not isinstance(key, str):
        raise RefusedError(f"payload field {key!r}: expected a name of type str, found {type(key).__name__}")
    try:
        return _field(values)
    except RefusedError as fault:
        raise RefusedError(f"payload field `{key}`: expected an array, found {fault}") from None


def _field(values: Any) -> _Field:
    if isinstance(values, pl.Series):
        return values
    if isinstance(values, tuple) and len(values) == 2:
        return _Ragged(_array(values[0]), _array(values[1]))
    if isinstance(values, list) and values and isinstance(values[0], bytes):
        return pl.Series(values, dtype=pl.Binary)
    if not isinstance(values, np.ndarray) and (
        hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__")
    ):
        return pl.Series(values)
    return _Dense(_array(values))


def _array(values: Any) -> np.ndarray[Any, Any]:
    """Return values as an array, without a copy where there is one."""
    if isinstance(values, np.ma.MaskedArray):
        raise RefusedError("a masked array; fill it, and keep the mask as a field of its own")
    try:
        return np.asarray(values)
    except ValueError as error:
        raise RefusedError(f"{type(values).__name__} that is no array ({error})") from None


def _rows(field: _Field) -> int:
    return len(field) if isinstance(field, pl.Series) else field.rows


def _frame(metadata: Any) -> pl.DataFrame | None:
    """Return metadata as a frame; `None` for one without columns, whose height means nothing."""
    if not isinstance(metadata, pl.DataFrame):
        if isinstance(metadata, pl.LazyFrame):
            raise RefusedError("metadata is a lazy frame; collect it first")
        try:
            metadata = pl.DataFrame(metadata)
        except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
            found = type(metadata).__name__
            raise RefusedError(f"metadata is of type {found}, expected a frame or an Arrow table ({error})") from None
    return exportable(metadata) if metadata.width > 0 else None


def exportable(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame as others can read it: columns of nothing but nulls have a layout in Polars that Arrow has not."""
    return frame.cast({pl.Null: pl.String}) if pl.Null in frame.dtypes else frame


def _part(frame: pl.DataFrame | None, start: int, stop: int) -> pl.DataFrame | None:
    return None if frame is None else frame.slice(start, stop - start)


def _is_in_place(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array lies in memory as in a cache."""
    return array.flags.c_contiguous and array.dtype.byteorder in _IN_PLACE


def _flat(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the elements as bytes, little-endian and in C order: the memory of the array, if it lies so."""
    if _is_in_place(array):
        return array.reshape(-1).view(np.uint8)
    return laid_out(array, None)[2]
