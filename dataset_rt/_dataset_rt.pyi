"""Types of the native half; `src/python/` mirrors this page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dataset_rt.batch import CachedBatch
from dataset_rt.records import CachedSample

class ArrowTable:
    """A table for any consumer of the Arrow C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...

class SampleIterator(Iterator[CachedSample]):
    """Samples of one epoch, in order."""

    def __iter__(self) -> SampleIterator: ...
    def __next__(self) -> CachedSample: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def passed(self) -> int:
        """Return how many positions were passed: of samples received, and of damaged ones left out before them."""

    def state_dict(self) -> dict[str, Any]:
        """Return where to resume after the last sample received."""

    def load_state_dict(self, state: Mapping[str, Any], *, ignore: Sequence[str] = ()) -> None:
        """Start again where `state` was taken; `ignore` names fields that may differ."""

    def close(self) -> None:
        """Stop reading and end the worker threads; closing twice does nothing."""

class BatchIterator(Iterator[CachedBatch]):
    """Batches of one rank, in order."""

    def __iter__(self) -> BatchIterator: ...
    def __next__(self) -> CachedBatch: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def remaining(self) -> int | None:
        """Return the number of batches left, or `None` if they never end."""

    def state_dict(self) -> dict[str, Any]:
        """Return where to resume after the last batch received."""

    def load_state_dict(self, state: Mapping[str, Any], *, ignore: Sequence[str] = ()) -> None:
        """Start again where `state` was taken; `ignore` names fields that may differ."""

    def close(self) -> None:
        """Stop reading and end the worker threads; closing twice does nothing."""

class NativeBatch:
    """The parts of a `CachedBatch`, each built when it is asked for."""

    def __len__(self) -> int: ...
    def column(self, number: int) -> tuple[NativeArray, NDArray[np.int64] | None, NDArray[np.int64] | None]:
        """Return values, byte offsets and extents of open axes of a column: the same arrays every time."""

    def dense(self, fields: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]) -> dict[str, NDArray[Any]]:
        """Return the columns by name, for fields of these names, types and fixed extents."""

    def cache_id(self) -> NDArray[np.uint64]: ...
    def sample_id(self) -> NDArray[np.uint64]: ...
    def left_out(self) -> NDArray[np.uint64] | None:
        """Return the rows of damaged samples, which hold nothing (u64)."""

    def place(self) -> tuple[int, int, int] | None:
        """Return epoch, step and number of rows that are no padding."""

    def position(self) -> NDArray[np.uint64] | None: ...
    def metadata(self) -> ArrowTable: ...
    def state(self) -> str | None: ...

