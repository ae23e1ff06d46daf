"""What a loader of the benchmark must have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reference import Reference

BATCH = 256
WORKERS = 2


class Base:
    """A loader over a store: shuffled batches of 256, without an end, from two workers unless its name says other."""

    # Whether it starts processes: then it is built once and measured again and again, with its queue full at the start.
    slow_start = False

    def __init__(self, path: Path, reference: Reference, form: str, **options: object) -> None:
        self.path, self.reference, self.form, self.options = path, reference, form, options

    def __iter__(self) -> Iterator[object]:
        """Start, and return an iterator over batches."""
        raise NotImplementedError

    def shown(self, batch: object) -> object:
        """Return a batch as an array; outside the timing."""
        return batch

    def close(self) -> None:
        """Stop."""


def endless(epoch: object) -> Iterator[object]:
    """Go through epochs without an end."""
    while True:
        yield from epoch
