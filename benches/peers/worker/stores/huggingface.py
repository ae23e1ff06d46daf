"""Hugging Face datasets: an Arrow file of fixed-size lists, memory-mapped, read in Arrow's format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import datasets
import pyarrow as pa
from datasets.arrow_writer import ArrowWriter

from stores.base import Base, blocks, records

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from reference import Reference

FILE = "records.arrow"


class Store(Base):
    """`form`: raw; the library stores Arrow uncompressed."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        dataset = datasets.Dataset.from_file(str(path / FILE))
        self.dataset = dataset if reference.ragged else dataset.with_format("arrow")
        if reference.ragged:
            self.gather = self._ragged

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:  # noqa: ARG004
        """Write tables of 64 MiB, in record batches of the library's default size."""
        if reference.ragged:
            features = datasets.Features({"data": datasets.Value("large_binary")})
            with ArrowWriter(path=str(path / FILE), features=features) as writer:
                for record in records(reference):
                    writer.write({"data": record})
                writer.finalize()
            return
        features = datasets.Features({"data": datasets.List(datasets.Value("uint8"), length=reference.size)})
        with ArrowWriter(path=str(path / FILE), features=features) as writer:
            for block in blocks(reference):
                column = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), reference.size)
                writer.write_table(pa.table({"data": column}))
            writer.finalize()

    def gather(self, rows: np.ndarray) -> object:
        """Index with the row numbers and view the column as one array; the format "numpy" would make int64 of it."""
        column = self.dataset[rows].column("data").combine_chunks()
        return column.flatten().to_numpy().reshape(len(rows), *self.reference.shape)

    def _ragged(self, rows: np.ndarray) -> object:
        return list(self.dataset[rows]["data"])
