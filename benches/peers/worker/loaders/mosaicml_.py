"""MosaicML Streaming through PyTorch's DataLoader, from local shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stores.mosaicml_ import StreamingDataset  # with what it needs to be imported
from torch.utils.data import DataLoader

from loaders.base import BATCH, WORKERS, Base, endless

if TYPE_CHECKING:
    from collections.abc import Iterator


class Loader(Base):
    """Two processes."""

    slow_start = True

    def __iter__(self) -> Iterator[object]:
        """Start the workers."""
        dataset = StreamingDataset(local=str(self.path / "records"), shuffle=True, batch_size=BATCH)
        loader = DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, persistent_workers=True, drop_last=True)
        return endless(loader)

    def shown(self, batch: dict[str, object]) -> object:
        """Return the only column."""
        return batch["data"]
