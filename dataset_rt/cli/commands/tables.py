"""`head` and `query`: the samples metadata table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataset_rt.cli import display
from dataset_rt.cli.failures import Refused
from dataset_rt.cli.opening import brief, open_dataset
from dataset_rt.cli.options import cache_paths, command, generation
from dataset_rt.cli.session import current
from dataset_rt.inspection.caches import caches_at, summaries
from dataset_rt.inspection.text import count

if TYPE_CHECKING:
    import polars as pl

__all__ = ["head", "query"]

_WRITERS = {
    ".parquet": "write_parquet",
    ".csv": "write_csv",
    ".json": "write_json",
    ".ndjson": "write_ndjson",
    ".arrow": "write_ipc",
}


@command
@cache_paths
@generation
@click.option("-n", "rows", type=click.IntRange(min=0), default=10, show_default=True, help="Rows to show.")
def head(paths: tuple[str, ...], generation: int | None, rows: int) -> None:
    """Show the first rows of the samples metadata table."""
    table = open_dataset(paths, generation=generation).samples_metadata()
    first = table.head(rows)
    document = {"columns": _columns(first), "rows": first, "total": table.height}
    current().emit(document, lambda console: display.frame(console, first, table.height))


@command
@click.argument("sql", metavar="SQL")
@cache_paths
@generation
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Rows to show; 0 for all.")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False),
    help="Write all rows to .parquet, .csv, .json, .ndjson or .arrow.",
)
def query(sql: str, paths: tuple[str, ...], generation: int | None, limit: int, output: str | None) -> None:
    """Run SQL over the samples metadata.

    The table `samples` (also `self`) has cache_id, sample_id, the metadata columns and weight; the table `caches` has
    cache_id, path, name and samples. The SQL is that of Polars.
    """
    if output is None:
        found = _answer(sql, paths, generation, limit + 1 if limit else None)
        shown = found.head(limit) if limit else found
        is_cut = shown.height < found.height
        document = {"columns": _columns(shown), "rows": shown, "truncated": is_cut, "output": None}
        note = "… more rows (--limit 0 shows all, --output FILE writes them)"

        def render(console: Any) -> None:
            display.frame(console, shown)
            if is_cut:
                display.note(console, note)

        current().emit(document, render)
        return
    writer = _WRITERS.get(Path(output).suffix.lower())
    if writer is None:
        raise Refused(f"cannot tell the format of {output}; its name has to end in {', '.join(_WRITERS)}")
    found = _answer(sql, paths, generation, None)
    getattr(found, writer)(output)
    document = {"columns": _columns(found), "rows": [], "truncated": found.height > 0, "output": output}
    current().emit(document, lambda console: display.note(console, f"{count(found.height, 'row')} in {output}", ""))


def _answer(sql: str, paths: tuple[str, ...], generation: int | None, limit: int | None) -> pl.DataFrame:
    import polars as pl

    named = caches_at(paths)
    table = open_dataset(named, generation=generation).samples_metadata().lazy()
    good = [summary for summary in summaries(named) if not isinstance(summary, Exception)]
    caches = pl.LazyFrame(
        {
            "cache_id": pl.Series(range(len(named)), dtype=pl.UInt64),
            "path": named,
            "name": [summary["name"] for summary in good],
            "samples": pl.Series([summary["samples"] for summary in good], dtype=pl.UInt64),
        }
    )
    context = pl.SQLContext({"samples": table, "self": table, "caches": caches})
    try:
        answer = context.execute(sql, eager=False)
        return (answer if limit is None else answer.head(limit)).collect()
    except pl.exceptions.PolarsError as error:
        names = ", ".join(table.collect_schema().names())
        raise Refused(f"the query cannot be answered: {brief(error)}; the columns of samples are {names}") from error


def _columns(frame: pl.DataFrame) -> list[dict[str, str]]:
    return [{"name": name, "dtype": str(dtype)} for name, dtype in frame.schema.items()]
