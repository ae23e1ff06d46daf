"""`CachedDataset`: caches, active rows and weights, opened in milliseconds and iterated in a computed order."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from dataset_rt import _dataset_rt as native
from dataset_rt.config import WriterConfig
from dataset_rt.records import (
    CachedSample,
    CacheSourcesDatasetError,
    CacheSourcesDatasetResult,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteSuccess,
)
from dataset_rt.writer import write_or_reuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dataset_rt.adapters.torch import SizedTorchIterableDataset
    from dataset_rt.config import ReaderConfig
    from dataset_rt.records import CacheSource

__all__ = ["CachedDataset"]

_DEFAULT_WRITER_CONFIG = WriterConfig()


class CachedDataset:
    """Samples of one or more caches, in an order that is a pure function of contents, weights, seed and epoch.

    Opening reads the manifests and checks that every file is there with its length; payloads and metadata are read when
    they are needed. The dataset may be shared by threads.

    Args:
        paths: Cache directories; the position of a cache here is its `cache_id`.
        reader_config: Seed and reading options.

    Raises:
        CacheNotFoundError: There is no cache at a path.
        InvalidCacheError: A cache is damaged, newer than this build, given twice, or its metadata columns differ from
            those of the first; subclasses tell which.
        ConfigError: `paths` is empty.

    Example:
        >>> dataset = CachedDataset([cache], reader_config=ReaderConfig(seed=42))
        >>> sample = next(iter(dataset))
        >>> type(sample.data)
        <class 'bytes'>
    """

    def __init__(self, paths: Sequence[str | Path], *, reader_config: ReaderConfig) -> None:
        if isinstance(paths, str | Path):
            raise TypeError(f"paths must be a list of cache directories, found one path: {str(paths)!r}")
        self.cache_paths = [Path(path) for path in paths]
        self.reader_config = reader_config
        self._native = native.CachedDataset(self.cache_paths, reader_config.model_dump_json())

    @classmethod
    def from_cache_sources(
        cls,
        sources: CacheSource | Sequence[CacheSource],
        path: str | Path,
        *,
        reader_config: ReaderConfig,
        writer_config: WriterConfig = _DEFAULT_WRITER_CONFIG,
    ) -> CacheSourcesDatasetResult:
        """Open the caches of `sources` below `path`, writing those that do not exist yet.

        Of several processes that ask for one cache, one writes it and the others wait and open it.

        Args:
            sources: One source or several.
            path: Base directory; each cache is `path/<source name>`.
            reader_config: Seed and reading options of the dataset.
            writer_config: Writing options; `validate_cache=True` checks reused caches in full.

        Returns:
            The dataset over all caches, with the outcome of each source; or, if no source gave a cache, the reasons.
            One source that fails does not stop the others.

        Raises:
            InvalidCacheError: An existing cache is damaged, or holds another source version; it is never overwritten.
            SourceNameError: Two sources have one name.
        """
        results = write_or_reuse(sources, path, writer_config)
        paths = [result.path for result in results if isinstance(result, CacheWriteSuccess)]
        if not paths:
            failures = [
                f"{result.source_name}: {result.message}"
                for result in results
                if isinstance(result, CacheWriteError)
            ]
            reason = "; ".join(failures) or "no cache sources were given"
            return CacheSourcesDatasetError(results, f"no caches were written: {reason}")
        return CacheSourcesDatasetSuccess(cls(paths, reader_config=reader_config), results)

    def __len__(self) -> int:
        """Return the number of samples over all caches."""
        return len(self._native)

    def __iter__(self) -> Iterator[CachedSample]:
        """Start the next epoch.

        With `shuffle=True` the epoch has `len(self)` draws with replacement, weighted by the weights of this moment: a
        sample may come more than once and another not at all. With `shuffle=False` every sample comes once, in table
        order. The first iterator is epoch 0, each new one the next; `set_epoch` chooses another.

        Returns:
            An iterator of `CachedSample`. Worker threads read ahead up to `prefetch_size` samples; they stop when the
            iterator is closed, exhausted or dropped.

        Raises:
            CorruptRecordError: While iterating, at the place of a damaged sample.
        """
        return iter(self._native)

    def __getitem__(self, index: int) -> CachedSample:
        """Return the sample of row `index` of the samples metadata table; negative rows count from the end.

        Raises:
            IndexError: There is no such row (`RowIndexError`).
            CorruptRecordError: The sample is damaged.
        """
        return self._native.sample(index)

    def __repr__(self) -> str:
        """Name the size, the caches and the configuration."""
        return f"CachedDataset({len(self)} samples in {len(self.cache_paths)} caches, {self.reader_config!r})"

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iterator; the one after it is `epoch + 1`.

        Args:
            epoch: 0 to 2**32 - 2.
        """
        self._native.set_epoch(epoch)

    def samples_metadata(self) -> pl.DataFrame:
        """Return the samples metadata table: one row per sample.

        Returns:
            Columns `cache_id` (u64), `sample_id` (u64), the metadata columns in name order, `weight` (f64); rows in
            cache and sample order. Metadata columns share memory with the mapped files where they can. Changing the
            frame changes nothing until it is passed to `set_samples_metadata`.

        Raises:
            CorruptCacheError: A metadata file differs from its manifest.
        """
        return pl.DataFrame(self._native.samples_metadata())

    def set_samples_metadata(self, frame: pl.DataFrame) -> None:
        """Replace all weights by the `weight` column of `frame`.

        Only `cache_id`, `sample_id` and `weight` are read. New iterators use the new weights; running ones keep theirs.
        On an error nothing changes.

        Args:
            frame: Every sample exactly once, in any order, with a positive finite weight.

        Raises:
            WeightsError: A row is missing, repeated or unknown, or a weight is null, zero, negative, NaN or infinite;
                the message names the rows.

        Example:
            >>> table = dataset.samples_metadata()
            >>> dataset.set_samples_metadata(table.with_columns(weight=1.0 / pl.len().over("label")))
        """
        columns = [name for name in ("cache_id", "sample_id", "weight") if name in frame.columns]
        self._native.set_samples_metadata(frame.select(columns))

    def weight_table(self) -> pl.DataFrame:
        """Return `samples_metadata()`; the old name, deprecated."""
        warnings.warn(
            "CachedDataset.weight_table() is deprecated; use samples_metadata()", DeprecationWarning, stacklevel=2
        )
        return self.samples_metadata()

    def set_weight_table(self, weights: pl.DataFrame) -> None:
        """Call `set_samples_metadata(weights)`; the old name, deprecated."""
        warnings.warn(
            "CachedDataset.set_weight_table() is deprecated; use set_samples_metadata()",
            DeprecationWarning,
            stacklevel=2,
        )
        self.set_samples_metadata(weights)

    def to_torch_iterable_dataset(self) -> SizedTorchIterableDataset:
        """Return a sized `torch.utils.data.IterableDataset` that yields the same samples in the same order.

        Raises:
            ImportError: PyTorch is not installed.
        """
        from dataset_rt.adapters.torch import iterable_dataset  # noqa: PLC0415 (PyTorch is optional and slow to import)

        return iterable_dataset(self)
