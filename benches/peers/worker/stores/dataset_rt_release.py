"""dataset-rt 0.4.8: plain bytes, read sample by sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataset_rt import CacheInput, DatasetRuntime, ReaderConfig, ShardCompression, WriterConfig
from stores.base import Base, records, stacked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from reference import Reference

THREADS = 2


class Source:
    """A cache source of plain bytes."""

    name = "records"

    def __init__(self, reference: Reference) -> None:
        self.reference = reference

    def __iter__(self) -> Iterator[CacheInput]:
        """Yield every record with the metadata that a release asks for."""
        for row, record in enumerate(records(self.reference)):
            yield CacheInput(record, {"row": row})


def opened(path: Path) -> object:
    """Open the cache with two threads."""
    runtime = DatasetRuntime(num_workers=THREADS)
    return runtime.cached_dataset([path / "records"], reader_config=ReaderConfig(seed=7))


class Store(Base):
    """`form`: raw or lz4."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        self.dataset = opened(path)
        self.cache_id = next(iter(self.dataset)).cache_id

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Write with two threads."""
        config = WriterConfig(
            show_progress=False, shard_compression=ShardCompression(algo="none" if form == "raw" else form)
        )
        runtime = DatasetRuntime(num_workers=THREADS)
        (result,) = runtime.write_cache([Source(reference)], path, writer_config=config)
        if not hasattr(result, "path"):
            raise RuntimeError(result.message)

    def gather(self, rows: np.ndarray) -> object:
        """Get each sample and stack them."""
        get, cache_id = self.dataset.get_item, self.cache_id
        return stacked([get(cache_id, row).data for row in rows.tolist()], self.reference)
