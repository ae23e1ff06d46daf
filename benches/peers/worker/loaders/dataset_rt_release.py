"""dataset-rt 0.4.8 through the PyTorch DataLoader that it builds."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from stores.dataset_rt_release import opened

from loaders.base import BATCH, WORKERS, Base, endless

if TYPE_CHECKING:
    from collections.abc import Iterator


def stacked(samples: list[object], shape: tuple[int, ...]) -> np.ndarray:
    """Collate the payloads of samples."""
    return np.frombuffer(b"".join(sample.data for sample in samples), np.uint8).reshape(len(samples), *shape)


class Loader(Base):
    """Option `workers`: processes; with none, two reading threads in this process."""

    slow_start = True

    def __iter__(self) -> Iterator[np.ndarray]:
        """Build the loader and start."""
        loader = opened(self.path).to_torch_dataloader(
            batch_size=BATCH,
            num_workers=self.options["workers"],
            native_num_workers=WORKERS,
            samples_per_epoch=1_000_000 // BATCH * BATCH,
            collate_fn=functools.partial(stacked, shape=self.reference.shape),
            seed=7,
            verbose=False,
        )
        return endless(loader)
