"""A map-style PyTorch dataset of rows, and the batch sampler that brings order, weights, epochs and ranks to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from torch.utils.data import Dataset, Sampler

from dataset_rt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dataset_rt.adapters.torch import Remainder
    from dataset_rt.batch import CachedBatch
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.records import CachedSample


class TorchRows(Dataset["CachedSample"]):
    """Rows of `samples_metadata()` by number; made by `map_dataset`. A pickled copy opens its caches when used."""

    def __init__(self, dataset: CachedDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    @overload
    def __getitem__(self, index: int) -> CachedSample: ...
    @overload
    def __getitem__(self, index: list[int]) -> CachedBatch: ...
    def __getitem__(self, index: int | list[int]) -> CachedSample | CachedBatch:
        """Return a row, or the batch of a list of rows, for a `DataLoader` whose sampler gives lists."""
        return self.dataset.gather(index) if isinstance(index, list) else self.dataset[index]

    def __getitems__(self, indices: Sequence[int]) -> list[CachedSample]:
        """Return several rows, in the order of `indices`; what a `DataLoader` calls for a batch.

        One by one: taking a gathered batch apart into samples costs more than it saves.
        """
        return [self.dataset[index] for index in indices]


class OrderBatchSampler(Sampler[list[int]]):
    """Row numbers of this rank's batches; made by `batch_sampler`. Runs in the process of the `DataLoader`."""

    def __init__(self, dataset: CachedDataset, batch_size: int, *, remainder: Remainder) -> None:
        if batch_size < 1:
            raise ConfigError(
                f"batch_size: expected at least 1, found {batch_size}",
                option="batch_size",
                expected="at least 1",
                found=batch_size,
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.remainder = remainder

    @property
    def _rows(self) -> int:
        """Rows of a step on all ranks."""
        return self.batch_size * self.dataset.reader_config.world_size

    def _steps(self, positions: int) -> int:
        return positions // self._rows if self.remainder == "drop" else -(-positions // self._rows)

    def __iter__(self) -> _Batches:
        return _Batches(self)

    def __len__(self) -> int:
        return self._steps(self.dataset._native.epoch_length())  # noqa: SLF001


class _Batches:
    """One pass of a batch sampler, with a memory that is anchored at its start.

    It begins with the first batch: a `DataLoader` makes iterators that it never uses.
    """

    def __init__(self, owner: OrderBatchSampler) -> None:
        self._owner = owner
        self._received = 0
        self._start: dict[str, Any] | None = None

    def _begin(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Take the rest of the epoch of `start`, and leave the next one to the next pass."""
        self._start = dict(start)
        self._owner.dataset.set_epoch(self._start["epoch"] + 1)
        return self._start

    def _begun(self) -> dict[str, Any]:
        if self._start is not None:
            return self._start
        dataset = self._owner.dataset
        dataset._start_epoch()  # noqa: SLF001
        return self._begin(dataset._native.start_state())  # noqa: SLF001

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> list[int]:
        owner, start = self._owner, self._begun()
        epoch, first = start["epoch"], start["position"]
        length = owner.dataset._native.epoch_length()  # noqa: SLF001
        if self._received >= owner._steps(length - first):  # noqa: SLF001
            raise StopIteration
        rank, world = owner.dataset.reader_config.rank, owner.dataset.reader_config.world_size
        begin = first + self._received * owner._rows  # noqa: SLF001
        left = length - begin
        before, rows = rank * owner.batch_size, owner.batch_size
        if owner.remainder == "keep" and left < owner._rows:  # noqa: SLF001
            share, more = divmod(left, world)
            before, rows = rank * share + min(rank, more), share + (rank < more)
        chosen: list[int] = []
        position, missing = (begin + before) % length if rows else 0, rows
        while missing:
            stop = min(position + missing, length)
            chosen += owner.dataset.rows(epoch, position, stop).tolist()
            missing -= stop - position
            position = 0
        self._received += 1
        return chosen

    def state_dict(self) -> dict[str, Any]:
        """Return where to resume after the last batch handed out."""
        return {
            "kind": "rows",
            "start": self._start or self._owner.dataset._native.start_state(),  # noqa: SLF001
            "received": self._received,
            "batch_size": self._owner.batch_size,
            "remainder": self._owner.remainder,
            "world_size": self._owner.dataset.reader_config.world_size,
            "worker": 0,
            "workers": 1,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the last batch handed out when `state` was taken, whatever batch size and ranks were then.

        Raises:
            StateMismatchError: The state belongs to other contents, rows, weights, seed or recipe.
        """
        self._owner.dataset.load_state_dict(state["start"])
        start = self._begin(state["start"])
        passed = state["received"] * state["batch_size"]
        self._received = 0
        if passed:
            world = state["world_size"]
            length = self._owner.dataset._native.epoch_length()  # noqa: SLF001
            start["position"] = min(start["position"] + passed * world, length)
