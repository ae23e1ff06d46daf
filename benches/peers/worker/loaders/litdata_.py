"""LitData's own DataLoader over its local chunks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from litdata import StreamingDataLoader, StreamingDataset
from stores.litdata_ import whole

from loaders.base import BATCH, WORKERS, Base, endless

if TYPE_CHECKING:
    from collections.abc import Iterator


class Loader(Base):
    """Two processes."""

    slow_start = True

    def __iter__(self) -> Iterator[object]:
        """Start the workers."""
        dataset = StreamingDataset(str(self.path / "records"), shuffle=True, drop_last=True)
        collate = functools.partial(whole, shape=self.reference.shape)
        loader = StreamingDataLoader(
            dataset, batch_size=BATCH, num_workers=WORKERS, collate_fn=collate, persistent_workers=True
        )
        return endless(loader)
