"""A `.npy` file, memory-mapped or in memory: fancy indexing and `np.take`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stores.base import Base

if TYPE_CHECKING:
    from pathlib import Path

    from reference import Reference


class Store(Base):
    """`form`: `index` for `array[rows]`, `take` for `np.take`; with `memory-` before it the array is read whole."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        mode = None if form.startswith("memory") else "r"
        # A plain view: indexing a `memmap` makes another `memmap`, at a cost of its own.
        self.array = np.asarray(np.load(path / "values.npy", mmap_mode=mode))
        if form.endswith("take"):
            self.gather = self._take
        if reference.ragged:
            self.offsets = np.load(path / "offsets.npy")
            self.gather = self._ragged

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:  # noqa: ARG004
        """Write with `np.save`, and the offsets of ragged records beside it."""
        np.save(path / "values.npy", reference.values)
        if reference.offsets is not None:
            np.save(path / "offsets.npy", reference.offsets)

    def gather(self, rows: np.ndarray) -> object:
        """Index with an array of row numbers."""
        return self.array[rows]

    def _take(self, rows: np.ndarray) -> object:
        return np.take(self.array, rows, axis=0)

    def gather_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Take into an array; `mode="clip"` since NumPy buffers the output otherwise."""
        np.take(self.array, rows, axis=0, out=out, mode="clip")

    def _ragged(self, rows: np.ndarray) -> object:
        starts, stops = self.offsets[rows], self.offsets[rows + 1]
        offsets = np.concatenate([[0], np.cumsum(stops - starts)])
        values = np.empty(offsets[-1], np.uint8)
        for start, stop, at, end in zip(
            starts.tolist(), stops.tolist(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=False
        ):
            values[at:end] = self.array[start:stop]
        return values, offsets
