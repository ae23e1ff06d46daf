"""ArrayRecord as Grain wants it: groups of one record, and no read-ahead for random access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from stores.base import Base, records, stacked

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from reference import Reference

FILE = "records.array_record"
CODECS = {"raw": "uncompressed", "zstd": "zstd:3", "snappy": "snappy"}


class Store(Base):
    """`form`: raw, zstd (its default, level 3) or snappy."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        options = "readahead_buffer_size:0,max_parallelism:0"
        self.reader = ArrayRecordReader(str(path / FILE), options=options, file_reader_buffer_size=32768)

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Write record by record; there is no other way."""
        writer = ArrayRecordWriter(str(path / FILE), f"group_size:1,{CODECS[form]}")
        for record in records(reference):
            writer.write(record)
        writer.close()

    def gather(self, rows: np.ndarray) -> object:
        """Read a list of records and stack them."""
        return stacked(self.reader.read(rows.tolist()), self.reference)

    def close(self) -> None:
        """Close the file."""
        self.reader.close()
