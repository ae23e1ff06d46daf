"""`bench`: how fast this machine reads a cache, and its files without the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dataset_rt.cli import display
from dataset_rt.cli.failures import Refused
from dataset_rt.cli.opening import one_cache
from dataset_rt.cli.options import cache_path, command
from dataset_rt.cli.session import current, plain
from dataset_rt.inspection.caches import summary
from dataset_rt.inspection.text import count, duration, size

if TYPE_CHECKING:
    from rich.console import Console

    from dataset_rt.cli.measuring import Measured

__all__ = ["bench"]


@command
@cache_path
@click.option("--seconds", type=click.FloatRange(0.01, 600), default=1.0, show_default=True, help="Of one measurement.")
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Rounds through all of them.")
@click.option("--batch-size", type=click.IntRange(1, 1 << 20), default=256, show_default=True, help="Rows of a batch.")
@click.option("--cold/--no-cold", default=True, help="Read from the disk, too: needs a system that can drop files.")
def bench(path: str, seconds: float, rounds: int, batch_size: int, cold: bool) -> None:
    """Measure how fast this machine reads a cache.

    Each round reads the shards plainly, in order and at random, and the cache in order, by random gathers and sample by
    sample, with records verified. The figures are medians over the rounds; bytes are those stored.
    """
    from dataset_rt.cache import cache_stats
    from dataset_rt.cli.measuring import Plan, measured

    session = current()
    cache = one_cache(path)
    found = summary(cache)
    if found["samples"] == 0:
        raise Refused(f"{cache} has no sample to read")
    shards = [str(shard) for shard in cache_stats(cache).shards["path"].to_list()]
    sample_bytes = max(found["shard_bytes"] // (found["samples"] + found["deleted"]), 1)
    plan = Plan(cache, shards, sample_bytes, batch_size, seconds, rounds, cold)
    with session.progress() as waiting:
        rows = measured(plan, waiting)
    document = {
        "path": cache,
        "samples": found["samples"],
        "sample_bytes": sample_bytes,
        "batch_size": batch_size,
        "rounds": rounds,
        "measurements": plain(rows),
    }

    def render(console: Console) -> None:
        lines = [_line(row) for row in rows]
        display.rows(console, ["what", "from", "samples/s", "bytes/s", "first after"], lines, right=[2, 3, 4])
        display.note(console, f"{count(found['samples'], 'sample')} of {size(sample_bytes)}, {count(rounds, 'round')}")

    session.emit(document, render)


def _line(row: Measured) -> list[str]:
    samples = "" if row.samples_per_second is None else count(round(row.samples_per_second))
    where = "disk" if row.state == "cold" else "memory"
    return [row.name, where, samples, f"{size(row.bytes_per_second)}/s", duration(row.first_seconds)]
