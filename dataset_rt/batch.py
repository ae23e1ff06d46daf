"""`CachedBatch`: samples delivered together, as arrays that own their memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dataset_rt import _dataset_rt as native

__all__ = ["CachedBatch", "Payloads"]


@dataclass(frozen=True, eq=False, slots=True)
class Payloads(Sequence[memoryview]):
    """Payloads of a batch in one buffer.

    Example:
        >>> batch = next(dataset.batches(2))
        >>> bytes(batch.data[0]) == dataset[int(batch.sample_id[0])].data
        True
    """

    values: NDArray[np.uint8]
    """All payloads, one after the other."""

    offsets: NDArray[np.int64]
    """`len(self) + 1` byte positions: payload `i` is `values[offsets[i]:offsets[i + 1]]`."""

    def __len__(self) -> int:
        """Return the number of payloads."""
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> memoryview: ...
    @overload
    def __getitem__(self, index: slice) -> list[memoryview]: ...
    def __getitem__(self, index: int | slice) -> memoryview | list[memoryview]:
        """Return one payload, or a list of them, without a copy; the views keep the whole buffer alive."""
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        return self.values.data[self.offsets[position] : self.offsets[position + 1]]

    def __iter__(self) -> Iterator[memoryview]:
        """Yield the payloads in order, without a copy."""
        view = self.values.data
        bounds = self.offsets.tolist()
        for start, end in pairwise(bounds):
            yield view[start:end]


@dataclass(frozen=True, eq=False)
class CachedBatch:
    """Samples of one step on one rank, in order. Nothing in it is overwritten later."""

    data: Payloads
    """Payloads as bytes."""

    cache_id: NDArray[np.uint64]
    """Cache of each sample."""

    sample_id: NDArray[np.uint64]
    """Row of each sample in its cache."""

    valid: NDArray[np.bool_]
    """`False` for rows that only fill up the last batch (`remainder="pad"`)."""

    epoch: int
    """Epoch of the batch."""

    step: int
    """Number of the global batch in its epoch, counted in batches of this size."""

    _metadata: native.BatchMetadata = field(repr=False)
    _state: str = field(repr=False)

    def __len__(self) -> int:
        """Return the number of rows, padding included."""
        return len(self.sample_id)

    @cached_property
    def metadata(self) -> pl.DataFrame:
        """Metadata columns in name order, one row per sample; built when first asked for."""
        return pl.DataFrame(self._metadata.table())

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a consumer that has used this batch and nothing after it."""
        return json.loads(self._state)


def build_batch(
    *,
    values: native.NativeArray,
    offsets: native.NativeArray,
    cache_id: native.NativeArray,
    sample_id: native.NativeArray,
    valid: int,
    epoch: int,
    step: int,
    metadata: native.BatchMetadata,
    state: str,
) -> CachedBatch:
    """Assemble a batch from the parts that Rust loaded; called from there."""
    samples = np.frombuffer(memoryview(sample_id), dtype=np.uint64)
    return CachedBatch(
        data=Payloads(
            np.frombuffer(memoryview(values), dtype=np.uint8), np.frombuffer(memoryview(offsets), dtype=np.int64)
        ),
        cache_id=np.frombuffer(memoryview(cache_id), dtype=np.uint64),
        sample_id=samples,
        valid=np.arange(len(samples)) < valid,
        epoch=epoch,
        step=step,
        _metadata=metadata,
        _state=state,
    )
