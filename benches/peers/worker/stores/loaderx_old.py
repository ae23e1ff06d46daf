"""loaderx 0.5: `Dataset` for records of one length, `Zrecord` for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from loaderx import Dataset, Zrecord

from stores.base import Base, ragged_blocks

if TYPE_CHECKING:
    from pathlib import Path

    from reference import Reference


class Store(Base):
    """`form`: raw or flate."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        if reference.ragged:
            self.records = Zrecord(path, codec=form)
            self.gather = self._ragged
        else:
            self.dataset = Dataset(path)
            self.gather = self.dataset.__getitems__

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Write with `Dataset.write`, or ragged records in blocks of 64 MiB."""
        if reference.offsets is None:
            Dataset.write(path, reference.values, codec=form).close()
            return
        with Zrecord(path, codec=form) as store:
            for first, last, block in ragged_blocks(reference):
                at = (reference.offsets[first:last] - reference.offsets[first]).astype(np.uint64)
                store.append_var(block, at, np.diff(reference.offsets[first : last + 1]).astype(np.uint32))
            store.sync()

    def gather_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Gather into an array of ours, one level below `Dataset`."""
        self.dataset._store.gather(rows.astype(np.uint64), out, self.reference.size)  # noqa: SLF001 - the only way

    def _ragged(self, rows: np.ndarray) -> object:
        rows = rows.astype(np.uint64)
        offsets = np.zeros(len(rows) + 1, np.uint64)
        np.cumsum(self.records.lengths(rows), out=offsets[1:])
        values = np.empty(int(offsets[-1]), np.uint8)
        self.records.gather_var(rows, values, offsets[:-1])
        return values, offsets
