"""`CachedBatch`: samples delivered together, as arrays that own their memory."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dataset_rt import _dataset_rt as native
from dataset_rt.values import Payloads, Ragged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dataset_rt.columns import Columns, PayloadField

__all__ = ["CachedBatch", "Payloads", "Ragged"]


class CachedBatch:
    """Samples of one step on one rank, or of rows asked for, in order. Nothing in it is overwritten later.

    Each part is built when it is first asked for. All values of a field lie in one piece of memory, which is used for
    another batch once this batch and every array, slice or view taken from it are gone: a slice that is kept keeps the
    values of that field of the whole batch.

    Example:
        >>> batch = next(dataset.batches(2))
        >>> batch.sample_id.dtype, len(batch)
        (dtype('uint64'), 2)
        >>> batch["label"].dtype
        dtype('int64')
    """

    def __init__(
        self, parts: native.NativeBatch, columns: Columns, given: Sequence[NDArray[Any]] | None = None
    ) -> None:
        self._parts: native.NativeBatch | None = parts
        self._columns = columns
        self._given = given

    @cached_property
    def data(self) -> Any:
        """The payloads: `Payloads` if they are plain bytes, otherwise a dict of field name to values.

        The values of a field are an array of shape `(len(batch), *shape)` if its shape is fixed, `Ragged` if not, and
        `Payloads` if they are bytes.
        """
        parts, columns = self._native, self._columns
        if columns.fields is None:
            return self._payloads(*parts.column(0), given=self._given) if columns.native != [] else None
        return {
            field.name: self._values(field, number, *parts.column(number))
            for number, field in enumerate(columns.fields)
        }

    def _payloads(
        self,
        values: native.NativeArray,
        offsets: native.NativeArray | None,
        _open: native.NativeArray | None,
        *,
        given: Sequence[NDArray[Any]] | None,
        number: int = 0,
    ) -> Payloads:
        bounds = _array(offsets, np.int64)
        held = _array(values, np.uint8) if given is None else given[number].view(np.uint8).reshape(-1)
        return Payloads(held, bounds)

    def _values(
        self,
        field: PayloadField,
        number: int,
        values: native.NativeArray,
        offsets: native.NativeArray | None,
        extents: native.NativeArray | None,
    ) -> Any:
        if field.is_opaque:
            return self._payloads(values, offsets, extents, given=self._given, number=number)
        dtype = field.numpy_dtype
        if field.is_dense:
            if self._given is not None:
                return self._given[number]
            return np.frombuffer(memoryview(values), dtype).reshape(len(self), *field.extents)
        held = np.frombuffer(memoryview(values), dtype) if self._given is None else self._given[number].reshape(-1)
        bounds = _array(offsets, np.int64) // dtype.itemsize
        shapes = np.empty((len(self), len(field.shape)), np.int64)
        is_open = np.array([extent is None for extent in field.shape])
        shapes[:, ~is_open] = field.extents
        shapes[:, is_open] = _array(extents, np.int64).reshape(len(self), is_open.sum())
        return Ragged(held, bounds, shapes)

    @cached_property
    def cache_id(self) -> NDArray[np.uint64]:
        """Cache of each sample."""
        return _array(self._native.cache_id(), np.uint64)

    @cached_property
    def sample_id(self) -> NDArray[np.uint64]:
        """Row of each sample in its cache."""
        return _array(self._native.sample_id(), np.uint64)

    @cached_property
    def position(self) -> Any:
        """Position of each sample in its epoch, over all ranks (u64); `None` if the rows were asked for."""
        position = self._native.position()
        return None if position is None else _array(position, np.uint64)

    @cached_property
    def _place(self) -> tuple[int, int, int] | None:
        """Epoch, step and number of rows that are no padding."""
        return self._native.place()

    @property
    def epoch(self) -> Any:
        """Epoch of the batch; `None` if the rows were asked for."""
        return None if self._place is None else self._place[0]

    @property
    def step(self) -> Any:
        """Number of the global batch in its epoch, in batches of this size; `None` if the rows were asked for."""
        return None if self._place is None else self._place[1]

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """`False` for rows that only fill up the last batch (`remainder="pad"`)."""
        return np.arange(len(self)) < (len(self) if self._place is None else self._place[2])

    @cached_property
    def metadata(self) -> pl.DataFrame:
        """Metadata columns in name order, one row per sample; looked up when first asked for."""
        frame = pl.DataFrame(self._native.metadata())
        wanted = list(self._columns.metadata)
        return frame if frame.columns == wanted else frame.select(wanted)

    def __len__(self) -> int:
        """Return the number of rows, padding included."""
        return len(self.sample_id) if self._parts is None else len(self._parts)

    def keys(self) -> list[str]:
        """Return the names that `batch[name]` knows: payload fields (`data` for plain bytes) and metadata columns."""
        return self._columns.names

    def __getitem__(self, name: str) -> Any:
        """Return a payload field, or a metadata column: an array of numbers, a Polars series of texts or with nulls.

        Raises:
            KeyError: There is no field or column of this name.
        """
        if isinstance(self.data, dict):
            if name in self.data:
                return self.data[name]
        elif name == "data" and name not in self._columns.metadata:
            return self.data
        if name not in self._columns.metadata:
            raise KeyError(f"no payload field or metadata column {name!r}; there are: {', '.join(self.keys())}")
        column = self.metadata.get_column(name)
        return column if column.dtype == pl.String or column.null_count() else column.to_numpy(writable=True)

    def generator(self, row: int) -> np.random.Generator:
        """Return the random generator that belongs to a row's position: `CachedDataset.generator` of it."""
        if self.position is None or self.epoch is None:
            raise TypeError("a batch of rows that were asked for has no position in an order")
        return generator(self._seed, self.epoch, int(self.position[row]))

    @cached_property
    def _seed(self) -> int:
        """The seed of the order, read from the state once."""
        return self.state_dict()["seed"]

    @cached_property
    def _state(self) -> str | None:
        return self._native.state()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a consumer that has used this batch and nothing after it."""
        if self._state is None:
            raise TypeError("a batch of rows that were asked for has no state")
        return json.loads(self._state)

    @property
    def _native(self) -> native.NativeBatch:
        if self._parts is None:
            raise AttributeError("this part of the batch was lost")
        return self._parts

    def __getstate__(self) -> dict[str, Any]:
        """Return the parts as arrays and frames, for another process."""
        names = ("data", "cache_id", "sample_id", "position", "_place", "valid", "metadata", "_state")
        return {name: getattr(self, name) for name in names} | {"_parts": None, "_columns": self._columns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what `__getstate__` returned."""
        self.__dict__.update(state)

    def __repr__(self) -> str:
        """Name the size, the columns and the place in the order."""
        place = "" if self._place is None else f", epoch {self.epoch}, step {self.step}"
        return f"CachedBatch({len(self)} rows of {', '.join(self.keys())}{place})"


def _array(memory: native.NativeArray | None, dtype: type[np.generic]) -> NDArray[Any]:
    """Return memory of Rust as an array, without a copy."""
    return np.frombuffer(memoryview(memory), dtype) if memory is not None else np.empty(0, dtype)


def generator(seed: int, epoch: int, position: int) -> np.random.Generator:
    """Return the random generator of one position of an epoch."""
    return np.random.Generator(np.random.Philox(key=native.sample_bits(seed, epoch, position)))
