"""The data set as it was made, and the comparison of what a contender delivers with it.

Runs inside every environment: NumPy and the standard library only.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np


class Reference:
    """The records of a data set and the batches of row numbers that everybody reads."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.values = np.load(self.folder / "values.npy", mmap_mode="r")
        self.rows = np.load(self.folder / "rows.npy")
        offsets = self.folder / "offsets.npy"
        self.offsets = np.load(offsets) if offsets.exists() else None

    @property
    def ragged(self) -> bool:
        """Whether records differ in length."""
        return self.offsets is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a record of a dense data set."""
        return self.values.shape[1:]

    @property
    def size(self) -> int:
        """Bytes of a record of a dense data set."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    def record(self, row: int) -> np.ndarray:
        """Return a record as it was made."""
        if self.offsets is None:
            return np.asarray(self.values[row])
        return np.asarray(self.values[self.offsets[row] : self.offsets[row + 1]])

    def payload_bytes(self, rows: np.ndarray) -> int:
        """Return the bytes of these records together."""
        if self.offsets is None:
            return rows.size * self.size
        return int((self.offsets[rows + 1] - self.offsets[rows]).sum())


def parts(batch: object, reference: Reference) -> list[np.ndarray]:
    """Split a batch, in whatever form it came, into one array of bytes per record."""
    if isinstance(batch, tuple):  # values, offsets
        values, offsets = np.asarray(batch[0]), np.asarray(batch[1])
        values = values.reshape(-1).view(np.uint8)
        return [values[start:stop] for start, stop in itertools.pairwise(offsets)]
    if isinstance(batch, list):
        return [np.frombuffer(record, np.uint8) for record in batch]
    array = np.asarray(batch)
    if array.dtype != np.uint8 or array.shape[1:] != reference.shape:
        raise RuntimeError(f"expected uint8 records of shape {reference.shape}, found {array.dtype} {array.shape}")
    return list(np.ascontiguousarray(array).reshape(len(array), -1))


def check(batch: object, reference: Reference, rows: np.ndarray | None = None) -> None:
    """Compare every byte of a batch; without `rows`, each record says in its first four bytes which it is."""
    records = parts(batch, reference)
    if rows is not None and len(records) != len(rows):
        raise RuntimeError(f"expected {len(rows)} records in the batch, found {len(records)}")
    if not records:
        raise RuntimeError("the batch is empty")
    for at, record in enumerate(records):
        row = int(record[:4].copy().view("<u4")[0]) if rows is None else int(rows[at])
        if row >= len(reference) or not np.array_equal(record, reference.record(row).reshape(-1)):
            raise RuntimeError(f"record {row} came back changed (place {at} of the batch)")
