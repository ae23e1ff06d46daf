"""Configuration of readers and writers: frozen, checked when made, and passed to Rust once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["CompressionAlgo", "ReaderConfig", "ShardCompression", "WriterConfig", "WriterProfilerConfig"]

CompressionAlgo: TypeAlias = Literal["none", "lz4"]
"""How payloads are stored; each record is compressed by itself, so any one can be read alone."""

_Threads = Annotated[int, Field(gt=0, le=1024)]
_Prefetch = Annotated[int, Field(gt=0, le=1 << 20)]


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ShardCompression(_Config):
    """How the payloads of a cache are stored.

    Example:
        >>> ShardCompression(algo="lz4", ratio=2.0)
        ShardCompression(algo='lz4', ratio=2.0)
    """

    algo: CompressionAlgo = "none"
    """`"none"` stores payloads as they are; `"lz4"` compresses each that shrinks."""

    ratio: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Ratio to be expected, written to the manifest for whoever plans disk space; it changes nothing else."""

    @model_validator(mode="after")
    def _plain_has_ratio_one(self) -> ShardCompression:
        if self.algo == "none" and self.ratio != 1.0:
            raise ValueError(f'algo "none" has ratio 1.0, found {self.ratio}')
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

    @model_validator(mode="after")
    def _rank_exists(self) -> ReaderConfig:
        if self.rank >= self.world_size:
            raise ValueError(
                f"rank must be 0 to {self.world_size - 1} with world_size {self.world_size}, found {self.rank}"
            )
        return self
