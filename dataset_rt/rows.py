"""Row numbers in the forms that callers have them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dataset_rt.errors import RowIndexError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dataset_rt import _dataset_rt as native

__all__ = ["row_numbers", "typed_columns"]


_I64 = np.dtype(np.int64)


def row_numbers(rows: Any, dataset: native.CachedDataset) -> NDArray[np.int64 | np.uint64]:
    """Return `rows` as one array of 64-bit integers; negative numbers stay what they are.

    Args:
        rows: An int, a slice, a boolean mask, integers, or a frame with columns `cache_id` and `sample_id`.
        dataset: What the rows belong to.

    Raises:
        TypeError: `rows` are none of these.
        RowIndexError: A mask has another length than the dataset.
    """
    if type(rows) is np.ndarray and rows.ndim == 1 and rows.dtype == _I64:
        return rows
    if isinstance(rows, slice):
        return np.arange(*rows.indices(len(dataset)), dtype=np.int64)
    if isinstance(rows, pl.DataFrame):
        return dataset.rows_of(typed_columns(rows, ("cache_id", "sample_id")))
    if not isinstance(rows, np.ndarray):
        rows = _array(rows)
    if rows.ndim == 0 and rows.dtype.kind in "iu":
        rows = rows.reshape(1)
    if rows.ndim != 1:
        raise TypeError(f"rows must have one axis, found an array of shape {rows.shape}")
    if rows.dtype == np.bool_:
        if len(rows) != len(dataset):
            message = f"a mask of {len(rows)} rows does not fit a dataset of {len(dataset)}"
            raise RowIndexError(message, index=len(rows), length=len(dataset))
        return np.flatnonzero(rows).astype(np.int64, copy=False)
    if rows.dtype.kind not in "iu":
        raise TypeError(f"rows must be integers or a mask of booleans, found {rows.dtype}")
    wide = np.uint64 if rows.dtype == np.uint64 else np.int64
    return np.ascontiguousarray(rows, dtype=wide)


def _array(rows: Any) -> NDArray[Any]:
    """Return an int, or a sequence or series of numbers or booleans, as an array."""
    if isinstance(rows, pl.Expr):
        raise TypeError("rows must be numbers, a mask or a frame, found an expression: dataset.filter takes one")
    if hasattr(rows, "__index__") and not hasattr(rows, "__len__"):
        rows = [operator.index(rows)]
    if isinstance(rows, pl.Series) and rows.null_count() > 0:
        raise TypeError(f"rows must be integers or a mask of booleans, found {rows.null_count()} nulls")
    array = np.asarray(rows)
    if array.size == 0 and array.dtype == np.float64:
        return array.astype(np.int64).reshape(-1)
    # What NumPy has no common integer type for: numbers of more than 64 bits, or negative ones beside unsigned ones.
    is_other = array.ndim == 1 and array.dtype in (object, np.float64)
    if is_other and all(isinstance(row, int | np.integer) for row in rows):
        beyond = next((int(row) for row in rows if not -(2**63) <= row < 2**63), None)
        if beyond is not None:
            raise RowIndexError(f"row {beyond} is beyond any dataset", index=beyond, length=2**63)
        return np.array([int(row) for row in rows], np.int64)
    return array


def typed_columns(frame: pl.DataFrame, names: Sequence[str]) -> list[pl.Series | pl.DataFrame]:
    """Return the columns of these names, each by itself: a frame would copy them to make their chunks agree."""
    columns = [frame.get_column(name) for name in names if name in frame.columns]
    if not columns:
        return [frame]  # Rust says which column is missing
    # A column of nulls alone has no type yet; with one, the nulls are what is reported.
    types = {"cache_id": pl.UInt64, "sample_id": pl.UInt64, "weight": pl.Float64}
    return [column.cast(types[column.name]) if column.dtype == pl.Null else column for column in columns]
