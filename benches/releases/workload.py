"""The data that is written and read: made the same way in every environment, and checked sample by sample.

Runs beside `worker.py` under published releases too: keep it to what dataset-rt 0.2.0 offers.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import dataset_rt
from dataset_rt import CacheInput, ReaderConfig, WriterConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import polars as pl

POOL = 256
HAS_RUNTIME = hasattr(dataset_rt, "DatasetRuntime")
THREADS = 2


@dataclass(frozen=True)
class Shape:
    """How much data: `caches` of `samples` payloads of `payload` bytes, with two or four metadata columns.

    `checked` bounds how many samples of an epoch are compared with their source.
    """

    caches: int
    samples: int
    payload: int
    columns: int = 2
    checked: int | None = None

    @property
    def total(self) -> int:
        """Samples in all caches together."""
        return self.caches * self.samples


class Source:
    """A cache source that cycles through a pool of random payloads, made before the clock starts."""

    def __init__(self, number: int, shape: Shape) -> None:
        rng = Random(number)  # noqa: S311 - payloads, not secrets
        self.name = f"cache-{number:05}"
        self.number, self.shape = number, shape
        self.pool = [rng.randbytes(shape.payload) for _ in range(min(POOL, shape.samples))]

    def payload(self, row: int) -> bytes:
        """Return the payload of a row."""
        return self.pool[row % len(self.pool)]

    def metadata(self, row: int) -> dict[str, bool | int | float | str]:
        """Return the metadata of a row."""
        if self.shape.columns == 2:
            return {"label": row % 1000, "score": row / 1024}
        text = f"shelf-{self.number:02}/item-{row:08}"
        return {"flag": row % 3 == 0, "label": row % 1000, "score": row / 1024, "text": text}

    def __iter__(self) -> Iterator[CacheInput]:
        """Yield the samples in order."""
        pool, count = self.pool, len(self.pool)
        for row in range(self.shape.samples):
            yield CacheInput(pool[row % count], self.metadata(row))


def paths_below(base: Path, shape: Shape) -> list[Path]:
    """Return where the caches of a shape are."""
    return [base / f"cache-{number:05}" for number in range(shape.caches)]


def write(sources: Sequence[object], base: Path, **options: object) -> None:
    """Write sources with two threads; raise when one is refused."""
    if HAS_RUNTIME:
        runtime = dataset_rt.DatasetRuntime(num_workers=THREADS)
        config = WriterConfig(show_progress=False, **options)
        results = runtime.write_cache(list(sources), base, writer_config=config)
    else:
        config = WriterConfig(show_progress=False, num_threads=THREADS, **options)
        results = dataset_rt.write_cache(list(sources), base, writer_config=config)
    for result in results:
        if not hasattr(result, "path"):
            raise RuntimeError(f"{result.source_name}: {result.message}")


def open_dataset(paths: list[Path], *, shuffle: bool, **options: object) -> dataset_rt.CachedDataset:
    """Open caches with two reader threads."""
    if HAS_RUNTIME:
        runtime = dataset_rt.DatasetRuntime(num_workers=THREADS)
        return runtime.cached_dataset(paths, reader_config=ReaderConfig(seed=7, shuffle=shuffle, **options))
    config = ReaderConfig(seed=7, shuffle=shuffle, num_workers=THREADS, **options)
    return dataset_rt.CachedDataset(paths, reader_config=config)


def table_out(dataset: dataset_rt.CachedDataset) -> pl.DataFrame:
    """Return the samples metadata table the fastest way the release knows."""
    return dataset.get_metadata() if HAS_RUNTIME else dataset.samples_metadata()


def table_back(dataset: dataset_rt.CachedDataset, table: pl.DataFrame) -> None:
    """Hand an edited table back the fastest way the release knows."""
    if HAS_RUNTIME:
        dataset.update_metadata(table)
    else:
        dataset.set_samples_metadata(table)


def check(dataset: dataset_rt.CachedDataset, shape: Shape) -> int:
    """Compare an epoch with what the sources yielded; return how many samples came, raise on a difference."""
    sources: dict[int, Source] = {}
    count = 0
    for data, metadata, identity, sample_id in dataset:
        # 0.4.8 numbers the caches that it writes itself by a hash of the name; it is only asked to write one.
        cache_id = identity if identity < shape.caches else 0
        source = sources.get(cache_id) or sources.setdefault(cache_id, Source(cache_id, shape))
        if bytes(data) != source.payload(sample_id) or metadata != source.metadata(sample_id):
            raise RuntimeError(f"sample {sample_id} of cache {cache_id} came back changed")
        count += 1
        if count == shape.checked:
            return count
    if count != shape.total:
        raise RuntimeError(f"expected {shape.total} samples in an epoch, found {count}")
    return count
