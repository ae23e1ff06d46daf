"""This package: `dataset.batches(256, epochs=None)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dataset_rt import CachedDataset, ReaderConfig
from loaders.base import BATCH, WORKERS, Base

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataset_rt import CachedBatch


class Loader(Base):
    """Options: `weighted`, `shuffle`, `replacement`, and `batch` for another batch size."""

    def __iter__(self) -> Iterator[CachedBatch]:
        """Open the cache and start an endless iterator of batches."""
        order = {key: self.options[key] for key in ("shuffle", "replacement") if key in self.options}
        config = ReaderConfig(seed=7, num_workers=WORKERS, **order)
        dataset = CachedDataset([self.path / "records"], reader_config=config)
        if self.options.get("weighted"):
            table = dataset.samples_metadata()
            dataset.set_samples_metadata(table.with_columns(weight=1.0 + pl.int_range(pl.len()) % 97))
        self.batches = dataset.batches(self.options.get("batch", BATCH), epochs=None)
        return iter(self.batches)

    def shown(self, batch: CachedBatch) -> object:
        """Return the only field."""
        return batch.data["data"]

    def close(self) -> None:
        """Stop the workers."""
        self.batches.close()
