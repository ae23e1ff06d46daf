"""Every exception this package raises by itself.

Each one is a `DatasetRTError` and also the built-in exception that callers would expect: invalid caches, options and
weights are `ValueError`, failed input or output is `RuntimeError`, a missing cache is `FileNotFoundError`. The facts of
the message are attributes too. All of them survive pickling, since loader processes send them to each other.

A user's own exception, raised by a source, is none of these: it reaches the caller unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "AppendMismatchError",
    "CacheExistsError",
    "CacheIOError",
    "CacheLockedError",
    "CacheNotFoundError",
    "ConfigError",
    "ConsumerStarvedWarning",
    "CorruptCacheError",
    "CorruptRecordError",
    "CorruptSampleWarning",
    "DamagedGenerationError",
    "DatasetRTError",
    "DuplicateCacheError",
    "EmptySourceError",
    "FallBackWarning",
    "ForkedDatasetError",
    "ForkedIteratorError",
    "GenerationNotFoundError",
    "InternalError",
    "InterruptedReadError",
    "InvalidCacheError",
    "LimitError",
    "ManifestError",
    "NoSubstituteError",
    "OutOfMemoryError",
    "RowIndexError",
    "SampleError",
    "SchemaMismatchError",
    "SourceNameError",
    "SourceVersionError",
    "StateMismatchError",
    "UnsupportedVersionError",
    "WeightsError",
]


class DatasetRTError(Exception):
    """Base of all exceptions of this package.

    Args:
        message: What went wrong, where, what was expected and what was found.
        **fields: The same facts; each becomes an attribute.

    Example:
        >>> error = CorruptRecordError("shard: sample 7 is damaged", sample_id=7)
        >>> error.sample_id
        7
    """

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self._fields = fields
        for name, value in fields.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        """Return the message alone, whatever built-in exception is mixed in."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from message and fields, so that attributes survive pickling."""
        return _rebuild, (type(self), self.args[0], self._fields)


def _rebuild(kind: type[DatasetRTError], message: str, fields: dict[str, Any]) -> DatasetRTError:
    return kind(message, **fields)


class InvalidCacheError(DatasetRTError, ValueError):
    """A cache that cannot be used as it is. `path` names the file or directory."""

    path: Path


class CacheNotFoundError(InvalidCacheError, FileNotFoundError):
    """There is no published cache at `path`."""

    reason: str


class ManifestError(InvalidCacheError, RuntimeError):
    """The manifest is no valid JSON, has the wrong shape, or holds forbidden names or numbers."""

    reason: str


class UnsupportedVersionError(InvalidCacheError):
    """The cache has a newer format (`found`) than this build reads (`expected`: oldest and newest)."""

    expected: tuple[int, int]
    found: int


class CorruptCacheError(InvalidCacheError):
    """A file is missing, cut, altered or shaped wrongly: `path`, `subject`, `expected`, `found`."""

    subject: str
    expected: str
    found: str


class CorruptRecordError(InvalidCacheError):
    """One sample is damaged: `path`, `sample_id`, `offset` in bytes, `subject`, `expected`, `found`."""

    sample_id: int
    offset: int
    subject: str
    expected: str
    found: str


class GenerationNotFoundError(CacheNotFoundError):
    """The cache at `path` does not have the `generation`, or no more; it has those in `kept`."""

    generation: int
    kept: list[int]


class DamagedGenerationError(InvalidCacheError):
    """A `generation` of the cache at `path` is damaged for this `reason`; `last_good` is another to be opened instead.

    `last_good` is `None` if there is none.
    """

    generation: int
    reason: str
    last_good: int | None


class NoSubstituteError(InvalidCacheError):
    """Sample `sample_id` is damaged, in the file at `path`, and so are the `attempts` others drawn in its place."""

    sample_id: int
    attempts: int


class SchemaMismatchError(InvalidCacheError):
    """Caches opened together have different metadata or payloads: `column` of `path` against that of `first_path`.

    `subject` tells what the column is: a metadata column or a payload field.
    """

    first_path: Path
    subject: str
    column: str
    expected: str
    found: str


