"""Lance: a column of large binaries, read with `take`; fixed-size lists are slower and not compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa

from stores.base import Base, blocks, ragged_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reference import Reference


class Store(Base):
    """`form`: raw, in the version of the format that reads fastest, or zstd, in the first that compresses records."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        self.dataset = lance.dataset(str(path / "records.lance"))

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Stream record batches of 64 MiB."""
        details = None if form == "raw" else {"lance-encoding:compression": form}
        schema = pa.schema([pa.field("data", pa.large_binary(), nullable=False, metadata=details)])
        batches = (pa.record_batch([column], schema=schema) for column in _columns(reference))
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        lance.write_dataset(reader, str(path / "records.lance"), data_storage_version="2.1" if details else "2.0")

    def gather(self, rows: np.ndarray) -> object:
        """Take the rows and view the column's values and offsets."""
        column = self.dataset.take(rows.tolist(), columns=["data"]).column(0).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0)
        _, offsets, values = column.buffers()
        offsets = np.frombuffer(offsets, np.int64, len(rows) + 1, column.offset * 8)
        values = np.frombuffer(values, np.uint8)
        if self.reference.ragged:
            return values, offsets
        return values[offsets[0] : offsets[-1]].reshape(len(rows), *self.reference.shape)


def _columns(reference: Reference) -> Iterator[pa.Array]:
    if reference.offsets is None:
        for block in blocks(reference):
            yield _binaries(block.reshape(-1), np.arange(len(block) + 1, dtype=np.int64) * reference.size)
        return
    for first, last, block in ragged_blocks(reference):
        yield _binaries(block, (reference.offsets[first : last + 1] - reference.offsets[first]).astype(np.int64))


def _binaries(values: np.ndarray, offsets: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
