"""LMDB with integer keys, read through buffers into its map."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import lmdb
import numpy as np

from stores.base import Base, records

if TYPE_CHECKING:
    from pathlib import Path

    from reference import Reference

KEY = struct.Struct("=Q")


class Store(Base):
    """`form`: raw, or zlib for records compressed one by one (LMDB itself has no compression)."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        self.env = lmdb.open(str(path), readonly=True, lock=False, readahead=False, max_dbs=1)
        records = self.env.open_db(b"records", integerkey=True, create=False)
        self.transaction = self.env.begin(db=records, buffers=True)
        if reference.ragged:
            self.gather = self._ragged

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Append in key order, a transaction per 64 MiB, without syncing each."""
        size = reference.values.nbytes * 2 + len(reference) * 4096 + (1 << 26)
        env = lmdb.open(str(path), map_size=size, max_dbs=1, sync=False, writemap=True)
        store = env.open_db(b"records", integerkey=True)
        step = max(1, (1 << 26) // max(1, reference.values.nbytes // len(reference)))
        pairs = ((KEY.pack(row), record) for row, record in enumerate(records(reference)))
        for start in range(0, len(reference), step):
            with env.begin(write=True, db=store) as transaction:
                for _ in range(start, min(start + step, len(reference))):
                    key, record = next(pairs)
                    transaction.put(key, zlib.compress(record) if form == "zlib" else record, append=True)
        env.sync(True)
        env.close()

    def gather(self, rows: np.ndarray) -> object:
        """Copy each record into its place."""
        out = np.empty((len(rows), *self.reference.shape), np.uint8)
        self.gather_into(rows, out)
        return out

    def gather_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy each record into its place in `out`."""
        flat = out.reshape(len(rows), -1)
        get, pack, view = self.transaction.get, KEY.pack, np.frombuffer
        if self.form == "zlib":
            for at, row in enumerate(rows.tolist()):
                flat[at] = view(zlib.decompress(get(pack(row))), np.uint8)
        else:
            for at, row in enumerate(rows.tolist()):
                flat[at] = view(get(pack(row)), np.uint8)

    def _ragged(self, rows: np.ndarray) -> object:
        get, pack = self.transaction.get, KEY.pack
        return [bytes(get(pack(row))) for row in rows.tolist()]

    def close(self) -> None:
        """Close the environment."""
        self.transaction.abort()
        self.env.close()
