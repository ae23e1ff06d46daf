"""PyTorch: a `CachedDataset` behind a `DataLoader`, with any number of worker processes, in the same order.

The dataset reads with its own threads, so `num_workers=0` is the simple and usually the fast choice; worker processes
are for Python transforms that need more than one core. Importing this module does not import PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    from dataset_rt.adapters.torch.iterable import TorchBatches, TorchSamples
    from dataset_rt.adapters.torch.mapped import OrderBatchSampler, TorchRows
    from dataset_rt.batch import CachedBatch
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.records import CachedSample

__all__ = [
    "SizedTorchIterableDataset",
    "batch_dataset",
    "batch_sampler",
    "iterable_dataset",
    "load_loader_state",
    "map_dataset",
    "pinned",
    "to_torch",
]

Remainder: TypeAlias = Literal["keep", "drop", "pad"]
"""What happens to samples that do not fill a step of all ranks; as in `CachedDataset.batches`."""


@runtime_checkable
class SizedTorchIterableDataset(Protocol):
    """What `to_torch_iterable_dataset` returns: an `IterableDataset` with a length."""

    def __iter__(self) -> Iterator[CachedSample]:
        """Yield the samples of the dataset's next epoch, in its order."""
        ...

    def __len__(self) -> int:
        """Return the number of samples that this rank gets in an epoch."""
        ...


def iterable_dataset(
    dataset: CachedDataset,
    *,
    batch_size: int | None = None,
    remainder: Remainder = "keep",
    transform: Callable[[CachedSample, np.random.Generator], Any] | None = None,
) -> TorchSamples:
    """Wrap `dataset` as a `torch.utils.data.IterableDataset` of samples.

    A `DataLoader` over it delivers the samples of `iter(dataset)`, in that order, with any `num_workers`. Each pass is
    the next epoch. Its length is exact and at most the last batch is short.

    Args:
        dataset: The dataset to iterate. With several ranks, each gets every `world_size`-th position, as from
            `iter(dataset)`; use `batch_dataset` where global batches matter.
        batch_size: The `DataLoader`'s batch size. Worker processes need it to deal out whole batches and read it from
            the `DataLoader` that asks them; give it where something stands between, such as another dataset that wraps
            this one.
        remainder: Samples of a rank when positions do not divide evenly: `"keep"` gives some ranks one more than
            others, `"drop"` and `"pad"` give all the same number.
        transform: Called with each sample and the random generator of its position (`CachedDataset.generator`), in the
            process that iterates; what it returns is delivered.

    Raises:
        ImportError: PyTorch is not installed.
    """
    return _part("iterable").TorchSamples(dataset, batch_size=batch_size, remainder=remainder, transform=transform)


def batch_dataset(
    dataset: CachedDataset,
    batch_size: int,
    *,
    remainder: Remainder = "keep",
    transform: Callable[[CachedBatch], Any] | None = None,
) -> TorchBatches:
    """Wrap `dataset` as a `torch.utils.data.IterableDataset` of batches, for `DataLoader(..., batch_size=None)`.

    The `DataLoader` delivers the batches of `dataset.batches(batch_size)`, in that order, with any `num_workers`, and
    every rank makes the same number of steps. Each pass is the next epoch.

    Args:
        dataset: The dataset to iterate.
        batch_size: Rows of a full batch on this rank.
        remainder: As in `CachedDataset.batches`.
        transform: Called with each batch, in the process that iterates; what it returns is delivered.

    Raises:
        ImportError: PyTorch is not installed.
    """
    return _part("iterable").TorchBatches(dataset, batch_size, remainder=remainder, transform=transform)


def map_dataset(dataset: CachedDataset) -> TorchRows:
    """Wrap `dataset` as a map-style `torch.utils.data.Dataset`: item `i` is row `i` of `samples_metadata()`.

    Use it with `batch_sampler`, which brings order, weights, epochs and ranks, or with samplers of your own. Item
    `[i, j, ...]` is the `CachedBatch` of these rows, which a loader delivers with
    `DataLoader(map_dataset(dataset), sampler=batch_sampler(dataset, 32), batch_size=None)`.

    Raises:
        ImportError: PyTorch is not installed.
    """
    return _part("mapped").TorchRows(dataset)


def batch_sampler(dataset: CachedDataset, batch_size: int, *, remainder: Remainder = "keep") -> OrderBatchSampler:
    """Return a batch sampler for `map_dataset(dataset)`: the row numbers of this rank's batches, epoch after epoch.

    It takes the place of `shuffle`, `WeightedRandomSampler` and `DistributedSampler`. Each pass is the next epoch.

    Args:
        dataset: The dataset that the map-style dataset was made from.
        batch_size: Rows of a full batch on this rank.
        remainder: As in `CachedDataset.batches`.

    Raises:
        ImportError: PyTorch is not installed.
    """
    return _part("mapped").OrderBatchSampler(dataset, batch_size, remainder=remainder)


def load_loader_state(dataset: CachedDataset, state: Mapping[str, Any]) -> None:
    """Make the next iterator of `dataset` start where a `StatefulDataLoader` stood, whatever its number of workers was.

    `StatefulDataLoader.load_state_dict` takes only states of as many workers as it has. This takes any, for any other
    loader, number of workers, ranks or batch size afterwards.

    Args:
        dataset: The dataset behind the loader that is to resume.
        state: What `state_dict()` of a `StatefulDataLoader` over `iterable_dataset`, `batch_dataset` or with
            `batch_sampler` returned.

    Raises:
        ValueError: `state` is of no such loader.
        StateMismatchError: It belongs to other contents, rows, weights, seed or recipe.
    """
    _part("resume").load_loader_state(dataset, state)


def to_torch(batch: CachedBatch, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Do what `CachedBatch.to_torch` says; as `transform=to_torch` it makes a loader deliver tensors."""
    return _part("tensors").to_torch(batch, names)


def pinned(batch: CachedBatch) -> CachedBatch:
    """Do what `CachedBatch.pin_memory` says."""
    return _part("tensors").pinned(batch)


def _part(name: str) -> Any:
    try:
        import_module("torch.utils.data")
    except ImportError as error:
        raise ImportError("the PyTorch adapters need PyTorch: install the package `torch`") from error
    return import_module(f"{__name__}.{name}")
