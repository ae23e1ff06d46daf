"""loaderx 2: `Loader` with two threads over a `Dense` store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from loaderx import Loader as Threads
from loaderx.sampler import Sampler
from loaderx.zrecord import Dense

from loaders.base import BATCH, WORKERS, Base

if TYPE_CHECKING:
    from collections.abc import Iterator


class Loader(Base):
    """Random rows with replacement."""

    def __iter__(self) -> Iterator[object]:
        """Open the store and start."""
        self.store = Dense.open(self.path / "store")
        sampler = Sampler(len(self.store), BATCH, Sampler.Mode.IID, seed=42)
        self.loader = Threads({"data": [self.store]}, sampler, workers=WORKERS)
        return iter(self.loader)

    def shown(self, batch: list[dict[str, object]]) -> object:
        """Look at the tensor of the only shard."""
        return np.from_dlpack(batch[0]["data"])

    def close(self) -> None:
        """Stop the threads and close the store."""
        self.loader.close()
        self.store.close()
