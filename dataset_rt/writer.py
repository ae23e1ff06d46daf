"""Writing caches: sources in, published directories out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_rt import _dataset_rt as native
from dataset_rt.arrays import ArraySource
from dataset_rt.config import WriterConfig
from dataset_rt.fields import RefusedError
from dataset_rt.records import CacheWriteError, CacheWriteResult, CacheWriteSuccess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from dataset_rt.dataset import CachedDataset
    from dataset_rt.records import CacheInput, CacheSource

__all__ = ["write_arrays", "write_cache", "write_or_reuse"]

_DEFAULT_WRITER_CONFIG = WriterConfig()


def write_cache(
    sources: CacheSource | CachedDataset | Sequence[CacheSource | CachedDataset],
    path: str | Path,
    *,
    writer_config: WriterConfig = _DEFAULT_WRITER_CONFIG,
    name: str | Sequence[str] | None = None,
) -> list[CacheWriteResult]:
    """Write one cache per source below `path`.

    A cache appears whole or not at all, and success is reported only once it is durable.

    A `CachedDataset` is a source too: its rows, in their order and as often as they are there, become the samples
    `0, 1, ...` of a cache of their own. So caches are merged, and subsets become caches. Records are copied as they are
    stored, each compared with its checksum first; of `writer_config`, only `max_shard_bytes` counts. Payloads are
    compressed anew only where caches have different zstd dictionaries. Weights are not part of a cache.

    Args:
        sources: One source or several; they are pulled one after the other in the calling thread.
        path: Base directory, created if missing; each cache is `path/<source name>`.
        writer_config: Writing options.
        name: The name of a dataset, which has none of its own; or a list with the name of each dataset in `sources`.

    Returns:
        The outcome of each source, in order. One that fails, or whose cache exists already, does not stop the others.

    Raises:
        SourceNameError: Two sources have one name; nothing is written.
        TypeError: `name` does not name each dataset in `sources`.
        KeyboardInterrupt: Ctrl-C; the cache being written is discarded, earlier ones stay.

    Example:
        >>> ones = dataset.filter(pl.col("label") == 1)
        >>> [result] = write_cache(ones, "caches", name="ones")
        >>> len(CachedDataset([result.path], reader_config=ReaderConfig(seed=1))) == len(ones)
        True
    """
    return _write(_with_names(_listed(sources), name), path, writer_config, reuse_existing=False)


def write_arrays(
    name: str,
    arrays: Mapping[str, Any],
    path: str | Path,
    *,
    metadata: pl.DataFrame | None = None,
    writer_config: WriterConfig = _DEFAULT_WRITER_CONFIG,
) -> CacheWriteResult:
    """Write one cache from whole arrays, in the form and with the guarantees of `write_cache`.

    No sample becomes a Python object. Arrays that lie in memory as in a cache (C order, little-endian; memory-mapped
    too) are read where they are; others are rearranged block by block. **Nothing may write to the arrays meanwhile**:
    the interpreter is released, so other threads run.

    Args:
        name: Name of the cache; its directory is `path/name`.
        arrays: One payload field per entry, with as many samples in each:

            * an array whose axis 0 counts the samples; one axis makes a field of scalars;
            * a tuple `(values, offsets)` for a field of open length: sample `n` is `values[offsets[n]:offsets[n + 1]]`;
            * a Polars or Arrow column, as in a [table](docs/python-api.md) of a source, or a list of `bytes`.

            An entry `data` of bytes, if it is the only one, is the plain payload.
        path: Base directory, created if missing.
        metadata: A frame with a row for every sample: columns of bool, int, float and text.
        writer_config: Writing options.

    Returns:
        Success, or what went wrong; nothing is left on disk then.

    Raises:
        TypeError: `arrays` is no mapping.
        KeyboardInterrupt: Ctrl-C; the cache is discarded.

    Example:
        >>> import numpy as np
        >>> images = np.zeros((100, 3, 8, 8), np.uint8)
        >>> write_arrays("zeros", {"image": images}, "caches", writer_config=WriterConfig(show_progress=False))
        CacheWriteSuccess(source_name='zeros', path=PosixPath('caches/zeros'))
    """
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays is of type {type(arrays).__name__}, expected a mapping from field name to array")
    try:
        source = ArraySource(name, arrays, metadata)
    except RefusedError as fault:
        return CacheWriteError(f"{name}", str(fault))
    [result] = _write([source], path, writer_config, reuse_existing=False)
    return result


def write_or_reuse(
    sources: CacheSource | Sequence[CacheSource], path: str | Path, writer_config: WriterConfig
) -> list[CacheWriteResult]:
    """Write the caches that do not exist yet below `path`; existing ones count as successes.

    Of an existing cache the manifest is checked, or everything if `writer_config.validate_cache` says so.
    """
    return _write(sources, path, writer_config, reuse_existing=True)


def _write(
    sources: CacheSource | Sequence[CacheSource] | Sequence[ArraySource],
    path: str | Path,
    writer_config: WriterConfig,
    *,
    reuse_existing: bool,
) -> list[CacheWriteResult]:
    outcomes = native.write_cache(_listed(sources), Path(path), as_json(writer_config), reuse_existing)
    return [
        CacheWriteSuccess(name, Path(detail)) if is_success else CacheWriteError(name, detail)
        for is_success, name, detail in outcomes
    ]


def as_json(writer_config: WriterConfig) -> str:
    """Return a configuration as the native half takes it."""
    # Pydantic's own JSON would turn a Ctrl-C while it writes a path into an error of its own.
    return json.dumps(writer_config.model_dump(), default=os.fspath)


def _listed(sources: Any) -> list[Any]:
    # A list or named tuple with a name is a source itself.
    is_several = isinstance(sources, list | tuple) and not hasattr(sources, "name")
    return list(sources) if is_several else [sources]


def _with_names(listed: list[Any], name: str | Sequence[str] | None) -> list[Any]:
    """Put what the writer knows datasets by in their place."""
    from dataset_rt.dataset import CachedDataset  # noqa: PLC0415 (a dataset writes caches itself)

    datasets = sum(isinstance(source, CachedDataset) for source in listed)
    names = [name] if isinstance(name, str) else list(name or ())
    if len(names) != datasets:
        raise TypeError(
            f"a dataset has no name of its own: expected name= for each of the {datasets} in sources, found {names}"
            if datasets
            else f"name is for datasets, of which there are none in sources, found {name!r}"
        )
    left = iter(names)
    return [
        _View(next(left), source._native) if isinstance(source, CachedDataset) else source  # noqa: SLF001
        for source in listed
    ]


@dataclass(frozen=True)
class _View:
    """A dataset as a source; its samples never pass through Python."""

    name: str
    _view: native.CachedDataset

    def __iter__(self) -> Iterator[CacheInput]:
        """Give no samples: they are copied."""
        return iter(())
