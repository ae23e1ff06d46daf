"""`delete`, `compact` and `vacuum`: samples, their records, and old generations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from dataset_rt.cli import display
from dataset_rt.cli.asking import confirm
from dataset_rt.cli.changes import report_change
from dataset_rt.cli.failures import Refused
from dataset_rt.cli.opening import one_cache, open_dataset, rows_of
from dataset_rt.cli.options import DURATION, cache_path, command, confirmation
from dataset_rt.cli.session import current, plain
from dataset_rt.inspection.text import count, size

if TYPE_CHECKING:
    from datetime import timedelta

    import polars as pl
    from rich.console import Console

    from dataset_rt import CachedDataset

__all__ = ["compact", "delete", "vacuum"]


@command
@cache_path
@click.option("--where", metavar="CONDITION", help='SQL condition over the samples, such as "label = 3".')
@click.option("--ids", metavar="IDS", help="Sample ids and ranges, such as 3,7,100-199; or @FILE with one id a line.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@confirmation
def delete(path: str, where: str | None, ids: str | None, dry_run: bool, yes: bool) -> None:
    """Delete samples, as a new generation; their bytes stay until `compact` and `vacuum`."""
    from dataset_rt.cache import delete_samples

    if (where is None) == (ids is None):
        raise Refused("name the samples by either --where or --ids")
    cache = one_cache(path)
    dataset = open_dataset([cache])
    rows = _named(dataset, ids) if ids is not None else rows_of(dataset, str(where))
    if dry_run or rows.is_empty():
        document = {
            "path": cache,
            "dry_run": dry_run,
            "samples": len(dataset),
            "matching": rows.height,
            "changed": False,
        }
        current().emit(
            {**document, "ids": rows["sample_id"].head(100)}, lambda console: _matching(console, rows, dataset)
        )
        return
    confirm(f"delete {count(rows.height, 'sample')} of {count(len(dataset))} in {cache}?", yes=yes)
    # The same rows that were counted, whatever happened to the cache since.
    report_change(cache, delete_samples(cache, rows.select("sample_id")))


@command
@cache_path
@click.option(
    "--min-dead-fraction",
    type=click.FloatRange(0, 1),
    default=0.2,
    show_default=True,
    help="Rewrite shards of which at least this part is deleted.",
)
def compact(path: str, min_dead_fraction: float) -> None:
    """Rewrite shards without the records of deleted samples, as a new generation; ids stay."""
    from dataset_rt.cache import compact_cache

    cache = one_cache(path)
    with current().waiting("compacting"):
        change = compact_cache(cache, min_dead_fraction=min_dead_fraction)
    report_change(cache, change)


@command
@cache_path
@click.option("--grace", type=DURATION, default="7d", show_default=True, help="Keep what was superseded more recently.")
@click.option("--only-newest", is_flag=True, help="Give up the generation before the newest too.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@confirmation
def vacuum(path: str, grace: timedelta, only_newest: bool, dry_run: bool, yes: bool) -> None:
    """Remove the files of old generations that nobody can need any more.

    The newest generation, the one before it unless --only-newest, and those with a lease stay.
    """
    from dataset_rt.cache import vacuum_cache

    cache = one_cache(path)
    session = current()
    if not dry_run:
        confirm(f"remove old generations of {cache} for good?", yes=yes)
    with session.waiting("looking for old generations"):
        report = vacuum_cache(cache, grace=grace, keep_previous=not only_newest, dry_run=dry_run)

    def render(console: Console) -> None:
        kept = ", ".join(f"{number} ({reason})" for number, reason in report.kept.items())
        removed = ", ".join(map(str, report.removed)) or "none"
        amount = f"{count(report.files, 'file')}, {size(report.bytes)}"
        verb = "would remove" if dry_run else "removed"
        display.facts(
            console,
            [("cache", cache), ("kept", kept), ("given up", removed), (verb, amount)],
        )

    session.emit(plain(report), render)


def _named(dataset: CachedDataset, ids: str) -> pl.DataFrame:
    """Return the rows of sample ids; those that do not exist are an error."""
    import polars as pl

    table = dataset.samples_metadata()
    last = table["sample_id"].max()
    wanted = _parsed(ids, last if isinstance(last, int) else -1)
    rows = table.filter(pl.col("sample_id").is_in(wanted.implode()))
    if rows.height < wanted.len():
        unknown = wanted.filter(~wanted.is_in(table["sample_id"].implode()))
        shown = ", ".join(map(str, unknown.head(10).to_list()))
        raise Refused(f"there is no sample {shown}; it never existed or is deleted already")
    return rows


def _parsed(ids: str, last: int) -> pl.Series:
    """Return sample ids from text: numbers and ranges with commas, or a file with one a line."""
    from pathlib import Path

    import numpy as np
    import polars as pl

    text = Path(ids[1:]).read_text(encoding="utf-8") if ids.startswith("@") else ids
    parts = []
    for word in text.replace(",", " ").split():
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", word, re.ASCII)
        if found is None:
            raise Refused(f"{word!r} is no sample id and no range such as 100-199")
        low, high = int(found[1]), int(found[2] or found[1])
        if high < low or high > last:
            raise Refused(f"{word!r} names no samples of this cache; the last is number {last}")
        parts.append(np.arange(low, high + 1, dtype=np.uint64))
    if not parts:
        raise Refused("there is no sample id to delete")
    return pl.Series(np.unique(np.concatenate(parts)))


def _matching(console: Console, rows: pl.DataFrame, dataset: CachedDataset) -> None:
    if not rows.is_empty():
        display.frame(console, rows.drop("cache_id", "weight").head(10), rows.height)
    display.note(console, f"{count(rows.height, 'sample')} of {count(len(dataset))}; nothing was changed", style="")
