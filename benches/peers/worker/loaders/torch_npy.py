"""PyTorch's DataLoader over a memory-mapped `.npy` file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from loaders.base import BATCH, Base, endless

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Samples(Dataset):
    """A sample at a time, stacked by the loader's own collation."""

    def __init__(self, path: Path) -> None:
        self.array = np.asarray(np.load(path / "values.npy", mmap_mode="c"))

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, row: int) -> torch.Tensor:
        """Return a view of one sample."""
        return torch.from_numpy(self.array[row])


class Batches(Samples):
    """A batch at a time: what the loader calls when a dataset has it."""

    def __getitems__(self, rows: list[int]) -> torch.Tensor:
        """Return a whole batch."""
        return torch.from_numpy(np.take(self.array, rows, axis=0))


def whole(batch: torch.Tensor) -> torch.Tensor:
    """Leave a batch as it is."""
    return batch


class Loader(Base):
    """Options: `workers` (processes; 0 for none) and `batched` for `__getitems__`."""

    slow_start = True

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Start the workers; they live from epoch to epoch."""
        batched, workers = bool(self.options["batched"]), int(self.options["workers"])
        dataset = (Batches if batched else Samples)(self.path)
        sampler = RandomSampler(dataset, replacement=True, num_samples=1_000_000 // BATCH * BATCH)
        loader = DataLoader(
            dataset,
            batch_size=BATCH,
            sampler=sampler,
            num_workers=workers,
            collate_fn=whole if batched else None,
            persistent_workers=workers > 0,
        )
        return endless(loader)
