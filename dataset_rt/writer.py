"""Writing caches: sources in, published directories out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dataset_rt import _dataset_rt as native
from dataset_rt.config import WriterConfig
from dataset_rt.records import CacheWriteError, CacheWriteResult, CacheWriteSuccess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataset_rt.records import CacheSource

__all__ = ["write_cache", "write_or_reuse"]

_DEFAULT_WRITER_CONFIG = WriterConfig()


def write_cache(
    sources: CacheSource | Sequence[CacheSource],
    path: str | Path,
    *,
    writer_config: WriterConfig = _DEFAULT_WRITER_CONFIG,
) -> list[CacheWriteResult]:
    """Write one cache per source below `path`.

    A cache appears whole or not at all, and success is reported only once it is durable.

    Args:
        sources: One source or several; they are pulled one after the other in the calling thread.
        path: Base directory, created if missing; each cache is `path/<source name>`.
        writer_config: Writing options.

    Returns:
        The outcome of each source, in order. One that fails, or whose cache exists already, does not stop the others.

    Raises:
        SourceNameError: Two sources have one name; nothing is written.
        KeyboardInterrupt: Ctrl-C; the cache being written is discarded, earlier ones stay.
    """
    return _write(sources, path, writer_config, reuse_existing=False)


def write_or_reuse(
    sources: CacheSource | Sequence[CacheSource], path: str | Path, writer_config: WriterConfig
) -> list[CacheWriteResult]:
    """Write the caches that do not exist yet below `path`; existing ones count as successes.

    Of an existing cache the manifest is checked, or everything if `writer_config.validate_cache` says so.
    """
    return _write(sources, path, writer_config, reuse_existing=True)


def _write(
    sources: CacheSource | Sequence[CacheSource],
    path: str | Path,
    writer_config: WriterConfig,
    *,
    reuse_existing: bool,
) -> list[CacheWriteResult]:
    # A list or named tuple with a name is a source itself.
    is_several = isinstance(sources, list | tuple) and not hasattr(sources, "name")
    listed = list(sources) if is_several else [sources]
    outcomes = native.write_cache(listed, Path(path), writer_config.model_dump_json(), reuse_existing)
    return [
        CacheWriteSuccess(name, Path(detail)) if is_success else CacheWriteError(name, detail)
        for is_success, name, detail in outcomes
    ]
