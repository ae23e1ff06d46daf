"""What the manifests of caches say, and tables of their index, without opening a dataset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dataset_rt import _dataset_rt as native

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["caches_at", "record_checksums", "record_lengths", "summaries", "summary"]


def caches_at(paths: Sequence[str]) -> list[str]:
    """Return the caches at some paths: each is a cache, or a folder of caches."""
    return [str(found) for path in paths for found in native.find_caches(path)]


def summaries(paths: Sequence[str]) -> list[dict[str, Any] | Exception]:
    """Return what the manifest of each cache says, or why it cannot be read; no other file is."""
    found = native.cache_summaries(list(paths))
    return [json.loads(summary) if isinstance(summary, str) else summary for summary in found]


def summary(path: str) -> dict[str, Any]:
    """Return what the manifest of a cache says.

    Raises:
        InvalidCacheError: There is none, or it is damaged.
    """
    [found] = summaries([path])
    if isinstance(found, Exception):
        raise found
    return found


def record_lengths(path: str) -> NDArray[np.uint64]:
    """Return the stored bytes of each record, metadata included, by sample id; those of deleted ones mean nothing."""
    return native.record_lengths(path)


def record_checksums(path: str) -> NDArray[np.uint64] | None:
    """Return the checksum of each record by sample id; `None` if the cache has none."""
    return native.record_checksums(path)
