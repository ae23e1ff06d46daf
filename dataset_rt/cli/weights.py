"""Weights from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dataset_rt.cli.failures import Refused

if TYPE_CHECKING:
    import polars as pl

__all__ = ["read_weights"]

_COLUMNS = ["cache_id", "sample_id", "weight"]


def read_weights(path: str, caches: int) -> pl.DataFrame:
    """Return the weights in a Parquet, Arrow or CSV file; of a single cache the column `cache_id` may be missing.

    Raises:
        Refused: The file has other columns.
    """
    import polars as pl

    readers = {".parquet": pl.read_parquet, ".arrow": pl.read_ipc, ".feather": pl.read_ipc, ".csv": pl.read_csv}
    reader = readers.get(Path(path).suffix.lower())
    if reader is None:
        raise Refused(f"cannot tell the format of {path}; its name has to end in {', '.join(readers)}")
    found = reader(path)
    if "cache_id" not in found.columns and caches == 1:
        found = found.with_columns(cache_id=pl.lit(0, pl.UInt64))
    missing = [name for name in _COLUMNS if name not in found.columns]
    if missing:
        raise Refused(f"{path} has no column {', '.join(missing)}; it needs {', '.join(_COLUMNS)}")
    return found.select(pl.col("cache_id", "sample_id").cast(pl.UInt64), pl.col("weight").cast(pl.Float64))
