"""Configuration of readers and writers: frozen, checked when made, and passed to Rust once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["CompressionAlgo", "ReaderConfig", "ShardCompression", "WriterConfig", "WriterProfilerConfig"]

CompressionAlgo: TypeAlias = Literal["none", "lz4", "zstd"]
"""How payloads are stored; each record is compressed by itself, so any one can be read alone."""

_Threads = Annotated[int, Field(gt=0, le=1024)]
_LEVELS: dict[CompressionAlgo, range] = {"none": range(0), "lz4": range(1, 13), "zstd": range(-7, 20)}
_Prefetch = Annotated[int, Field(gt=0, le=1 << 20)]


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ShardCompression(_Config):
    """How the payloads of a cache are stored.

    Example:
        >>> ShardCompression(algo="zstd", level=1)
        ShardCompression(algo='zstd', ratio=1.0, level=1, dictionary_bytes=0)
    """

    algo: CompressionAlgo = "none"
    """`"none"` stores payloads as they are; `"lz4"` and `"zstd"` compress each that shrinks. zstd shrinks more and is
    read more slowly; DatasetRT before 1.0 does not read it."""

    ratio: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Ratio to be expected, written to the manifest for whoever plans disk space; it changes nothing else."""

    level: int | None = None
    """How hard to compress; `None` is 3 for zstd and 1 for lz4. zstd has -7 to 19: 1 writes up to twice as fast as 3,
    19 very slowly; all are read at about the same speed. lz4 has 1 to 12: 9 writes six times slower than 1, shrinks
    more, and is read faster."""

    dictionary_bytes: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Most bytes of a zstd dictionary, from 1,024; 0 for none. It is trained on the first samples of a source, 100
    bytes for each of its own and 16 MiB at most, which are held in memory meanwhile. It makes records of up to a few
    KiB that resemble each other several times smaller and faster to read; 112,640 is a good size. A source with too
    few samples gets none."""

    @model_validator(mode="after")
    def _options_belong_to_the_algorithm(self) -> ShardCompression:
        if self.algo == "none" and self.ratio != 1.0:
            raise ValueError(f'algo "none" has ratio 1.0, found {self.ratio}')
        levels = _LEVELS[self.algo]
        if self.level is not None and self.level not in levels:
            known = f"levels {levels[0]} to {levels[-1]}" if levels else "no levels"
            raise ValueError(f'algo "{self.algo}" has {known}, found {self.level}')
        if self.algo != "zstd" and self.dictionary_bytes != 0:
            raise ValueError(f'algo "{self.algo}" has dictionary_bytes 0, found {self.dictionary_bytes}')
        if 0 < self.dictionary_bytes < 1024:
            raise ValueError(f"dictionary_bytes must be 0 or at least 1024, found {self.dictionary_bytes}")
        return self


class WriterProfilerConfig(_Config):
    """Where the time of a write goes, as JSON; also written after a failure or Ctrl-C."""

    enabled: bool = False
    """Whether stage timings are written."""

    path: Path = Path("dataset_rt_profile.json")
    """File to write them to."""


class WriterConfig(_Config):
    """How caches are written."""

    prefetch_size: _Prefetch = 64
    """Most samples between the source and the write blocks; the other memory of a write does not depend on samples."""

    num_threads: _Threads = 4
    """Threads that compress, checksum and frame records; no more are started than there are cores."""

    max_shard_bytes: Annotated[int, Field(gt=0, lt=1 << 63)] = 64 * 1024 * 1024
    """A shard is closed before it would pass this many bytes; a larger record gets a shard of its own."""

    shard_compression: ShardCompression = ShardCompression()
    """How payloads are stored."""

    show_progress: bool = True
    """Whether a progress bar is drawn, if standard error is a terminal."""

    validate_cache: bool = False
    """Whether a cache that is reused is read and checked in full first; otherwise its manifest is."""

    profiler: WriterProfilerConfig = WriterProfilerConfig()
    """Stage timings."""


class ReaderConfig(_Config):
    """How caches are read and sampled.

    Example:
        >>> ReaderConfig(seed=42, shuffle=False).shuffle
        False
    """

    seed: Annotated[int, Field(ge=0, lt=1 << 64)]
    """Seed of every random choice; equal seeds give equal orders on every machine."""

    prefetch_size: _Prefetch = 64
    """Most samples in flight in one iterator; with the largest sample it bounds the memory of reading. Of
    batches, at least `num_workers + 1` are loaded ahead, whatever their size."""

    num_workers: _Threads = 4
    """Reader threads of one iterator; the order does not depend on it."""

    shuffle: bool = True
    """`True` draws samples by weight; `False` delivers every sample once, in table order."""

    replacement: bool = True
    """With `shuffle=True`: `True` draws with replacement, each sample with probability in proportion to its weight, so
    that one may come twice and another not at all; `False` delivers each sample its expected number of times, rounded
    down or up, which with equal weights is a permutation."""

    epoch_length: Annotated[int, Field(ge=0, le=1 << 48)] | None = None
    """Samples of an epoch over all ranks; `None` is the number of samples of the dataset."""

    rank: Annotated[int, Field(ge=0)] = 0
    """Number of this consumer among those that share one order; see `dataset_rt.adapters.ranks`."""

    world_size: Annotated[int, Field(gt=0, lt=1 << 31)] = 1
    """Number of consumers that share the order. Processes that need equal samples use equal ranks."""

    validate_cache: bool = False
    """Whether opening reads every file in full and compares everything that is stored twice."""

    verify: Literal["first", "always", "never"] = "first"
    """Whether a record is compared with its checksum the first time this process reads it, every time, or never. A
    cache without record checksums, written by a release before 1.0, is compared in whole files, once in a process;
    `"always"` means that too."""

    io: Literal["auto", "mmap", "pread"] = "auto"
    """`"mmap"` maps files, `"pread"` reads them; `"auto"` maps on local file systems and reads on network ones,
    for each cache by itself."""

    populate_bytes: Annotated[int, Field(ge=0, lt=2**63)] = 1 << 30
    """Most bytes of shards, over all caches, that are read into the page cache from front to back, in the background,
    once a batch or gather finds its records not in memory; 0 never. Nothing is read ahead unless it fits into half of
    the memory that is available. It ends when the dataset does."""

    fall_back: bool = False
    """Whether a cache whose newest generation is damaged is opened in the last good one, with a
    `FallBackWarning`; otherwise that is an error. Samples deleted since are there again then."""

    on_corrupt: Literal["raise", "skip", "substitute"] = "raise"
    """What iteration does about a sample whose record is damaged: raise, leave it out, or deliver another in its
    place, which depends on seed, epoch and position alone; see `docs/operations/damaged-samples.md`."""

    @model_validator(mode="after")
    def _rank_exists(self) -> ReaderConfig:
        if self.rank >= self.world_size:
            raise ValueError(
                f"rank must be 0 to {self.world_size - 1} with world_size {self.world_size}, found {self.rank}"
            )
        return self
