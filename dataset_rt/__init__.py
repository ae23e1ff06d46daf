"""DatasetRT: a training-data cache with exact order, verified bytes and fast restarts."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataset_rt import errors
    from dataset_rt.api import (
        CacheChange,
        CachedBatch,
        CachedDataset,
        CachedSample,
        CacheInput,
        CacheSource,
        CacheSourcesDatasetError,
        CacheSourcesDatasetResult,
        CacheSourcesDatasetSuccess,
        CacheStats,
        CacheWriteError,
        CacheWriteResult,
        CacheWriteSuccess,
        Finding,
        Lease,
        ReaderConfig,
        ReaderProfile,
        RepairReport,
        ShardCompression,
        SizedTorchIterableDataset,
        VacuumReport,
        VerifyReport,
        WriterConfig,
        WriterProfilerConfig,
        append_cache,
        cache_stats,
        compact_cache,
        delete_samples,
        lease_generation,
        repair_cache,
        vacuum_cache,
        verify_cache,
        write_arrays,
        write_cache,
    )

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
    "errors",
    "lease_generation",
    "repair_cache",
    "vacuum_cache",
    "verify_cache",
    "write_arrays",
    "write_cache",
]


if not TYPE_CHECKING:  # which would take any name for one of the package then

    def __getattr__(name: str) -> object:
        """Load the package when something of it is first used: the command line answers many questions without it."""
        if name == "adapters":
            # Where it is not imported itself, those that the public surface needs have always been there.
            import_module("dataset_rt.api")
        if name in ("adapters", "errors"):
            return import_module(f"dataset_rt.{name}")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module("dataset_rt.api"), name)
        return found


def __dir__() -> list[str]:
    """Name what is there, loaded or not."""
    return sorted({*globals(), *__all__})
