"""WebDataset: tar shards read in sequence, shuffled through a buffer."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import webdataset as wds

from loaders.base import BATCH, WORKERS, Base

if TYPE_CHECKING:
    from collections.abc import Iterator


def decoded(sample: tuple[bytes], shape: tuple[int, ...]) -> np.ndarray:
    """View the bytes of a sample."""
    return np.frombuffer(sample[0], np.uint8).reshape(shape)


class Loader(Base):
    """Two processes."""

    slow_start = True

    def __iter__(self) -> Iterator[np.ndarray]:
        """Build the pipeline of its documents and start."""
        shards = sorted(str(path) for path in self.path.glob("*.tar"))
        decode = functools.partial(decoded, shape=self.reference.shape)
        pipeline = wds.WebDataset(shards, shardshuffle=len(shards), resampled=True, nodesplitter=None)
        pipeline = (
            pipeline.shuffle(1000).to_tuple("bin").map(decode).batched(BATCH, collation_fn=np.stack, partial=False)
        )
        return iter(wds.WebLoader(pipeline, num_workers=WORKERS, batch_size=None))
