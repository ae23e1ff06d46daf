"""A cache's life: operations on caches that exist. Each makes a new generation; open datasets keep theirs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dataset_rt import _dataset_rt as native
from dataset_rt.arrays import ArraySource
from dataset_rt.config import ReaderConfig, WriterConfig
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import ConfigError
from dataset_rt.fields import RefusedError
from dataset_rt.maintenance import CacheChange, CacheStats, Finding, Lease, RepairReport, VacuumReport, VerifyReport
from dataset_rt.writer import as_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dataset_rt.records import CacheSource

__all__ = [
    "append_cache",
    "cache_stats",
    "compact_cache",
    "delete_samples",
    "lease_generation",
    "repair_cache",
    "vacuum_cache",
    "verify_cache",
]

_DEFAULT_WRITER_CONFIG = WriterConfig()


def append_cache(
    source_or_arrays: CacheSource | Mapping[str, Any],
    path: str | Path,
    *,
    metadata: pl.DataFrame | None = None,
    writer_config: WriterConfig = _DEFAULT_WRITER_CONFIG,
) -> CacheChange:
    """Append samples to a cache.

    The samples get the ids that follow the highest ever given; all others keep theirs. A new generation appears whole
    or not at all, and success is reported only once it is durable. Datasets that are open keep what they opened. What
    is written is the new samples, and the index (24 bytes) and checksums (4 bytes) of all ids; no record is copied.

    Args:
        source_or_arrays: A source as `write_cache` takes it, whose name and version are not used; or arrays by field
            name as `write_arrays` takes them. They must have the metadata columns and payload fields of the cache. A
            metadata column without nulls may get some.
        path: The cache directory.
        metadata: With arrays, a frame with a row for every sample.
        writer_config: How the new shards are written; they may be compressed in another way than the others. The
            dictionary of the cache is used, if it has one, and none can be added: `dictionary_bytes` must be 0, or at
            least its length.

    Returns:
        What was done; `added` counts the samples. Without any, nothing is changed.

    Raises:
        CacheNotFoundError: There is no cache.
        AppendMismatchError: The source declares other columns or fields than the cache has; nothing is changed.
        SampleError: A sample does not fit; `row` counts the samples of the source. Nothing is changed.
        ConfigError: Arrays that cannot be stored, or a dictionary that the cache does not have.
        CacheLockedError: Another process writes or changes the cache.
        CorruptCacheError: The index or the checksums of the cache are damaged; nothing is changed.
        CacheIOError: A file cannot be written; nothing is changed, unless the message says that the generation is in
            place.
        TypeError: The source is none, or `metadata` was given with one.
        Exception: What the source raises is raised as it is. Nothing is changed.

    Example:
        >>> change = append_cache({"data": [b"one", b"two"]}, cache, metadata=pl.DataFrame({"label": [1, 0]}))
        >>> change.added
        2
    """
    source: Any = source_or_arrays
    if isinstance(source_or_arrays, Mapping):
        try:
            source = ArraySource(Path(path).name or "arrays", source_or_arrays, metadata)
        except RefusedError as fault:
            message = f"the arrays cannot be appended: {fault}"
            raise ConfigError(message, option="arrays", expected="arrays of samples", found=str(fault)) from None
    elif metadata is not None:
        raise TypeError("metadata belongs to arrays; a source gives the metadata with its samples")
    return CacheChange(*_change(native.append_cache(source, os.fspath(path), as_json(writer_config))))


def delete_samples(
    path: str | Path, samples: Sequence[int] | NDArray[np.integer[Any]] | pl.DataFrame | pl.Expr
) -> CacheChange:
    """Take samples out of a cache.

    A new generation without them is published at once and durably; it takes 8 bytes on disk for each of them. The
    others keep their `sample_id`, and no id is ever given again. Datasets that are open keep what they opened. The
    records stay on disk until `compact_cache` and `vacuum_cache` have removed them.

    Args:
        path: The cache directory.
        samples: `sample_id`s in any order; a frame with a column `sample_id`; or a Polars expression over the columns
            of `CachedDataset.samples_metadata`, which is true for the samples to go. Samples that are gone already
            change nothing.

    Returns:
        What was done; `deleted` counts the samples that were still there.

    Raises:
        CacheNotFoundError: There is no cache.
        RowIndexError: An id was never given; nothing is deleted.
        CacheLockedError: Another process writes or changes the cache.
        TypeError: `samples` is none of these.

    Example:
        >>> change = delete_samples(cache, pl.col("label") == 3)
        >>> delete_samples(cache, pl.col("label") == 3).changed
        False
    """
    return CacheChange(*_change(native.delete_samples(os.fspath(path), _sample_ids(path, samples))))


def compact_cache(path: str | Path, *, min_dead_fraction: float = 0.2) -> CacheChange:
    """Leave behind what deleted samples still take: their records, and what their metadata said.

    A new generation is published in which the shards that are dead enough are written anew. Records are copied as they
    are stored, each compared with its checksum; no payload is decompressed. Ids never change, and neither do states and
    weights that were saved. Datasets that are open keep what they opened. Space comes back once `vacuum_cache` removes
    the generations before.

    Args:
        path: The cache directory.
        min_dead_fraction: Shards are rewritten of which at least this part is dead, 0.0 to 1.0: records of deleted
            samples, and bytes that no sample owns. With 0.0 the new generation has no record of a deleted sample.
            The metadata table loses what deleted samples said whatever the fraction.

    Returns:
        What was done. Where no shard is dead enough and no metadata is left, nothing is, and `changed` is False.

    Raises:
        CacheNotFoundError: There is no cache.
        CorruptRecordError: A record that would be copied is damaged; nothing is changed.
        InvalidCacheError: Another file is damaged; nothing is changed.
        CacheLockedError: Another process writes or changes the cache.
        ConfigError: `min_dead_fraction` is not from 0.0 to 1.0.
        KeyboardInterrupt: Ctrl-C; nothing is changed.

    Example:
        >>> compact_cache(cache, min_dead_fraction=0.0).changed
        False
    """
    return CacheChange(*_change(native.compact_cache(os.fspath(path), float(min_dead_fraction))))


def cache_stats(path: str | Path, *, generation: int | None = None) -> CacheStats:
    """Describe what a cache holds and what compaction would give back.

    Reads manifests, index and deleted ids; no record and no metadata.

    Args:
        path: The cache directory.
        generation: Which generation to describe; `None` is the newest.

    Returns:
        Sizes, and frames of the shards and of all generations.

    Raises:
        CacheNotFoundError: There is no cache.
        GenerationNotFoundError: There is no such generation, or no more.
        InvalidCacheError: A file is missing or damaged.

    Example:
        >>> stats = cache_stats(cache)
        >>> stats.samples + stats.deleted == stats.sample_ids
        True
    """
    found, number, samples, ids, metadata, index, shards, generations = native.cache_stats(os.fspath(path), generation)
    shards, generations = pl.DataFrame(shards), pl.DataFrame(generations)
    total = {name: int(shards[name].sum()) for name in ("byte_len", "live_bytes", "dead_bytes", "payload_bytes")}
    return CacheStats(
        Path(found),
        number,
        samples,
        ids,
        deleted=ids - samples,
        stored_bytes=total["byte_len"],
        live_bytes=total["live_bytes"],
        reclaimable_bytes=total["dead_bytes"],
        payload_bytes=total["payload_bytes"],
        metadata_bytes=metadata,
        index_bytes=index,
        shards=shards,
        generations=generations,
    )


def vacuum_cache(
    path: str | Path,
    *,
    grace: timedelta = timedelta(days=7),
    keep_previous: bool = True,
    dry_run: bool = False,
) -> VacuumReport:
    """Remove the files that no generation needs any more.

    The newest generation and the one before it stay, those that were superseded less than `grace` ago, and leased
    ones. A file goes only if a generation that is given up names it and no kept one does. Whoever has a generation open
    that is given up keeps the files that are open or mapped, and gets an error, never other bytes, for the others.

    Args:
        path: The cache directory.
        grace: How long a generation stays after another took its place.
        keep_previous: Whether the generation before the newest stays however old it is. `False`, with a `grace` of zero
            and after `compact_cache(path, min_dead_fraction=0)`, leaves nothing of deleted samples on the disk.
        dry_run: Whether only to tell what would go.

    Returns:
        What is kept, and what was removed.

    Raises:
        InvalidCacheError: A manifest or lease cannot be read; nothing is removed.
        CacheLockedError: Another process writes or changes the cache.
        CacheIOError: A file cannot be removed; the next vacuum goes on from there.
        ValueError: `grace` is negative.

    Example:
        >>> vacuum_cache(cache, dry_run=True).removed
        []
    """
    seconds = grace.total_seconds()
    if seconds < 0:
        raise ValueError(f"grace must not be negative, found {grace}")
    found, kept, removed, files, size = native.vacuum_cache(
        os.fspath(path), int(-(-seconds // 1)), keep_previous, dry_run
    )
    return VacuumReport(Path(found), dict(kept), removed, files, size, dry_run)


def repair_cache(path: str | Path) -> RepairReport:
    """Keep what can be trusted of a damaged cache, and say what is lost.

    Every file is read. What is damaged and stored twice (the metadata table, checksums) is made anew; samples whose
    record cannot be trusted are taken out and listed, and their ids are never given again. The result is a new
    generation, which shares the files that are sound. Nothing that was deleted comes back.

    Args:
        path: The cache directory.

    Returns:
        What is kept and what is lost.

    Raises:
        InvalidCacheError: No manifest can be trusted, no sample could be kept, or it cannot be known which samples were
            deleted; nothing is changed.
        CacheLockedError: Another process writes or changes the cache.
        KeyboardInterrupt: Ctrl-C; nothing is changed.

    Example:
        >>> repair_cache(cache).lost_sample_ids
        array([], dtype=uint64)
    """
    change, started_from, lost, generations, files = native.repair_cache(os.fspath(path))
    return RepairReport(
        CacheChange(*_change(change)),
        started_from,
        lost,
        dict(generations),
        [Path(file) for file in files],
    )


def lease_generation(
    path: str | Path, generation: int | None = None, *, duration: timedelta = timedelta(days=1)
) -> Lease:
    """Keep a generation from being vacuumed for some time, or until the lease is released.

    Args:
        path: The cache directory, which must be writable.
        generation: Number of the generation; `None` is the newest.
        duration: When the lease ends by itself.

    Returns:
        The lease.

    Raises:
        GenerationNotFoundError: There is no such generation, or no more.
        CacheIOError: The cache cannot be written to.
        ValueError: `duration` is not positive, or would end after the year 9999; nothing is written.

    Example:
        >>> with lease_generation(cache) as lease:
        ...     dataset = CachedDataset([cache], generations=[lease.generation], reader_config=ReaderConfig(seed=1))
    """
    seconds = int(duration.total_seconds())
    if seconds <= 0:
        raise ValueError(f"duration must be a second or more, found {duration}")
    if seconds >= (datetime.max.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds():
        raise ValueError(f"duration must end before the year 10000, found {duration}")
    number, expires, file = native.lease_generation(os.fspath(path), generation, seconds)
    return Lease(Path(path), number, datetime.fromtimestamp(expires, UTC), Path(file))


def verify_cache(path: str | Path, *, full: bool = True, generation: int | None = None) -> VerifyReport:
    """Say everything that is wrong with a cache.

    Nothing is written and nothing locked, so training jobs can read the cache meanwhile. What is wrong with one file
    does not keep the others from being checked. See [verifying](docs/operations/verify.md).

    Args:
        path: The cache directory.
        full: `True` reads every byte: all checksums, every record, its metadata against the table, its payload. `False`
            looks at the manifest, at presence, kind and length of every file, and at the index.
        generation: Number of the generation; `None` is the newest.

    Returns:
        A report; `report.ok` if nothing is wrong. A damaged cache is no error here.

    Raises:
        CacheNotFoundError: There is no cache at `path`.
        GenerationNotFoundError: There is no such generation, or no more.
        KeyboardInterrupt: Ctrl-C.

    Example:
        >>> verify_cache(cache, full=False).ok
        True
        >>> for finding in verify_cache(cache).findings:
        ...     print(finding)
    """
    number, samples, bytes_read, findings, count = native.verify_cache(os.fspath(path), generation, full)
    listed = [
        Finding(kind, Path(file), sample_id, offset, subject, expected, found, message)
        for kind, file, sample_id, offset, subject, expected, found, message in findings
    ]
    return VerifyReport(Path(path), number, full, samples, bytes_read, listed, count)


def _change(native_change: tuple[Any, ...]) -> tuple[Any, ...]:
    path, *facts = native_change
    return (Path(path), *facts)


def _sample_ids(path: str | Path, samples: Any) -> NDArray[np.uint64]:
    if isinstance(samples, pl.Expr):
        dataset = CachedDataset([path], reader_config=ReaderConfig(seed=0))
        samples = dataset.samples_metadata().filter(samples)
    if isinstance(samples, pl.DataFrame):
        return _ids_of(samples)
    ids = np.asarray(samples)
    if ids.size == 0:
        return np.empty(0, np.uint64)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise TypeError(
            "samples must be sample ids, a frame with a column sample_id, or a Polars expression,"
            f" found {type(samples).__name__} with values of type {ids.dtype} and {ids.ndim} axes"
        )
    if (ids < 0).any():
        raise TypeError(f"sample ids start at 0, found {ids.min()}")
    return np.ascontiguousarray(ids, np.uint64)


def _ids_of(frame: pl.DataFrame) -> NDArray[np.uint64]:
    if "sample_id" not in frame.columns:
        raise TypeError(f"the frame must have a column sample_id, found {frame.columns}")
    if "cache_id" in frame.columns and frame.get_column("cache_id").n_unique() > 1:
        raise TypeError("the frame names samples of several caches; filter it by cache_id first")
    column = frame.get_column("sample_id")
    if column.is_empty():  # without a value it may have no type either
        return np.empty(0, np.uint64)
    if not column.dtype.is_integer():
        raise TypeError(f"column sample_id must hold integers, found {column.dtype}")
    if column.null_count() > 0:
        raise TypeError(f"column sample_id has {column.null_count()} nulls")
    if (column < 0).any():
        raise TypeError(f"sample ids start at 0, found {column.min()}")
    return column.cast(pl.UInt64).to_numpy()
