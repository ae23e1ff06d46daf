"""What goes into a cache and what comes out: samples, sources and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from dataset_rt.dataset import CachedDataset

__all__ = [
    "CacheInput",
    "CacheSource",
    "CacheSourcesDatasetError",
    "CacheSourcesDatasetResult",
    "CacheSourcesDatasetSuccess",
    "CacheWriteError",
    "CacheWriteResult",
    "CacheWriteSuccess",
    "CachedSample",
    "Metadata",
    "MetadataValue",
]

MetadataValue: TypeAlias = bool | int | float | str | None
"""One metadata value. On the way in, NumPy scalars of these types are taken too."""

Metadata: TypeAlias = Mapping[str, MetadataValue]
"""Metadata of one sample by column name; every sample of a cache has the same names."""


class CacheInput(NamedTuple):
    """One sample on its way into a cache."""

    data: Buffer | Mapping[str, Any]
    """The payload: bytes, bytearray, memoryview, or anything with a contiguous buffer, stored as it is.

    Or named fields: NumPy arrays and whatever NumPy makes an array of numbers, and `bytes`.
    """

    metadata: Metadata
    """The sample's metadata."""


class CachedSample(NamedTuple):
    """One sample out of a cache. All parts are owned by the tuple."""

    data: Any
    """The payload: `bytes`, or a dict of field name to NumPy array (`bytes` for fields of bytes) if it is typed."""

    metadata: dict[str, Any]
    """The sample's metadata, in name order."""

    cache_id: int
    """Position of its cache in the list given to `CachedDataset`."""

    sample_id: int
    """Row in that cache."""


class ArrowStream(Protocol):
    """A table that exports an Arrow C stream, such as `polars.DataFrame`."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowArray(Protocol):
    """A record batch that exports an Arrow C array."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class CacheSource(Protocol):
    """Anything with a name that yields samples.

    Three more attributes are used where they exist: `version` (`str` or `int`) is stored in the cache, and reuse with
    another version is refused; `schema` (a mapping from column name to `bool`, `int`, `float` or `str`, or one of these
    `| None`) declares the metadata columns instead of inferring them from the samples; `payload_schema` (a mapping from
    field name to `bytes` or to `(dtype, shape)`, where an axis of `None` differs between samples) declares the payload
    fields. Fields that are not declared have the dtype and shape of the first sample.

    Instead of samples a source may yield whole tables: Polars frames, Arrow tables or anything else with the Arrow C
    interface. Columns of bytes and lists are payload fields then, and all others metadata, unless an attribute
    `payload_columns` names the payload fields.
    """

    if TYPE_CHECKING:
        # Only readable, so that frozen dataclasses and named tuples are sources for type checkers too.
        @property
        def name(self) -> str:
            """Directory name of the cache."""
            ...

    else:
        name: str
        """Directory name of the cache."""

    def __iter__(self) -> Iterator[CacheInput | ArrowStream | ArrowArray]:
        """Yield the samples in order; called in the thread that writes, never concurrently."""
        ...


class CacheWriteSuccess(NamedTuple):
    """A source whose cache is published and durable."""

    source_name: str
    """Name of the source."""

    path: Path
    """The cache directory."""


class CacheWriteError(NamedTuple):
    """A source whose cache was not written; nothing of it is left on disk."""

    source_name: str
    """Name of the source, or `source[i]` if it has none."""

    message: str
    """What went wrong, with the row where it did; for an exception of the source, its type and text."""


CacheWriteResult: TypeAlias = CacheWriteSuccess | CacheWriteError
"""Outcome of one source."""


class CacheSourcesDatasetSuccess(NamedTuple):
    """A dataset over all caches that exist or could be written."""

    dataset: CachedDataset
    """The dataset; its caches are the successes of `results`, in order."""

    results: list[CacheWriteResult]
    """Outcome of each source, in order."""


class CacheSourcesDatasetError(NamedTuple):
    """No source gave a cache, so there is no dataset."""

    results: list[CacheWriteResult]
    """Outcome of each source, in order."""

    message: str
    """All failures in one text."""

    @property
    def dataset(self) -> NoReturn:
        """There is none, and the error says why: for those who did not look which of the two results they have.

        Raises:
            AttributeError: Always, with the message.
        """
        raise AttributeError(f"there is no dataset: {self.message}")


CacheSourcesDatasetResult: TypeAlias = CacheSourcesDatasetSuccess | CacheSourcesDatasetError
"""Outcome of `CachedDataset.from_cache_sources`."""
