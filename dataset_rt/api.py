"""The public surface on one page."""

from dataset_rt.adapters.torch import SizedTorchIterableDataset
from dataset_rt.batch import CachedBatch
from dataset_rt.cache import (
    append_cache,
    cache_stats,
    compact_cache,
    delete_samples,
    lease_generation,
    repair_cache,
    vacuum_cache,
    verify_cache,
)
from dataset_rt.config import ReaderConfig, ShardCompression, WriterConfig, WriterProfilerConfig
from dataset_rt.dataset import CachedDataset
from dataset_rt.maintenance import CacheChange, CacheStats, Finding, Lease, RepairReport, VacuumReport, VerifyReport
from dataset_rt.profile import ReaderProfile
from dataset_rt.records import (
    CachedSample,
    CacheInput,
    CacheSource,
    CacheSourcesDatasetError,
    CacheSourcesDatasetResult,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteResult,
    CacheWriteSuccess,
)
from dataset_rt.writer import write_arrays, write_cache

__all__ = [
    "CacheChange",
    "CacheInput",
    "CacheSource",
    "CacheSourcesDatasetError",
    "CacheSourcesDatasetResult",
    "CacheSourcesDatasetSuccess",
    "CacheStats",
    "CacheWriteError",
    "CacheWriteResult",
    "CacheWriteSuccess",
    "CachedBatch",
    "CachedDataset",
    "CachedSample",
    "Finding",
    "Lease",
    "ReaderConfig",
    "ReaderProfile",
    "RepairReport",
    "ShardCompression",
    "SizedTorchIterableDataset",
    "VacuumReport",
    "VerifyReport",
    "WriterConfig",
    "WriterProfilerConfig",
    "append_cache",
    "cache_stats",
    "compact_cache",
    "delete_samples",
    "lease_generation",
    "repair_cache",
    "vacuum_cache",
    "verify_cache",
    "write_arrays",
    "write_cache",
]
