"""`order`: which samples an epoch delivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dataset_rt.cli import display
from dataset_rt.cli.failures import Refused
from dataset_rt.cli.opening import open_dataset
from dataset_rt.cli.options import cache_paths, command
from dataset_rt.cli.session import current
from dataset_rt.inspection.text import count

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

__all__ = ["order"]

_ROWS = 20


@command
@cache_paths
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Seed of the order.")
@click.option("--epoch", type=click.IntRange(min=0), default=0, show_default=True, help="Epoch.")
@click.option("--start", type=click.IntRange(min=0), default=0, show_default=True, help="First position.")
@click.option("--stop", type=click.IntRange(min=0), help=f"Position after the last; {_ROWS} rows without it.")
@click.option("--step", type=click.IntRange(min=0), help="The positions of this step, instead of --start and --stop.")
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=1, show_default=True, help="Rows of a step on a rank."
)
@click.option("--rank", type=click.IntRange(min=0), help="Only the positions of this rank.")
@click.option("--world-size", type=click.IntRange(min=1), default=1, show_default=True, help="Ranks.")
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Draw, or table order.")
@click.option(
    "--replacement/--no-replacement", default=True, show_default=True, help="Whether a sample may come twice."
)
@click.option("--epoch-length", type=click.IntRange(min=0), help="Samples of an epoch.")
@click.option("--weights", type=click.Path(), help="Parquet file with cache_id, sample_id and weight.")
@click.option("--metadata", is_flag=True, help="Add the metadata columns.")
def order(
    *,
    paths: tuple[str, ...],
    seed: int,
    epoch: int,
    start: int,
    stop: int | None,
    step: int | None,
    batch_size: int,
    rank: int | None,
    world_size: int,
    weights: str | None,
    **options: Any,
) -> None:
    """Show which samples an epoch delivers, and where, without reading any.

    Positions are those of all ranks together. With --rank they are those of one rank: step s holds the positions from
    s * batch size * world size, and each rank takes its slice of them.
    """
    import polars as pl

    if rank is not None and rank >= world_size:
        raise Refused(f"rank {rank} does not exist with --world-size {world_size}; ranks count from 0")
    metadata = options.pop("metadata")
    dataset = open_dataset(paths, seed=seed, **options)
    if weights is not None:
        from dataset_rt.cli.weights import read_weights

        dataset.set_samples_metadata(read_weights(weights, len(dataset.cache_paths)))
    length = options["epoch_length"] if options["epoch_length"] is not None else len(dataset)
    width = batch_size * world_size
    if step is not None:
        start, stop = min(step * width, length), min((step + 1) * width, length)
    elif stop is None:
        stop = min(start + _ROWS * (world_size if rank is not None else 1), length)
    found = dataset.order(epoch, start, stop)
    found = found.insert_column(1, (pl.col("position") // width).alias("step")) if width > 1 else found
    if rank is not None:
        found = found.filter(pl.col("position") % width // batch_size == rank)
    if metadata:
        table = dataset.samples_metadata().drop("weight")
        found = found.join(table, on=["cache_id", "sample_id"], how="left", maintain_order="left")
    document = {"epoch": epoch, "seed": seed, "epoch_length": length, "start": start, "stop": stop, "order": found}
    current().emit(document, lambda console: _render(console, found, length))


def _render(console: Console, found: pl.DataFrame, length: int) -> None:
    display.frame(console, found)
    display.note(console, f"{count(found.height, 'row')} of an epoch of {count(length)}")
