"""Iterable PyTorch datasets of samples and of batches, whose worker processes share one global order."""

from __future__ import annotations

import pickle
import sys
import warnings
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from torch.utils.data import IterableDataset, get_worker_info

from dataset_rt.adapters.torch.epochs import EpochBoard, Pass
from dataset_rt.errors import ConfigError, StateMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from dataset_rt import _dataset_rt as native
    from dataset_rt.adapters.torch import Remainder
    from dataset_rt.batch import CachedBatch
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.records import CachedSample

_Item = TypeVar("_Item")

_FETCH_DEPTH = 16
"""Frames between a `DataLoader` that fetches and this module; more than any transform in between has needed."""

_LOADERS = ("torch", "torchdata")
"""Packages whose code fetches for a `DataLoader`."""


class _Epochs(IterableDataset, Generic[_Item]):
    """What both datasets do: every pass is the next epoch, in this process or in worker processes."""

    def __init__(self, dataset: CachedDataset, transform: Callable[..., Any] | None, remainder: Remainder) -> None:
        super().__init__()
        self.dataset = dataset
        self.transform = transform
        self.remainder: Remainder = remainder
        if dataset._board is None:  # noqa: SLF001 (adapters are friends of the dataset, here and below)
            dataset._board = EpochBoard()  # noqa: SLF001
        self._joined: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        try:
            pickle.dumps(self.transform)
        except Exception as error:
            raise TypeError(
                f"transform {self.transform!r} cannot be sent to a worker process: {error}; "
                "define it at the top level of a module"
            ) from error
        return self.__dict__

    def _begin(self) -> _Place:
        """Choose where a new iterator starts."""
        info = get_worker_info()
        if info is None:
            self.dataset._start_epoch()  # noqa: SLF001
            return _Place(_native(self.dataset).start_state(), 0, 1)
        # In a worker the dataset is a copy: what the original had chosen is what it says before its first pass here.
        moves, reuse = self._joined or (self.dataset._moves, -1)  # noqa: SLF001
        self._joined = (moves, reuse + 1)
        start = _native(self.dataset).next_position()
        epoch, position = self._board().join(Pass(info.seed - info.id, reuse + 1), info.id, moves, start)
        state = {**_native(self.dataset).start_state(), "epoch": epoch, "position": position}
        return _Place(state, info.id, info.num_workers)

    def _board(self) -> EpochBoard:
        board = self.dataset._board  # noqa: SLF001
        if board is None:
            raise RuntimeError("a worker process has a dataset that was not made by its DataLoader's process")
        return board

    def _resumed(self, epoch: int) -> None:
        info = get_worker_info()
        if info is not None and self._joined is not None:
            moves, reuse = self._joined
            self._board().correct(Pass(info.seed - info.id, reuse), moves, epoch)


class _Place:
    """Where a pass started, in whole, and which worker of how many this is."""

    __slots__ = ("start", "worker", "workers")

    def __init__(self, start: dict[str, Any], worker: int, workers: int) -> None:
        self.start = start
        self.worker = worker
        self.workers = workers


