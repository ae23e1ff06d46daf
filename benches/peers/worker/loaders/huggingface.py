"""Hugging Face datasets through PyTorch's DataLoader with a batch sampler, as its documents recommend for speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import datasets
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from loaders.base import BATCH, WORKERS, Base, endless

if TYPE_CHECKING:
    from collections.abc import Iterator


class Loader(Base):
    """Two processes."""

    slow_start = True

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Start the workers."""
        dataset = datasets.Dataset.from_file(str(self.path / "records.arrow"))
        # Without the type, it would make int64 of every number.
        dataset = dataset.with_format("torch", dtype=torch.uint8)
        rows = RandomSampler(dataset, replacement=True, num_samples=1_000_000 // BATCH * BATCH)
        sampler = BatchSampler(rows, batch_size=BATCH, drop_last=True)
        loader = DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=WORKERS, persistent_workers=True)
        return endless(loader)

    def shown(self, batch: dict[str, torch.Tensor]) -> object:
        """Give the column its shape."""
        return batch["data"].numpy().reshape(-1, *self.reference.shape)
