"""LitData: chunks of 64 MiB on the local disk, read item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from litdata import StreamingDataset, optimize
from reference import Reference

from stores.base import Base, records, stacked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def every_record(folder: str) -> Iterator[bytes]:
    """Yield the records of a data set; called in the process that writes."""
    yield from records(Reference(folder))


class Store(Base):
    """`form`: raw; compressed chunks are unpacked to the disk before they are read."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        self.dataset = StreamingDataset(str(path / "records"))

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:  # noqa: ARG004
        """Write records as bytes with one process, so that they stay in order."""
        optimize(
            fn=every_record,
            inputs=[str(reference.folder)],
            output_dir=str(path / "records"),
            chunk_bytes="64MB",
            num_workers=1,
            start_method="fork",
            verbose=False,
        )

    def gather(self, rows: np.ndarray) -> object:
        """Read each item and stack them."""
        return stacked([self.dataset[row] for row in rows.tolist()], self.reference)


def whole(samples: list[bytes], shape: tuple[int, ...]) -> np.ndarray:
    """Collate records of one length."""
    return np.frombuffer(b"".join(samples), np.uint8).reshape(len(samples), *shape)
