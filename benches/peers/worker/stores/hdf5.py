"""HDF5 through h5py: contiguous when raw, one chunk per record when compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py
import numpy as np

from stores.base import Base, blocks, records

if TYPE_CHECKING:
    from pathlib import Path

    from reference import Reference

FILE = "records.h5"


class Store(Base):
    """`form`: raw, gzip or lzf. h5py takes sorted distinct rows, or one: the faster of both is used."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        self.file = h5py.File(path / FILE, "r")
        self.records = self.file["records"]
        if reference.ragged:
            self.gather = self._ragged
        elif form != "raw":
            self.gather = self._single

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Write in blocks; ragged records one by one as variable-length bytes."""
        with h5py.File(path / FILE, "w") as file:
            if reference.ragged:
                kept = file.create_dataset("records", (len(reference),), h5py.vlen_dtype(np.uint8))
                for row, record in enumerate(records(reference)):
                    kept[row] = np.frombuffer(record, np.uint8)
                return
            options = {} if form == "raw" else {"chunks": (1, *reference.shape), "compression": form}
            kept = file.create_dataset("records", reference.values.shape, np.uint8, **options)
            at = 0
            for block in blocks(reference):
                kept[at : at + len(block)] = block
                at += len(block)

    def gather(self, rows: np.ndarray) -> object:
        """Read the distinct rows in order and spread them, where records lie side by side."""
        distinct, places = np.unique(rows, return_inverse=True)
        return self.records[distinct][places]

    def _single(self, rows: np.ndarray) -> object:
        return np.stack([self.records[row] for row in rows.tolist()])

    def _ragged(self, rows: np.ndarray) -> object:
        return [self.records[row] for row in rows.tolist()]

    def close(self) -> None:
        """Close the file."""
        self.file.close()
