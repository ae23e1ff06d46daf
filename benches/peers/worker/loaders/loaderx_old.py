"""loaderx 0.5: `DataLoader` with two threads over a `Dataset`, and the labels that it insists on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from loaderx import DataLoader, Dataset

from loaders.base import BATCH, WORKERS, Base

if TYPE_CHECKING:
    from collections.abc import Iterator


class Loader(Base):
    """Random rows with replacement, as by default."""

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """Open both datasets and start."""
        labels = self.path.with_name(self.path.name + "-labels")
        if not labels.exists():
            Dataset.write(labels, np.arange(len(self.reference), dtype=np.int64), codec="raw").close()
        self.loader = DataLoader(Dataset(self.path), Dataset(labels), num_workers=WORKERS, batch_size=BATCH)
        return iter(self.loader)

    def shown(self, batch: dict[str, np.ndarray]) -> object:
        """Return the data."""
        return batch["data"]

    def close(self) -> None:
        """Stop the threads."""
        self.loader.close()
