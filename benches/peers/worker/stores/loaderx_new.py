"""loaderx 2: `Dense` for records of one length, `Ragged` for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from loaderx.zrecord import Dense, Ragged, RaggedBatch

from stores.base import Base

if TYPE_CHECKING:
    from pathlib import Path

    from reference import Reference


class Store(Base):
    """`form`: raw or zstd. Batches come as DLPack tensors."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        self.records = (Ragged if reference.ragged else Dense).open(path / "store")
        self.gather = self.records.__getitems__

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Append everything at once, as its documents ask for."""
        if reference.offsets is None:
            with Dense.create(path / "store", np.uint8, reference.shape, codec=form) as store:
                store.append(reference.values)
            return
        lengths = np.diff(reference.offsets)
        batch = RaggedBatch(
            np.array(reference.values), reference.offsets.astype(np.int32), lengths.astype(np.uint64)[:, None]
        )
        with Ragged.create(path / "store", np.uint8, 1, codec=form) as store:
            store.append(batch)

    def shown(self, batch: object) -> object:
        """Look at the tensors with NumPy."""
        if self.reference.ragged:
            return np.from_dlpack(batch.values), np.from_dlpack(batch.cu_seqlens)
        return np.from_dlpack(batch)

    def close(self) -> None:
        """Close the reader."""
        self.records.close()
