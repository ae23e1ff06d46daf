"""DatasetRT: a training-data cache with exact order, verified bytes and fast restarts."""

from dataset_rt import errors
from dataset_rt.api import (
    CachedBatch,
    CachedDataset,
    CachedSample,
    CacheInput,
    CacheSource,
    CacheSourcesDatasetError,
    CacheSourcesDatasetResult,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteResult,
    CacheWriteSuccess,
    ReaderConfig,
    ShardCompression,
    SizedTorchIterableDataset,
    WriterConfig,
    WriterProfilerConfig,
    write_cache,
)

__all__ = [
    "CacheInput",
    "CacheSource",
    "CacheSourcesDatasetError",
    "CacheSourcesDatasetResult",
    "CacheSourcesDatasetSuccess",
    "CacheWriteError",
    "CacheWriteResult",
    "CacheWriteSuccess",
    "CachedBatch",
    "CachedDataset",
    "CachedSample",
    "ReaderConfig",
    "ShardCompression",
    "SizedTorchIterableDataset",
    "WriterConfig",
    "WriterProfilerConfig",
    "errors",
    "write_cache",
]
