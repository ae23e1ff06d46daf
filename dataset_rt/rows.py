"""Row numbers in the forms that callers have them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dataset_rt.errors import RowIndexError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dataset_rt import _dataset_rt as native

__all__ = ["row_numbers"]


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
        columns = [rows.get_column(name) for name in ("cache_id", "sample_id") if name in rows.columns]
        return dataset.rows_of(columns or [rows])
    if not isinstance(rows, np.ndarray):
        rows = _array(rows)
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
    if hasattr(rows, "__index__") and not hasattr(rows, "__len__"):
        rows = [operator.index(rows)]
    array = np.asarray(rows)
    if array.size == 0 and array.dtype == np.float64:
        return array.astype(np.int64).reshape(-1)
    if array.dtype == object or (array.dtype == np.float64 and all(isinstance(row, int) for row in rows)):
        beyond = next((row for row in rows if isinstance(row, int) and not -(2**63) <= row < 2**64), None)
        if beyond is not None:
            raise RowIndexError(f"row {beyond} is beyond any dataset", index=beyond, length=2**63)
    return array
