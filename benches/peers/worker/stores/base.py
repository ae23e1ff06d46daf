"""What a store of the benchmark must have, and what record stores share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reference import Reference

BLOCK = 64 * 1024 * 1024


class Base:
    """An opened store. `form` is how records are stored: raw, or the name of a codec."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        self.path, self.reference, self.form = path, reference, form

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Store all records in the empty folder `path`, as the library's documents recommend."""
        raise NotImplementedError

    def gather(self, rows: np.ndarray) -> object:
        """Return a batch the way the library hands it out: one array, or for ragged records what it has."""
        raise NotImplementedError

    def gather_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Fill `out` with a batch, where the library can."""
        raise NotImplementedError

    def shown(self, batch: object) -> object:
        """Return a batch as an array, a list of bytes, or `(values, offsets)`; outside the timing."""
        return batch

    def close(self) -> None:
        """Let go of files and threads."""


def blocks(reference: Reference) -> Iterator[np.ndarray]:
    """Yield the records of a dense data set in blocks of 64 MiB."""
    step = max(1, BLOCK // reference.size)
    for start in range(0, len(reference), step):
        yield np.asarray(reference.values[start : start + step])


def records(reference: Reference) -> Iterator[bytes]:
    """Yield every record as bytes."""
    for row in range(len(reference)):
        yield reference.record(row).tobytes()


def stacked(found: list[bytes], reference: Reference) -> object:
    """Make what a training step needs of records of one length; leave ragged ones as they came."""
    if reference.ragged:
        return found
    return np.frombuffer(b"".join(found), np.uint8).reshape(len(found), *reference.shape)


def ragged_blocks(reference: Reference) -> list[tuple[int, int, np.ndarray]]:
    """Split ragged records into blocks: first record, record after the last, their bytes."""
    found, first, offsets = [], 0, reference.offsets
    while first < len(reference):
        last = int(np.searchsorted(offsets, offsets[first] + BLOCK, side="right")) - 1
        last = max(last, first + 1)
        found.append((first, last, reference.values[offsets[first] : offsets[last]]))
        first = last
    return found
