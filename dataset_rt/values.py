"""Values of different lengths in one piece of memory: plain payloads, and fields of open shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import polars as pl

from dataset_rt import _dataset_rt as native

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Payloads", "Ragged", "RaggedParts"]


@dataclass(frozen=True, eq=False, slots=True)
class Payloads(Sequence[memoryview]):
    """Payloads of a batch in one buffer; for Arrow, a column of large binary values.

    Example:
        >>> batch = next(dataset.batches(2))
        >>> bytes(batch.data[0]) == dataset[int(batch.sample_id[0])].data
        True
        >>> batch.data.to_polars().dtype
        Binary
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

    def to_polars(self) -> pl.Series:
        """Return the payloads as a Polars series of binary values."""
        return pl.DataFrame(native.large_binary(self.values, self.offsets)).to_series()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the payloads as an Arrow stream of one large-binary column, without a copy."""
        return native.large_binary(self.values, self.offsets).__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, eq=False, slots=True)
class Ragged(Sequence["NDArray[Any]"]):
    """Values of a field of open shape, in one array.

    Example:
        >>> tokens = Ragged(np.arange(5), np.array([0, 2, 5]), np.array([[2], [3]]))
        >>> tokens[1]
        array([2, 3, 4])
    """

    values: NDArray[Any]
    """The elements of all values, one value after the other, each in C order."""

    offsets: NDArray[np.int64]
    """`len(self) + 1` element positions: value `i` is `values[offsets[i]:offsets[i + 1]]`, flat."""

    shapes: NDArray[np.int64]
    """The shape of each value, `(len(self), number of axes)`."""

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[Any]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[Any] | list[NDArray[Any]]:
        """Return one value in its shape, or a list of them, without a copy; the views keep all values alive."""
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        value = self.values[self.offsets[position] : self.offsets[position + 1]]
        return value.reshape(self.shapes[position])

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Yield the values in order, without a copy."""
        return (self[position] for position in range(len(self)))


class RaggedParts(NamedTuple):
    """Values of different lengths as three tensors of PyTorch or arrays of JAX.

    A named tuple, so that both frameworks move, pin and map it like any tuple of tensors.

    Example:
        >>> tokens = RaggedParts(np.arange(5), np.array([0, 2, 5]), np.array([[2], [3]]))
        >>> tokens.row(1)
        array([2, 3, 4])
    """

    values: Any
    """The elements of all values, one value after the other, each in C order; for bytes, `uint8`."""

    offsets: Any
    """One more than there are values: value `i` is `values[offsets[i]:offsets[i + 1]]`, flat."""

    shapes: Any
    """The shape of each value, `(number of values, number of axes)`; for bytes, their lengths."""

    def row(self, index: int) -> Any:
        """Return one value in its shape; it shares memory with all of them where the framework has views."""
        index = range(len(self.shapes))[index]
        value = self.values[int(self.offsets[index]) : int(self.offsets[index + 1])]
        return value.reshape(tuple(self.shapes[index].tolist()))
