"""What a maintenance function did, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataset_rt.cli import display
from dataset_rt.cli.session import current
from dataset_rt.inspection.text import count, size

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["report_change"]


def report_change(cache: str, change: Any) -> None:
    """Print a `CacheChange` of a cache, with its path as it was given."""

    def render(console: Console) -> None:
        if not change.changed:
            display.note(console, f"{cache}: nothing to do, generation {change.generation} stays", style="")
            return
        display.facts(
            console,
            [
                ("cache", cache),
                ("generation", f"{change.generation} (before: {change.previous_generation})"),
                ("samples", count(change.samples)),
                ("added", count(change.added) if change.added else None),
                ("deleted", count(change.deleted) if change.deleted else None),
                ("written", size(change.bytes_written)),
            ],
        )

    names = ("path", "operation", "generation", "previous_generation", "samples", "added", "deleted")
    document = {name: getattr(change, name) for name in (*names, "bytes_written", "changed")}
    current().emit(document, render)
