"""What operations on a cache that exists report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from dataset_rt import _dataset_rt as native

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["CacheChange", "CacheStats", "Finding", "Lease", "RepairReport", "VacuumReport", "VerifyReport"]


@dataclass(frozen=True)
class CacheChange:
    """What an operation made of a cache.

    Example:
        >>> change = CacheChange(cache, "delete", 1, 0, samples=97, added=0, deleted=3, bytes_written=32)
        >>> change.changed
        True
    """

    path: Path
    """The cache directory, links resolved."""
    operation: str
    """`"append"`, `"delete"`, `"compact"` or `"repair"`."""
    generation: int
    """The newest generation now."""
    previous_generation: int
    """The newest generation before."""
    samples: int
    """Samples now."""
    added: int
    """Samples that were added."""
    deleted: int
    """Samples that were taken out."""
    bytes_written: int
    """Bytes of the files that were written, the manifest not counted."""

    @property
    def changed(self) -> bool:
        """Whether there was anything to do."""
        return self.generation != self.previous_generation


@dataclass(frozen=True)
class RepairReport:
    """What a repair kept, and what is lost.

    Example:
        >>> repair_cache(cache).change.changed
        False
    """

    change: CacheChange
    """The new generation; `change.changed` is `False` for a cache that was sound. `change.deleted` counts what is lost
    and what had to be deleted again."""
    started_from: int
    """The generation from which the repair started: the newest whose manifest could be trusted."""
    lost_sample_ids: NDArray[np.uint64]
    """Ids of the samples that were there and are lost, in ascending order."""
    lost_generations: dict[int, str]
    """Newer generations, and what is wrong with the manifest of each. What they added is lost; what they deleted is
    deleted again where their list of it can be trusted."""
    damaged_files: list[Path]
    """Files that were not what they should be. They stay until a vacuum removes them."""


@dataclass(frozen=True)
class VacuumReport:
    """What a vacuum removed, or would remove.

    Example:
        >>> report = VacuumReport(cache, {1: "previous", 2: "newest"}, removed=[0], files=3, bytes=4096, dry_run=False)
        >>> report.files
        3
    """

    path: Path
    """The cache directory, links resolved."""
    kept: dict[int, str]
    """Generations that can still be opened, and why each is kept: `"newest"`, `"previous"`, `"grace"` or `"leased"`."""
    removed: list[int]
    """Generations that were given up."""
    files: int
    """Files removed."""
    bytes: int
    """Their bytes. Programs that have a file open keep its space in use until they close it."""
    dry_run: bool
    """Whether nothing was removed."""


@dataclass(frozen=True)
class CacheStats:
    """What one generation of a cache holds.

    Example:
        >>> stats = cache_stats(cache)
        >>> stats.stored_bytes == stats.shards["byte_len"].sum()
        True
    """

    path: Path
    """The cache directory, links resolved."""
    generation: int
    """The generation that is described."""
    samples: int
    """Samples that it gives."""
    sample_ids: int
    """Sample ids ever given; every `sample_id` is below it."""
    deleted: int
    """Samples that were taken out, by anybody, since the cache was written."""
    stored_bytes: int
    """Bytes of the shards."""
    live_bytes: int
    """Bytes of the records of samples that are there."""
    reclaimable_bytes: int
    """Bytes of the shards that `compact_cache(path, min_dead_fraction=0.0)` leaves behind."""
    payload_bytes: int
    """Bytes of the payloads in the shards before compression, those of deleted samples too."""
    metadata_bytes: int
    """Bytes of the metadata tables."""
    index_bytes: int
    """Bytes of the index and of the record checksums."""
    shards: pl.DataFrame
    """A row for each shard: `shard` (u64, its number), `generation` (u64, which wrote it), `path`, `algorithm` (str),
    `records`, `live_records`, `byte_len`, `live_bytes`, `dead_bytes`, `payload_bytes` (u64)."""
    generations: pl.DataFrame
    """A row for each generation with a manifest: `generation` (u64), `operation` (str, `"write"` for the first),
    `created` (UTC, null for the first), `samples`, `added`, `deleted`, `bytes` (u64, of the files that it wrote, as far
    as they are there), `removed` (bool, whether a vacuum has given it up)."""


@dataclass(frozen=True)
class Lease:
    """The promise that a generation stays until a time; a context manager that releases it at its end."""

    path: Path
    """The cache directory."""
    generation: int
    """The generation that stays."""
    expires: datetime
    """When the promise ends by itself, in UTC."""
    file: Path
    """What stands for it on disk."""

    def release(self) -> None:
        """End the lease now; a second time does nothing."""
        native.release_lease(os.fspath(self.file))

    def __enter__(self) -> Self:
        """Return the lease."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self.release()


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a cache, as `verify_cache` found it."""

    kind: str
    """What kind of thing: `"manifest"`, `"generation"`, `"missing_file"`, `"wrong_kind"`, `"wrong_length"`,
    `"unreadable"`, `"checksum"`, `"file_format"`, `"index_row"`, `"record_checksum"`, `"record_format"`,
    `"metadata_mismatch"` or `"payload_bytes"`."""
    path: Path
    """The file."""
    sample_id: int | None
    """The sample, if it is about one."""
    offset: int | None
    """Where in the file, in bytes, if it is about a place in it."""
    subject: str
    """What was looked at."""
    expected: str
    """What it should be."""
    found: str
    """What it is."""
    message: str
    """All of it in a sentence."""

    def __str__(self) -> str:
        """Return the sentence."""
        return self.message


@dataclass(frozen=True)
class VerifyReport:
    """What `verify_cache` found.

    Example:
        >>> report = verify_cache(cache)
        >>> report.ok, report.findings
        (True, [])
    """

    path: Path
    """The cache."""
    generation: int
    """Which of its generations; 0 where the manifest cannot be read."""
    full: bool
    """Whether every byte was read."""
    samples: int
    """Samples that the manifest promises; 0 where it cannot be read."""
    bytes_read: int
    """Bytes read to find that out."""
    findings: list[Finding]
    """What is wrong: files in the order of the manifest, then samples in theirs; at most 10,000."""
    finding_count: int
    """How much is wrong, beyond that limit too."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.finding_count == 0
