"""PyTorch: a `CachedDataset` as a sized iterable dataset."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataset_rt.dataset import CachedDataset
    from dataset_rt.records import CachedSample

__all__ = ["SizedTorchIterableDataset", "iterable_dataset"]


class SizedTorchIterableDataset(Protocol):
    """What `to_torch_iterable_dataset` returns: an `IterableDataset` with a length."""

    def __iter__(self) -> Iterator[CachedSample]:
        """Yield the samples of the dataset's next epoch, in its order."""
        ...

    def __len__(self) -> int:
        """Return the number of samples of an epoch."""
        ...


def iterable_dataset(dataset: CachedDataset) -> SizedTorchIterableDataset:
    """Wrap `dataset` as a `torch.utils.data.IterableDataset`.

    Args:
        dataset: The dataset to iterate; epochs advance as with the dataset itself.

    Returns:
        An iterable dataset for a `DataLoader` with `num_workers=0`: the dataset reads with its own threads.

    Raises:
        ImportError: PyTorch is not installed.
    """
    try:
        data: Any = import_module("torch.utils.data")
    except ImportError as error:
        raise ImportError("to_torch_iterable_dataset needs PyTorch: install the package `torch`") from error

    class DatasetRTIterableDataset(data.IterableDataset):
        """Samples of a `CachedDataset`."""

        def __iter__(self) -> Iterator[CachedSample]:
            if data.get_worker_info() is not None:
                raise RuntimeError(
                    "a CachedDataset reads with its own threads and would repeat every sample in each worker process; "
                    "use DataLoader(num_workers=0) and set ReaderConfig.num_workers instead"
                )
            return iter(dataset)

        def __len__(self) -> int:
            return len(dataset)

    return DatasetRTIterableDataset()
