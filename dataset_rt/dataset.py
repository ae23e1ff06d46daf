"""`CachedDataset`: caches, active rows and weights, opened in milliseconds and iterated in a computed order."""

from __future__ import annotations

import logging
import warnings
from copy import copy
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from dataset_rt.batch import CachedBatch, generator
from dataset_rt.columns import Columns, PayloadField
from dataset_rt.config import WriterConfig
from dataset_rt.destinations import as_bytes, destinations
from dataset_rt.opened import Opened, checked_generations, checked_paths, identity_and_weight
from dataset_rt.profile import ReaderProfile
from dataset_rt.records import (
    CachedSample,
    CacheSourcesDatasetError,
    CacheSourcesDatasetResult,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteSuccess,
)
from dataset_rt.rows import row_numbers
from dataset_rt.writer import write_or_reuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dataset_rt import _dataset_rt as native
    from dataset_rt.adapters.torch import SizedTorchIterableDataset
    from dataset_rt.adapters.torch.epochs import EpochBoard
    from dataset_rt.config import ReaderConfig
    from dataset_rt.records import CacheSource

__all__ = ["CachedDataset"]

_LOG = logging.getLogger("dataset_rt")
_DEFAULT_WRITER_CONFIG = WriterConfig()


class CachedDataset:
    """Samples of one or more caches, in an order that is a pure function of contents, weights, seed and epoch.

    Opening reads the manifests and checks that every file is there with its length; payloads and metadata are read when
    they are needed. The dataset may be shared by threads.

    Args:
        paths: Cache directories; the position of a cache here is its `cache_id`.
        reader_config: Seed and reading options.
        generations: Which generation of each cache to read; `None`, for one or for all, is the newest. A dataset keeps
            its generation whatever is appended, deleted or compacted meanwhile.

    Raises:
        CacheNotFoundError: There is no cache at a path.
        InvalidCacheError: A cache is damaged, newer than this build, given twice, or its metadata columns differ from
            those of the first; subclasses tell which.
        GenerationNotFoundError: A cache does not have the generation, or no more.
        ConfigError: `paths` is empty.

    Example:
        >>> dataset = CachedDataset([cache], reader_config=ReaderConfig(seed=42))
        >>> sample = next(iter(dataset))
        >>> type(sample.data)
        <class 'bytes'>
    """

    _moves = 0
    """How often a caller chose or started an epoch; worker processes tell by it whether their epoch is still meant."""

    _board: EpochBoard | None = None
    """What worker processes of the PyTorch adapter deliver, once there may be some."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        reader_config: ReaderConfig,
        generations: Sequence[int | None] | None = None,
    ) -> None:
        places = checked_paths(paths)
        self._hold(Opened(places, reader_config, checked_generations(generations, len(places))))
        if reader_config.fall_back:
            self._opened.warn_of_older_generations(stacklevel=2)

    def _hold(self, opened: Opened) -> None:
        self._opened = opened
        self.reader_config = opened.config

    @property
    def generations(self) -> list[int]:
        """The generation that is read of each cache; 0 of one that was never changed."""
        return [number for number, _ in self._native.generations()]

    @property
    def cache_paths(self) -> list[Path]:
        """The cache directories in the order given: the position of one is its `cache_id`."""
        return [Path(path) for path in self._opened.paths]

    @property
    def _native(self) -> native.CachedDataset:
        return self._opened.dataset

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: what `Opened` says, and nothing that is built when asked for."""
        names = ("_opened", "reader_config", "_moves", "_board")
        return {name: getattr(self, name) for name in names}

    def __copy__(self) -> CachedDataset:
        """Return a dataset of its own, with the rows, weights and position of this moment."""
        twin = CachedDataset.__new__(CachedDataset)
        twin.__dict__.update(self.__getstate__())
        twin._opened = copy(self._opened)  # noqa: SLF001 (a copy is one of us)
        return twin

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
            One source that fails does not stop the others. The log (`dataset_rt`) warns of it, as the caches of the
            others are numbered without it.

        Raises:
            InvalidCacheError: An existing cache is damaged, or holds another source version; it is never overwritten.
            SourceNameError: Two sources have one name.
        """
        results = write_or_reuse(sources, path, writer_config)
        paths = [result.path for result in results if isinstance(result, CacheWriteSuccess)]
        failures = [
            f"{result.source_name}: {result.message}" for result in results if isinstance(result, CacheWriteError)
        ]
        if not paths:
            reason = "; ".join(failures) or "no cache sources were given"
            return CacheSourcesDatasetError(results, f"no caches were written: {reason}")
        if failures:
            _LOG.warning(
                "%d of %d sources gave no cache and are not in the dataset: %s",
                len(failures),
                len(results),
                "; ".join(failures),
            )
        return CacheSourcesDatasetSuccess(cls(paths, reader_config=reader_config), results)

    def __len__(self) -> int:
        """Return the number of samples over all caches."""
        return len(self._native)

    def __iter__(self) -> native.SampleIterator:
        """Start the next epoch.

        With `shuffle=True` the epoch has `len(self)` draws with replacement, weighted by the weights of this moment: a
        sample may come more than once and another not at all. With `shuffle=False` every sample comes once, in table
        order. The first iterator is epoch 0, each new one the next; `set_epoch` chooses another. With several ranks,
        rank `r` gets positions `r`, `r + world_size`, and so on.

        Returns:
            An iterator of `CachedSample`, with `state_dict`, `load_state_dict` and `close`. Worker threads read ahead
            up to `prefetch_size` samples; they stop when the iterator is closed, exhausted or dropped.

        Raises:
            CorruptRecordError: While iterating, at the place of a damaged sample.
        """
        self._start_epoch()
        return iter(self._native)

    def _start_epoch(self) -> None:
        """Move past the epochs that worker processes have delivered since the last choice of an epoch."""
        last = self._board.last_epoch(self._moves) if self._board is not None else None
        if last is not None:
            self._native.set_epoch(last + 1)
        self._moves += 1

    def __getitem__(self, index: int) -> CachedSample:
        """Return the sample of row `index` of the samples metadata table; negative rows count from the end.

        Raises:
            IndexError: There is no such row (`RowIndexError`).
            CorruptRecordError: The sample is damaged.
        """
        return self._native.sample(index)

    def __repr__(self) -> str:
        """Name the size, the caches and the configuration."""
        return f"CachedDataset({len(self)} samples in {len(self._opened.paths)} caches, {self.reader_config!r})"

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iterator; the one after it is `epoch + 1`.

        Args:
            epoch: 0 to 2**32 - 2.
        """
        self._moves += 1
        self._native.set_epoch(epoch)

    def batches(
        self,
        batch_size: int,
        *,
        remainder: Literal["keep", "drop", "pad"] = "keep",
        epochs: int | None = 1,
        columns: Sequence[str] | None = None,
    ) -> native.BatchIterator:
        """Start the next epoch in batches.

        Positions are cut into global batches of `batch_size * world_size`, and each rank takes its contiguous slice, so
        every rank makes the same number of steps, and joining the ranks' batches step by step gives the order itself.

        Args:
            batch_size: Rows of a full batch on this rank.
            remainder: What happens to positions that do not fill a global batch: `"keep"` makes the last one short,
                split evenly in rank order, so that a rank may get no rows; `"drop"` leaves them out; `"pad"` fills up
                with the first positions of the epoch and marks them in `valid`.
            epochs: Epochs to deliver; `None` never ends.
            columns: Payload fields (`data` for plain bytes) and metadata columns that the batches have; others are not
                read. `None` is all of them.

        Returns:
            An iterator of `CachedBatch`, with `state_dict`, `load_state_dict` and `close`.

        Raises:
            ConfigError: `batch_size` or `epochs` is 0, `remainder` is not one of the three, or there is no column of a
                name.
        """
        selected = self._columns if columns is None else self._columns.select(columns)
        self._start_epoch()
        world_size, length = self.reader_config.world_size, self._native.epoch_length()
        if remainder == "drop" and 0 < length < batch_size * world_size:
            warnings.warn(
                f"no batch of {batch_size} rows on each of {world_size} ranks fits into {length} positions, "
                f"and remainder={remainder!r} leaves the rest out",
                stacklevel=2,
            )
        build = partial(CachedBatch, columns=selected)
        return self._native.batches(build, batch_size, remainder, epochs, selected.native)

    def _batches_of_worker(self, batch_size: int, remainder: str, skip: int, step: int) -> native.BatchIterator:
        """Start the batches of this rank, all columns, after the first `skip`, and of these every `step`-th."""
        build = partial(CachedBatch, columns=self._columns)
        return self._native.batches(build, batch_size, remainder, 1, None, skip, step, watched=False)

    @cached_property
    def _columns(self) -> Columns:
        """All columns of a batch."""
        fields = self._native.payload_fields()
        typed = None if fields is None else tuple(PayloadField(name, dtype, tuple(s)) for name, dtype, s in fields)
        return Columns(typed, tuple(self._native.metadata_columns()))

    @property
    def payload_fields(self) -> tuple[PayloadField, ...] | None:
        """The fields of a typed payload in name order; `None` if payloads are plain bytes."""
        return self._columns.fields

    def gather(self, rows: Any, out: Any = None, *, columns: Sequence[str] | None = None) -> CachedBatch:
        """Read the samples of some rows together, in the order asked for.

        The interpreter is released while Rust reads, on up to `num_workers` threads. Every row is checked before
        anything is read, and every length before anything is written.

        Args:
            rows: Row numbers of `samples_metadata()`: an int, a slice, a boolean mask over all rows, integers in a
                sequence or array (negative ones count from the end, repeated ones are read again), or a frame with
                columns `cache_id` and `sample_id`.
            out: Where the values go instead of new memory: a mapping from each field of fixed shape to an array of
                shape `(number of rows, *shape)`, and from each other field to a flat array that is long enough. A
                single array will do where there is one field. NumPy arrays, PyTorch tensors and everything else that
                shares writable memory of the CPU by the buffer protocol or DLPack, in C order. Nobody may use it
                during the call; after an error it holds nothing to rely on.
            columns: Payload fields (`data` for plain bytes) and metadata columns that the batch has; others are not
                read. `None` is all of them.

        Returns:
            The batch; its values are `out`, if that is given.

        Raises:
            IndexError: There is no such row (`RowIndexError`).
            WeightsError: A frame names a sample that is not one of this dataset's.
            ConfigError: There is no column of a name, or `out` does not fit: which field, and the shape, type or
                number of bytes that belongs there.
            CorruptRecordError: A sample is damaged; it names file, sample and byte.
            OutOfMemoryError: The values take more memory than there is left.

        Example:
            >>> batch = dataset.gather([0, -1, 0])
            >>> batch.sample_id.tolist() == [0, len(dataset) - 1, 0]
            True
        """
        selected = self._columns if columns is None else self._columns.select(columns)
        ready = self._opened.ready
        native = self._native if ready is None else ready
        numbers = row_numbers(rows, native)
        if out is None:
            return CachedBatch(native.gather(numbers, selected.native), selected)
        arrays = destinations(out, selected, len(numbers))
        parts = native.gather(numbers, selected.native, [as_bytes(array) for array in arrays])
        return CachedBatch(parts, selected, arrays)

    def profile(self, *, reset: bool = False) -> ReaderProfile:
        """Return where the time of this dataset's iterators and of `gather` went in this process.

        Counting is always on. A view counts for itself, and so does every other process: a copy that was pickled or
        forked begins at zero. `dataset[i]` is not counted.

        Args:
            reset: Whether the counters begin again after this call.

        Returns:
            The numbers since the dataset was opened or last reset; `print` shows them as a table.

        Example:
            >>> _ = dataset.gather([0, 1, 2])
            >>> dataset.profile(reset=True).samples, dataset.profile().samples
            (3, 0)
        """
        return ReaderProfile(**self._native.profile(reset))

    def corrupt_samples(self) -> pl.DataFrame:
        """Return the damaged samples that were left out or replaced in this process.

        What becomes of them, `ReaderConfig(on_corrupt=)` says. Views share the list with their dataset. Other
        processes, such as workers of a `DataLoader`, have lists of their own. Samples of `dataset[i]` and `gather` are
        not in it: these raise.

        Returns:
            Columns `cache_id` (u64), `sample_id` (u64), `path` of the damaged file and `reason` (text): one row for
            each sample, by cache and sample; at most 100,000.

        Example:
            >>> dataset.corrupt_samples().columns
            ['cache_id', 'sample_id', 'path', 'reason']
        """
        return pl.DataFrame(self._native.corrupt_samples())

    def filter(self, predicate: pl.Expr) -> CachedDataset:
        """Return a view of the rows for which a Polars expression over `samples_metadata()` holds.

        The view shares the open caches; its rows, weights, epochs and state are its own.

        Args:
            predicate: A boolean expression over the columns of `samples_metadata()`.

        Example:
            >>> ones = dataset.filter(pl.col("label") == 1)
            >>> set(ones.samples_metadata()["label"])
            {1}
        """
        return self.select(self.samples_metadata().filter(predicate))

    def select(self, frame: pl.DataFrame) -> CachedDataset:
        """Return a view of the rows that `frame` names, in its order.

        Args:
            frame: Columns `cache_id` and `sample_id`: any subset of this dataset's rows, in any order, with any
                repetition; optional column `weight`, otherwise rows keep their weights. Other columns are not read.

        Returns:
            A dataset over the same open caches with rows, weights, epochs and state of its own.

        Raises:
            WeightsError: A row is not one of this dataset's, or a weight is not positive and finite.
        """
        view = CachedDataset.__new__(CachedDataset)
        view._hold(self._opened.view(frame))  # noqa: SLF001 (a view is one of us)
        return view

    def order(self, epoch: int = 0, start: int = 0, stop: int | None = None) -> pl.DataFrame:
        """Return which samples an epoch delivers, without reading payloads.

        Args:
            epoch: Epoch.
            start: First position, over all ranks.
            stop: Position after the last; `None` is the end of the epoch.

        Returns:
            Columns `position`, `cache_id`, `sample_id` (u64), in delivery order.

        Raises:
            IndexError: The epoch has no such positions (`RowIndexError`).
        """
        caches, samples = self._native.order(epoch, start, stop)
        return pl.DataFrame(
            {
                "position": np.arange(start, start + len(samples), dtype=np.uint64),
                "cache_id": caches,
                "sample_id": samples,
            }
        )

    def rows(self, epoch: int = 0, start: int = 0, stop: int | None = None) -> NDArray[np.uint64]:
        """Return `order()` as row numbers of `samples_metadata()`, at the speed of the sampler.

        Raises:
            IndexError: The epoch has no such positions (`RowIndexError`).
        """
        ready = self._opened.ready
        return (self._native if ready is None else ready).rows(epoch, start, stop)

    def generator(self, epoch: int, position: int) -> np.random.Generator:
        """Return a random generator that belongs to one position of an epoch.

        It is a function of seed, epoch and position alone: the same for any number of ranks, workers and threads, and
        independent of every other position. `CachedBatch.generator` is the same for a row of a batch.

        Args:
            epoch: Epoch.
            position: Position over all ranks.
        """
        return generator(self.reader_config.seed, epoch, position)

    def state_dict(self) -> dict[str, Any]:
        """Return where to resume: after what the last iterator handed out, or where the next one starts.

        Returns:
            A small dictionary of strings and numbers, fit for JSON and the same on all ranks after equally many steps.
            It names the contents, rows and weights it belongs to, and is valid for any number of ranks and workers and
            any batch size.
        """
        return self._native.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, ignore: Sequence[str] = ()) -> None:
        """Make the next iterator start where `state` was taken.

        Args:
            state: What `state_dict` of a dataset, iterator or batch returned.
            ignore: Fields that may differ, such as `"weights"` after an edit that is meant to count from here on.

        Raises:
            StateMismatchError: The state belongs to other contents, rows, weights, seed or recipe; the error lists each
                field that differs with both values, and nothing changes.
        """
        self._native.load_state_dict(dict(state), list(ignore))
        self._moves += 1

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
        self._native.set_samples_metadata(identity_and_weight(frame))

    def weight_table(self) -> pl.DataFrame:
        """Return `samples_metadata()`; the old name, deprecated."""
        warnings.warn(
            "CachedDataset.weight_table() is deprecated; use samples_metadata()",
            DeprecationWarning,
            stacklevel=2,
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
