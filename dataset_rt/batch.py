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

from dataset_rt import _dataset_rt as native

if TYPE_CHECKING:
    from numpy.typing import NDArray

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

    position: NDArray[np.uint64]
    """Position of each sample in its epoch, over all ranks."""

    valid: NDArray[np.bool_]
    """`False` for rows that only fill up the last batch (`remainder="pad"`)."""

    epoch: int
    """Epoch of the batch."""

    step: int
    """Number of the global batch in its epoch, counted in batches of this size."""

    _metadata: native.BatchMetadata | None = field(repr=False)
    _state: str = field(repr=False)

    def __len__(self) -> int:
        """Return the number of rows, padding included."""
        return len(self.sample_id)

    @cached_property
    def metadata(self) -> pl.DataFrame:
        """Metadata columns in name order, one row per sample; built when first asked for."""
        if self._metadata is None:
            raise AttributeError("the metadata of this batch was lost")
        return pl.DataFrame(self._metadata.table())

    def generator(self, row: int) -> np.random.Generator:
        """Return the random generator that belongs to a row's position: `CachedDataset.generator` of it."""
        return generator(self._seed, self.epoch, int(self.position[row]))

    @cached_property
    def _seed(self) -> int:
        """The seed of the order, read from the state once."""
        return self.state_dict()["seed"]

    def __getstate__(self) -> dict[str, Any]:
        """Return the parts as arrays and frames, for another process."""
        return {**self.__dict__, "metadata": self.metadata, "_metadata": None}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a consumer that has used this batch and nothing after it."""
        return json.loads(self._state)


def generator(seed: int, epoch: int, position: int) -> np.random.Generator:
    """Return the random generator of one position of an epoch."""
    return np.random.Generator(np.random.Philox(key=native.sample_bits(seed, epoch, position)))


def build_batch(
    *,
    values: native.NativeArray,
    offsets: native.NativeArray,
    cache_id: native.NativeArray,
    sample_id: native.NativeArray,
    valid: int,
    epoch: int,
    step: int,
    position: native.NativeArray,
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
        position=np.frombuffer(memoryview(position), dtype=np.uint64),
        valid=np.arange(len(samples)) < valid,
        epoch=epoch,
        step=step,
        _metadata=metadata,
        _state=state,
    )
