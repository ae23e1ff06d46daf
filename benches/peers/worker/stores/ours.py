"""This package: typed records through `write_arrays`, ragged ones as plain bytes through `write_cache`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataset_rt import (
    CachedDataset,
    CacheInput,
    ReaderConfig,
    ShardCompression,
    WriterConfig,
    write_arrays,
    write_cache,
)
from stores.base import Base, records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from reference import Reference

THREADS = 2


def codec(form: str) -> ShardCompression:
    """Return the compression of a form: raw, or an algorithm and, after a dash, its level."""
    algo, _, level = form.partition("-")
    return ShardCompression(algo="none" if algo == "raw" else algo, level=int(level) if level else None)


class Source:
    """A cache source of plain bytes."""

    name = "records"

    def __init__(self, reference: Reference) -> None:
        self.reference = reference

    def __iter__(self) -> Iterator[CacheInput]:
        """Yield every record."""
        for record in records(self.reference):
            yield CacheInput(record, {})


class Store(Base):
    """`form`: see `codec`."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        config = ReaderConfig(seed=7, num_workers=THREADS)
        self.dataset = CachedDataset([path / "records"], reader_config=config)
        if reference.ragged:
            self.gather = self._ragged

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Write with two threads; done when everything is on the disk."""
        config = WriterConfig(num_threads=THREADS, show_progress=False, shard_compression=codec(form))
        if reference.ragged:
            (result,) = write_cache([Source(reference)], path, writer_config=config)
        else:
            result = write_arrays("records", {"data": reference.values}, path, writer_config=config)
        if not hasattr(result, "path"):
            raise RuntimeError(result.message)

    def gather(self, rows: np.ndarray) -> object:
        """Gather into memory of the package's."""
        return self.dataset.gather(rows).data["data"]

    def gather_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Gather into an array of ours."""
        self.dataset.gather(rows, out={"data": out})

    def _ragged(self, rows: np.ndarray) -> object:
        payloads = self.dataset.gather(rows).data
        return payloads.values, payloads.offsets
