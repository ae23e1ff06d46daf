"""`diff`: what distinguishes two caches, without reading payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dataset_rt.cli import display
from dataset_rt.cli.failures import Exit
from dataset_rt.cli.opening import one_cache
from dataset_rt.cli.options import command
from dataset_rt.cli.session import current
from dataset_rt.inspection.text import count

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["diff"]


@command
@click.argument("left", metavar="A", type=click.Path())
@click.argument("right", metavar="B", type=click.Path())
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Sample ids to list.")
def diff(left: str, right: str, limit: int) -> int:
    """Compare two caches: manifests, columns, metadata and the checksums of samples; no payload is read.

    Samples are matched by id. The exit code is 1 if anything but the paths differs.
    """
    from dataset_rt.cli.comparison import compare

    session = current()
    with session.waiting("comparing"):
        found = compare(one_cache(left), one_cache(right), limit)
    session.emit(found, lambda console: _render(console, found))
    return Exit.OK if found["equal"] else Exit.DIFFERENT


def _render(console: Console, found: dict[str, Any]) -> None:
    if found["manifest"]:
        lines = [[name, _short(one), _short(other)] for name, (one, other) in found["manifest"].items()]
        display.rows(console, ["manifest", "A", "B"], lines)
        console.print()
    for kind in ("columns", "fields"):
        if found[kind]:
            lines = [[name, one or "–", other or "–"] for name, (one, other) in found[kind].items()]
            display.rows(console, [f"{'metadata' if kind == 'columns' else 'payload'} schema", "A", "B"], lines)
            console.print()
    samples = found["samples"]
    lines = [
        [
            name.replace("_", " "),
            count(samples[name]["count"]),
            ", ".join(map(str, samples[name]["ids"])) + (" …" if samples[name]["truncated"] else ""),
        ]
        for name in ("only_in_a", "only_in_b", "changed", "metadata_changed")
        if samples[name]["count"]
    ]
    if lines:
        display.rows(console, ["samples", "count", "ids"], lines, right=[1], short=0)
        console.print()
    if samples["metadata_changes"]:
        changes = [[name, count(number)] for name, number in samples["metadata_changes"].items()]
        display.rows(console, ["changed values of", "samples"], changes, right=[1])
        console.print()
    display.note(console, _verdict(found), style="bold")


def _short(item: Any) -> str:
    return "–" if item is None else str(item)


def _verdict(found: dict[str, Any]) -> str:
    compared = count(found["samples"]["compared"], "sample")
    if found["samples"]["checksums"] is None:
        return f"{compared} with equal ids; a cache has no record checksums, so payloads could not be compared"
    if found["samples"]["checksums"] == "encoded differently":
        return f"{compared} with equal ids; payloads are stored differently, so their checksums say nothing"
    return "no difference" if found["equal"] else f"{compared} compared"
