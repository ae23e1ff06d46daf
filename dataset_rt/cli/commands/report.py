"""`report`: a page about caches."""

from __future__ import annotations

from pathlib import Path

import click

from dataset_rt.cli import display
from dataset_rt.cli.options import cache_paths, command
from dataset_rt.cli.session import current
from dataset_rt.inspection.text import size

__all__ = ["report"]


@command
@cache_paths
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False),
    default="report.html",
    show_default=True,
    help="HTML file to write.",
)
@click.option("--title", help="Title of the page; by default the names of the caches.")
@click.option("--weights", type=click.Path(), help="Parquet, Arrow or CSV file with cache_id, sample_id and weight.")
@click.option("--balance", metavar="COLUMN", help="Column whose balance is shown, and evened out without --weights.")
@click.option("--previews", type=click.IntRange(0, 200), default=24, show_default=True, help="Samples to show.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Which samples.")
@click.option("--check/--no-check", default=True, help="Verify the caches without reading payloads.")
def report(
    *,
    paths: tuple[str, ...],
    output: str,
    title: str | None,
    weights: str | None,
    balance: str | None,
    previews: int,
    seed: int,
    check: bool,
) -> None:
    """Write an overview of caches as one HTML page that needs no network and no script."""
    from dataset_rt.cli.weights import read_weights
    from dataset_rt.inspection.caches import caches_at
    from dataset_rt.report import html_report

    session = current()
    table = None if weights is None else read_weights(weights, len(caches_at(paths)))
    with session.progress() as waiting:
        text = html_report(
            paths,
            title=title,
            weights=table,
            balance=balance,
            previews=previews,
            seed=seed,
            check=check,
            waiting=waiting,
        )
    target = Path(output)
    target.write_text(text, encoding="utf-8")
    written = target.stat().st_size
    session.emit(
        {"output": output, "bytes": written},
        lambda console: display.note(console, f"{output}, {size(written)}", style=""),
    )
