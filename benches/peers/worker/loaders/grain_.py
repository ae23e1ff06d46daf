"""Grain over ArrayRecord: shuffle, decode each record, batch, prefetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grain
import numpy as np

from loaders.base import BATCH, WORKERS, Base

if TYPE_CHECKING:
    from collections.abc import Iterator


class Decode(grain.transforms.Map):
    """Bytes to an array; a class, so that worker processes can be given it."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def map(self, element: bytes) -> np.ndarray:
        """View the bytes."""
        return np.frombuffer(element, np.uint8).reshape(self.shape)


class Loader(Base):
    """With the option `processes`, in two processes; otherwise in this one with Grain's 16 reading threads."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        self.slow_start = bool(options.get("processes"))

    def __iter__(self) -> Iterator[np.ndarray]:
        """Build the pipeline of its documents and start."""
        source = grain.sources.ArrayRecordDataSource(str(self.path / "records.array_record"))
        pipeline = grain.MapDataset.source(source).seed(7).shuffle().repeat().map(Decode(self.reference.shape))
        pipeline = pipeline.batch(BATCH).to_iter_dataset(grain.ReadOptions())
        if self.slow_start:
            pipeline = pipeline.mp_prefetch(grain.MultiprocessingOptions(num_workers=WORKERS))
        return iter(pipeline)
