"""From paths on the command line to caches and datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataset_rt.cli.failures import Refused
from dataset_rt.inspection.caches import caches_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from dataset_rt import CachedDataset

__all__ = ["brief", "condition", "one_cache", "open_dataset", "rows_of"]


def one_cache(path: str) -> str:
    """Return the only cache at a path.

    Raises:
        Refused: There are several.
    """
    found = caches_at([path])
    if len(found) > 1:
        raise Refused(f"{path} is a folder of {len(found)} caches; name one of them, such as {found[0]}")
    return found[0]


def open_dataset(paths: Sequence[str], *, generation: int | None = None, **config: Any) -> CachedDataset:
    """Open caches, and folders of caches, in table order unless `config` says otherwise."""
    from dataset_rt import CachedDataset, ReaderConfig

    options: dict[str, Any] = {"seed": 0, "shuffle": False, **config}
    found = caches_at(paths)
    return CachedDataset(found, reader_config=ReaderConfig(**options), generations=[generation] * len(found))


def condition(text: str) -> pl.Expr:
    """Return an SQL condition as an expression.

    Raises:
        Refused: It is no SQL.
    """
    import polars as pl

    try:
        return pl.sql_expr(text)
    except pl.exceptions.PolarsError as error:
        raise Refused(f"cannot read the condition {text!r}: {brief(error)}") from error


def rows_of(dataset: CachedDataset, where: str) -> pl.DataFrame:
    """Return the rows of the samples metadata table for which a condition holds.

    Raises:
        Refused: The condition does not fit the columns.
    """
    import polars as pl

    table = dataset.samples_metadata()
    try:
        return table.filter(condition(where))
    except pl.exceptions.PolarsError as error:
        names = ", ".join(table.columns)
        raise Refused(f"the condition {where!r} cannot be used: {brief(error)}; the columns are {names}") from error


def brief(error: Exception) -> str:
    """Return what Polars says, without the plan of the query that follows."""
    return str(error).partition("\n\n")[0].strip()