class NativeArray:
    """A writable buffer that owns its memory."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int:
        """Return the length in bytes."""

class CachedDataset:
    """Open caches and the state of their sampling."""

    def __init__(
        self, paths: Sequence[str], reader_config: str, generations: Sequence[int | None] | None = None
    ) -> None: ...
    def generations(self) -> list[tuple[int, str | None]]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> SampleIterator: ...
    def epoch_length(self) -> int: ...
    def samples(self, remainder: str, block: int, skip: int, step: int) -> SampleIterator: ...
    def batches(
        self,
        build: Callable[[NativeBatch], CachedBatch],
        batch_size: int,
        remainder: str,
        epochs: int | None,
        fields: Sequence[str] | None = None,
        skip: int = 0,
        step: int = 1,
        watched: bool = True,
    ) -> BatchIterator: ...
    def gather(
        self, rows: Any, fields: Sequence[str] | None = None, out: Sequence[Any] | None = None
    ) -> NativeBatch: ...
    def rows_of(self, columns: Sequence[Any]) -> NDArray[np.uint64]: ...
    def metadata_columns(self) -> list[str]: ...
    def payload_fields(self) -> list[tuple[str, str, list[int | None]]] | None: ...
    def sample(self, row: int) -> CachedSample: ...
    def profile(self, reset: bool) -> dict[str, Any]: ...
    def corrupt_samples(self) -> ArrowTable: ...
    def pretend_consumer(self, waited: int, worked: int, batches: int) -> None:
        """Count as if a consumer had waited and worked for so many nanoseconds, for tests."""

    def set_epoch(self, epoch: int) -> None: ...
    def next_position(self) -> tuple[int, int]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def start_state(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], ignore: Sequence[str]) -> None: ...
    def rows(self, epoch: int, start: int, stop: int | None) -> NDArray[np.uint64]: ...
    def order(self, epoch: int, start: int, stop: int | None) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]: ...
    def samples_metadata(self) -> ArrowTable: ...
    def set_samples_metadata(self, columns: Sequence[Any]) -> None: ...
    def select(self, columns: Sequence[Any]) -> CachedDataset: ...
    def parts(self) -> tuple[NDArray[np.uint64] | None, NDArray[np.uint64] | None, str]: ...
    def restore(self, rows: Any | None, weights: Any | None, state: str) -> None: ...

def large_binary(values: Any, offsets: Any) -> ArrowTable:
    """Return payloads as one Arrow column of large binary values called `data`."""

def sample_bits(seed: int, epoch: int, position: int) -> int:
    """Return 128 random bits that belong to one position of an epoch."""

def after_fork_in_child() -> None: ...
def write_cache(
    sources: Sequence[object], base: Path, writer_config: str, reuse_existing: bool
) -> list[tuple[bool, str, str]]:
    """Write one cache per source; each result is success, source name, and path or message."""

def append_cache(source: Any, path: str, writer_config: str) -> tuple[str, str, int, int, int, int, int, int]:
    """Put the samples of a source behind those of a cache.

    Return path, operation, generation, the one before, samples, added, deleted and bytes written.
    """

def delete_samples(path: str, ids: Any) -> tuple[str, str, int, int, int, int, int, int]:
    """Take the samples with these ids, a buffer of unsigned 64-bit numbers, out of a cache.

    Return path, operation, generation, the one before, samples, added, deleted and bytes written.
    """

def compact_cache(path: str, min_dead_fraction: float) -> tuple[str, str, int, int, int, int, int, int]:
    """Leave the records and the metadata of deleted samples behind; return the same as `delete_samples`."""

def cache_stats(
    path: str, generation: int | None = None
) -> tuple[str, int, int, int, int, int, ArrowTable, ArrowTable]:
    """Describe a cache.

    Return path, generation, samples, sample ids, bytes of metadata and of the index, tables of shards and generations.
    """

def vacuum_cache(
    path: str, grace_seconds: int, keep_previous: bool, dry_run: bool
) -> tuple[str, list[tuple[int, str]], list[int], int, int]:
    """Remove files that no kept generation needs.

    Return path, kept generations and why, those given up, and how many files and bytes were removed.
    """

def lease_generation(path: str, generation: int | None, seconds: int) -> tuple[int, int, str]:
    """Keep a generation; return its number, the end in seconds since 1970, and the file that stands for it."""

def release_lease(file: str) -> None:
    """End a lease."""

def repair_cache(
    path: str,
) -> tuple[tuple[str, str, int, int, int, int, int, int], int, NDArray[np.uint64], list[tuple[int, str]], list[Path]]:
    """Keep what can be trusted of a damaged cache.

    Return what was changed, as `delete_samples` does, the generation from which the repair started, the ids of lost
    samples, generations whose manifest is lost and why, and damaged files.
    """

def verify_cache(
    path: str, generation: int | None, full: bool
) -> tuple[int, int, int, list[tuple[str, str, int | None, int | None, str, str, str, str]], int]:
    """Say what is wrong with a cache.

    Return generation, samples, bytes read, the first findings (kind, path, sample id, offset, subject, expected, found,
    message), and how many findings there are.
    """

def find_caches(path: str) -> list[Path]:
    """Return the cache at `path`, or those directly in it; `path` itself if there is none."""

def cache_summaries(paths: Sequence[str]) -> list[str | Exception]:
    """Return what the manifest of each cache says, as JSON, or why it cannot be read."""

def record_lengths(path: str) -> NDArray[np.uint64]:
    """Return the stored bytes of each record (u64), by sample id; no payload is read."""

def record_checksums(path: str) -> NDArray[np.uint64] | None:
    """Return the checksum of each record (u64), by sample id; `None` if the cache has none."""
