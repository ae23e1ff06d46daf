"""Write and read synthetic caches and print the rates: the shape of the costs at a glance, not a benchmark.

Every payload that comes back is checked against the one that went in, outside the timed parts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import polars as pl

from dataset_rt import (
    CachedDataset,
    CacheInput,
    CacheWriteError,
    ReaderConfig,
    WriterConfig,
    write_cache,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

POOL = 512  # distinct payloads per cache; made before the clock starts


@dataclass(frozen=True)
class Synthetic:
    """A cache source of `count` samples that cycle through a pool of random payloads."""

    name: str
    payloads: list[bytes]
    count: int

    def __iter__(self) -> Iterator[CacheInput]:
        """Yield the samples, each with an int, a float and a string of metadata."""
        for row in range(self.count):
            metadata = {"label": row % 10, "score": row / self.count, "source": self.name}
            yield CacheInput(self.payloads[row % POOL], metadata)


@dataclass(frozen=True)
class Line:
    """One row of the printed table."""

    title: str
    seconds: float
    samples: int
    payload_bytes: int = 0

    def __str__(self) -> str:
        """Format time, sample rate and, where bytes moved, the payload rate."""
        rate = f"{self.samples / self.seconds:>14,.0f} samples/s"
        volume = f"{self.payload_bytes / self.seconds / 1e6:>10,.0f} MB/s" if self.payload_bytes else ""
        return f"{self.title:30}{self.seconds * 1e3:>10,.1f} ms{rate}{volume}"


def write(sources: list[Synthetic], base: Path) -> Line:
    """Write all sources and time it."""
    started = time.perf_counter()
    results = write_cache(sources, base, writer_config=WriterConfig(show_progress=False))
    seconds = time.perf_counter() - started
    for result in results:
        if isinstance(result, CacheWriteError):
            raise SystemExit(f"{result.source_name}: {result.message}")
    samples = sum(source.count for source in sources)
    return Line("write", seconds, samples, sum(len(s.payloads[0]) * s.count for s in sources))


def read(title: str, paths: list[Path], *, shuffle: bool) -> Line:
    """Iterate one epoch and time it."""
    dataset = CachedDataset(paths, reader_config=ReaderConfig(seed=1, shuffle=shuffle, num_workers=2))
    samples = size = 0
    started = time.perf_counter()
    for sample in dataset:
        samples += 1
        size += len(sample.data)
    return Line(title, time.perf_counter() - started, samples, size)


def check(sources: list[Synthetic], paths: list[Path]) -> None:
    """Compare every sample of a shuffled and an ordered epoch with what its source yielded."""
    sums = [[crc32(payload) for payload in source.payloads] for source in sources]
    for shuffle in (True, False):
        seen = 0
        for sample in CachedDataset(paths, reader_config=ReaderConfig(seed=2, shuffle=shuffle)):
            source = sources[sample.cache_id]
            wanted = (sums[sample.cache_id][sample.sample_id % POOL], sample.sample_id % 10, source.name)
            found = (crc32(sample.data), sample.metadata["label"], sample.metadata["source"])
            if wanted != found:
                raise SystemExit(f"sample {sample.sample_id} of cache {sample.cache_id} came back changed")
            seen += 1
        if seen != sum(source.count for source in sources):
            raise SystemExit(f"an epoch delivered {seen} samples")


def run(base: Path, caches: int, samples: int, payload: int) -> None:
    """Run every step below `base` and print the table."""
    rng = np.random.default_rng(0)
    sources = [Synthetic(f"cache-{at:05}", [rng.bytes(payload) for _ in range(POOL)], samples) for at in range(caches)]
    total = caches * samples
    print(f"{caches} caches of {samples:,} samples of {payload:,} bytes ({total * payload / 1e6:,.0f} MB)\n")
    print(write(sources, base))
    paths = [base / source.name for source in sources]

    started = time.perf_counter()
    dataset = CachedDataset(paths, reader_config=ReaderConfig(seed=1))
    next(iter(dataset))
    print(Line("open, first sample", time.perf_counter() - started, total))
    print(read("read shuffled, first pass", paths, shuffle=True))
    print(read("read shuffled, next pass", paths, shuffle=True))
    print(read("read in order", paths, shuffle=False))

    started = time.perf_counter()
    table = dataset.samples_metadata()
    print(Line("samples metadata out", time.perf_counter() - started, total))
    edited = table.with_columns(weight=1.0 + pl.col("score"))
    started = time.perf_counter()
    dataset.set_samples_metadata(edited)
    print(Line("edited weights back", time.perf_counter() - started, total))

    check(sources, paths)
    print(f"\n{2 * total:,} delivered samples compared with their sources: all equal")


def main() -> None:
    """Parse the sizes and run in a temporary folder."""
    parser = argparse.ArgumentParser(description="synthetic write and read benchmark")
    parser.add_argument("--caches", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000, help="per cache")
    parser.add_argument("--payload", type=int, default=4096, help="bytes per sample")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), arguments.caches, arguments.samples, arguments.payload)


if __name__ == "__main__":
    main()