class DuplicateCacheError(InvalidCacheError):
    """One cache directory was given twice; `positions` in the list of paths."""

    positions: tuple[int, int]


class CacheExistsError(InvalidCacheError, FileExistsError):
    """A cache to be written exists already at `path`."""


class SourceVersionError(InvalidCacheError):
    """The cache at `path` was built from source version `found`, the source now has version `expected`."""

    expected: str
    found: str


class CacheLockedError(DatasetRTError, RuntimeError):
    """Another live process or thread (`holder`) is writing the cache at `path`."""

    path: Path
    holder: str


class SourceNameError(DatasetRTError, ValueError):
    """A source `name` that cannot be a directory name on every platform."""

    name: str
    reason: str


class EmptySourceError(DatasetRTError, ValueError):
    """The source `name` yielded no samples."""

    name: str


class SampleError(DatasetRTError, ValueError):
    """A sample that cannot be stored: `row`, and for a value its `column` or `field`, `expected`, `found`."""

    row: int
    reason: str
    column: str
    field: str
    expected: str
    found: str


class AppendMismatchError(DatasetRTError, ValueError):
    """A source declares other columns or fields than the cache at `path` has, to which it was to be appended.

    `subject` tells what `column` is, a metadata column or a payload field; `expected` is what the cache has, `found`
    what the source declares.
    """

    path: Path
    subject: str
    column: str
    expected: str
    found: str


class ConfigError(DatasetRTError, ValueError):
    """An `option` outside its range: `expected`, `found`."""

    option: str
    expected: str
    found: str


class WeightsError(DatasetRTError, ValueError):
    """A samples metadata table that does not fit the dataset; `rows` are the first rows at fault."""

    rows: list[int]


class StateMismatchError(DatasetRTError, ValueError):
    """A saved state that belongs to other data or another recipe; `fields` lists (name, saved value, present value)."""

    fields: list[tuple[str, str, str]]


class RowIndexError(DatasetRTError, IndexError):
    """An `index` outside the `length` rows of a dataset, or outside the ids ever given in the cache at `path`."""

    path: Path
    index: int
    length: int


class LimitError(DatasetRTError, ValueError):
    """A number (`found`) beyond what this build handles (`expected`)."""

    expected: int
    found: int


class OutOfMemoryError(DatasetRTError, MemoryError):
    """Something takes more memory (`bytes`) than the system has left, such as the values of one gather."""

    bytes: int


class CacheIOError(DatasetRTError, RuntimeError):
    """The operating system refused to `action` the file at `path`, or to start a thread; `errno` is its code."""

    path: Path | None
    action: str
    errno: int | None


class ForkedDatasetError(DatasetRTError, RuntimeError):
    """A process was forked while another thread was using the dataset; open it again in the child."""


class ForkedIteratorError(DatasetRTError, RuntimeError):
    """An iterator was used in a process forked after it was created; create a new one there."""


class InterruptedReadError(DatasetRTError, RuntimeError):
    """Reading was stopped because the interpreter is ending."""


class InternalError(DatasetRTError, RuntimeError):
    """A defect of this package; please report it with the message."""


class CorruptSampleWarning(UserWarning):
    """A damaged sample was left out or replaced; said once, see `CachedDataset.corrupt_samples`."""


class ConsumerStarvedWarning(UserWarning):
    """A training loop waits for samples most of its time; said once for a dataset, see `CachedDataset.profile`."""


class FallBackWarning(UserWarning):
    """The newest generation of the cache at `path` is damaged for this `reason`; `generation` was opened instead.

    Args:
        path: The cache.
        generation: What was opened.
        reason: What is wrong with the newest.
    """

    def __init__(self, path: str, generation: int, reason: str) -> None:
        super().__init__(f"{path}: opened generation {generation} instead of the newest, which is damaged: {reason}")
        self.path = path
        self.generation = generation
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the facts, so that it survives pickling."""
        return type(self), (self.path, self.generation, self.reason)