class _Stream(Generic[_Item]):
    """An iterator with a memory. Its state is anchored at the start of the pass, so that it also tells an end.

    Opening is put off until the first item, because only then a worker knows the batches that it works on.
    """

    kind: str

    def __init__(self, owner: _Epochs[_Item], place: _Place) -> None:
        self._owner = owner
        self._place = place
        self._received = 0
        self._source: native.SampleIterator | native.BatchIterator | None = None

    def __iter__(self) -> _Stream[_Item]:
        return self

    def __next__(self) -> Any:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return where to resume after the last item received."""
        return {
            "kind": self.kind,
            "start": self._place.start,
            "received": self._count(),
            "batch_size": self._block(),
            "remainder": self._owner.remainder,
            "world_size": self._owner.dataset.reader_config.world_size,
            "worker": self._place.worker,
            "workers": self._place.workers,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the last item that was received when `state` was taken.

        Raises:
            StateMismatchError: The state is of another kind, of another worker, or of another dataset.
        """
        ours = self.state_dict()
        compared = ["kind", "world_size", "worker", "workers"]
        if self._place.workers > 1 and None not in (ours["batch_size"], state.get("batch_size")):
            compared.append("batch_size")
        fields = [(name, state.get(name), ours[name]) for name in compared if state.get(name) != ours[name]]
        if fields:
            listed = "; ".join(f"{name} was {saved!r} and is {now!r}" for name, saved, now in fields)
            raise StateMismatchError(f"saved state: it belongs to another loader: {listed}", fields=fields)
        self.close()
        self._owner.dataset.load_state_dict(state["start"])
        self._place.start = dict(state["start"])
        self._received = state["received"]
        self._take_block(state["batch_size"])
        self._owner._resumed(self._place.start["epoch"])  # noqa: SLF001
        if self._place.workers == 1:
            self._source = self._open()

    def close(self) -> None:
        """Stop reading until a state is loaded."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _move(self) -> None:
        """Put the dataset at the start of this pass, unless it stands there."""
        dataset = self._owner.dataset
        if _native(dataset).start_state() != self._place.start:
            dataset.load_state_dict(self._place.start)

    def _count(self) -> int:
        """Return the number of items received since the start of the pass."""
        return self._received

    def _block(self) -> int | None:
        raise NotImplementedError

    def _take_block(self, block: int | None) -> None:
        raise NotImplementedError

    def _open(self) -> native.SampleIterator | native.BatchIterator:
        raise NotImplementedError


class TorchSamples(_Epochs["CachedSample"]):
    """Samples of a `CachedDataset`; made by `iterable_dataset`."""

    def __init__(
        self,
        dataset: CachedDataset,
        *,
        batch_size: int | None,
        remainder: Remainder,
        transform: Callable[[CachedSample, np.random.Generator], Any] | None,
    ) -> None:
        super().__init__(dataset, transform, remainder)
        self.batch_size = batch_size
        world, length = dataset.reader_config.world_size, self._length()
        if remainder == "keep" and length % world:
            warnings.warn(
                f"{length} samples over {world} ranks: some ranks get {length // world} and others one more, and a "
                'collective operation per step would wait for ever; use remainder="drop" or "pad", or batch_dataset',
                stacklevel=4,
            )

    def _length(self) -> int:
        return _native(self.dataset).epoch_length()

    def __iter__(self) -> _SampleStream:
        place = self._begin()
        is_plain = place.workers == 1 and self.transform is None
        return _PlainSampleStream(self, place) if is_plain else _SampleStream(self, place)

    def __len__(self) -> int:
        return self._count(0)

    def _count(self, start: int) -> int:
        """Return how many samples this rank gets from position `start` to the end of an epoch."""
        config, left = self.dataset.reader_config, self._length() - start
        if self.remainder == "drop":
            return left // config.world_size
        missing = config.rank if self.remainder == "keep" else 0
        return max(0, -((missing - left) // config.world_size))


class _SampleStream(_Stream["CachedSample"]):
    kind = "samples"

    def __init__(self, owner: TorchSamples, place: _Place) -> None:
        super().__init__(owner, place)
        self._samples = owner
        self._size = 1 if place.workers == 1 else owner.batch_size
        config = owner.dataset.reader_config
        self._rank, self._world, self._seed = config.rank, config.world_size, config.seed
        self._leaves_out = config.on_corrupt == "skip"
        self._opened_at = 0
        if place.workers == 1:
            self._source = self._open()

    def __next__(self) -> Any:
        if self._source is None:
            self._source = self._open()
        sample = next(self._source)
        self._received += 1
        if self._leaves_out:
            # The positions of samples that were left out count too.
            self._received = self._opened_at + cast("native.SampleIterator", self._source).passed()
        if self._owner.transform is None:
            return sample
        generator = self._owner.dataset.generator(self._place.start["epoch"], self._position())
        return self._owner.transform(sample, generator)

    def _position(self) -> int:
        """Return the position of the last sample received."""
        block, offset = divmod(self._received - 1, self._size or 1)
        number = (block * self._place.workers + self._place.worker) * (self._size or 1) + offset
        length = self._samples._length()  # noqa: SLF001
        return (self._place.start["position"] + self._rank + number * self._world) % length

    def _block(self) -> int | None:
        return self._size

    def _take_block(self, block: int | None) -> None:
        if self._place.workers > 1 and block is not None:
            self._size = block

    def _open(self) -> native.SampleIterator:
        place = self._place
        if place.workers > 1:
            if self._leaves_out:
                raise ConfigError(
                    'on_corrupt: expected "raise" or "substitute" for samples from worker processes, which share an '
                    'order by counting them, found "skip"; batch_dataset leaves samples out of batches, which stay',
                    option="on_corrupt",
                    expected='"raise" or "substitute"',
                    found="skip",
                )
            self._size = self._agreed_size()
        whole, rest = divmod(self._received, self._size or 1)
        self._move()
        source = _native(self._owner.dataset).samples(
            self._samples.remainder, self._size or 1, place.worker + whole * place.workers, place.workers
        )
        self._opened_at = self._received
        for _ in zip(range(rest), source, strict=False):  # at most a batch, already received
            pass
        return source

    def _agreed_size(self) -> int:
        """Return the batch size that the loader and the caller agree on."""
        found = _fetched_rows()
        known = self._size or found
        if known is None:
            raise RuntimeError(
                "a worker process cannot see the batch size of its DataLoader, which it needs to keep the order; "
                "give it: iterable_dataset(dataset, batch_size=...)"
            )
        if found is not None and found != known:
            raise RuntimeError(
                f"batch_size: the DataLoader asks for batches of {found}, expected {known}; with worker processes both "
                "must be equal, also when a pass is resumed"
            )
        return known


class _PlainSampleStream(_SampleStream):
    """Samples as they are, all in this process: as little as can be is done for each, and counting is left to Rust."""

    def __next__(self) -> CachedSample:
        return next(self._source)  # pyrefly: ignore[bad-argument-type, bad-return] (it is open from the start)

    def _count(self) -> int:
        if self._source is None:
            return self._received
        now, start = self._source.state_dict(), self._place.start
        if now["epoch"] != start["epoch"]:
            return self._samples._count(start["position"])  # noqa: SLF001
        return (now["position"] - start["position"]) // self._world

    def close(self) -> None:
        """Stop reading; nothing more is delivered."""
        if self._source is not None:
            self._source.close()


class TorchBatches(_Epochs["CachedBatch"]):
    """Batches of a `CachedDataset`; made by `batch_dataset`."""

    def __init__(
        self,
        dataset: CachedDataset,
        batch_size: int,
        *,
        remainder: Remainder,
        transform: Callable[[CachedBatch], Any] | None,
    ) -> None:
        super().__init__(dataset, transform, remainder)
        self.batch_size = batch_size

    def __iter__(self) -> _BatchStream:
        return _BatchStream(self, self._begin())

    def __len__(self) -> int:
        rows = self.batch_size * self.dataset.reader_config.world_size
        length = _native(self.dataset).epoch_length()
        return length // rows if self.remainder == "drop" else -(-length // rows)


class _BatchStream(_Stream["CachedBatch"]):
    kind = "batches"

    def __init__(self, owner: TorchBatches, place: _Place) -> None:
        super().__init__(owner, place)
        self._batches = owner
        if place.workers == 1:
            self._source = self._open()

    def __next__(self) -> Any:
        if self._source is None:
            self._source = self._open()
        batch = next(self._source)
        self._received += 1
        return batch if self._owner.transform is None else self._owner.transform(batch)

    def _block(self) -> int:
        return self._batches.batch_size

    def _take_block(self, block: int | None) -> None:
        if block != self._batches.batch_size:
            fields = [("batch_size", block, self._batches.batch_size)]
            raise StateMismatchError(
                f"saved state: it belongs to another loader: batch_size was {block} and is {self._batches.batch_size}; "
                "load_loader_state takes it for any batch size",
                fields=fields,
            )

    def _open(self) -> native.BatchIterator:
        place = self._place
        self._move()
        skip = place.worker + self._received * place.workers
        return self._owner.dataset._batches_of_worker(  # noqa: SLF001 (the adapter is one of us)
            self._batches.batch_size, self._batches.remainder, skip, place.workers
        )


def _native(dataset: CachedDataset) -> native.CachedDataset:
    return dataset._native  # noqa: SLF001


def _fetched_rows() -> int | None:
    """Return how many rows the `DataLoader` that fetches from this process wants in a batch, or `None` if none is seen.

    Nothing else tells a worker. The name is the argument of the `fetch` methods of PyTorch and torchdata, and counts
    only in code of theirs; should it change, callers ask for the number instead.
    """
    frame = sys._getframe(1)  # noqa: SLF001
    for _ in range(_FETCH_DEPTH):
        if frame is None:
            return None
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in _LOADERS and "possibly_batched_index" in frame.f_locals:
            index = frame.f_locals["possibly_batched_index"]
            return 1 if index is None else len(index)
        frame = frame.f_back
    return None
