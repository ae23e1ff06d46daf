"""`CachedBatch`: samples delivered together, as arrays that own their memory."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dataset_rt import _dataset_rt as native
from dataset_rt.values import Payloads, Ragged, RaggedParts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from dataset_rt.columns import Columns, PayloadField

__all__ = ["CachedBatch", "Payloads", "Ragged", "RaggedParts"]


class _kept:  # noqa: N801 (used like `property`)
    """As `functools.cached_property`, without the lock that Python 3.11 takes, which costs more than a small gather."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        value = self._make(instance)
        # By way of `__dict__` it would cost a dict of its own for each instance.
        setattr(instance, self._name, value)
        return value


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

    _pinned: Mapping[str, Any] | None = None
    """The tensors in pinned memory that the arrays of this batch are views of."""

    def __init__(
        self, parts: native.NativeBatch, columns: Columns, given: Sequence[NDArray[Any]] | None = None
    ) -> None:
        self._parts: native.NativeBatch | None = parts
        self._columns = columns
        self._given = given

    @_kept
    def data(self) -> Any:
        """The payloads: `Payloads` if they are plain bytes, otherwise a dict of field name to values.

        The values of a field are an array of shape `(len(batch), *shape)` if its shape is fixed, `Ragged` if not, and
        `Payloads` if they are bytes.
        """
        parts, columns = self._native, self._columns
        dense = columns.dense
        if dense is not None and self._given is None:
            return parts.dense(dense)
        if columns.fields is None:
            return self._payloads(*parts.column(0), given=self._given) if columns.native != [] else None
        return {
            field.name: self._values(field, number, *parts.column(number))
            for number, field in enumerate(columns.fields)
        }

    def _payloads(
        self,
        values: native.NativeArray,
        offsets: NDArray[np.int64] | None,
        _open: NDArray[np.int64] | None,
        *,
        given: Sequence[NDArray[Any]] | None,
        number: int = 0,
    ) -> Payloads:
        held = _array(values, np.uint8) if given is None else given[number].view(np.uint8).reshape(-1)
        return Payloads(held, _numbers(offsets))

    def _values(
        self,
        field: PayloadField,
        number: int,
        values: native.NativeArray,
        offsets: NDArray[np.int64] | None,
        extents: NDArray[np.int64] | None,
    ) -> Any:
        if field.is_opaque:
            return self._payloads(values, offsets, extents, given=self._given, number=number)
        dtype = field.numpy_dtype
        if field.is_dense:
            if self._given is not None:
                return self._given[number]
            memory: Any = values
            return np.ndarray((len(self), *field.extents), dtype, memory)
        held = _array(values, dtype) if self._given is None else self._given[number].reshape(-1)
        bounds = _numbers(offsets) // dtype.itemsize
        shapes = np.empty((len(self), len(field.shape)), np.int64)
        is_open = np.array([extent is None for extent in field.shape])
        shapes[:, ~is_open] = field.extents
        shapes[:, is_open] = _numbers(extents).reshape(len(self), is_open.sum())
        return Ragged(held, bounds, shapes)

    @cached_property
    def cache_id(self) -> NDArray[np.uint64]:
        """Cache of each sample."""
        return self._native.cache_id()

    @cached_property
    def sample_id(self) -> NDArray[np.uint64]:
        """Row of each sample in its cache."""
        return self._native.sample_id()

    @cached_property
    def position(self) -> Any:
        """Position of each sample in its epoch, over all ranks (u64); `None` if the rows were asked for."""
        return self._native.position()

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
        """`False` for rows that hold no sample.

        These only fill up the last batch (`remainder="pad"`), or are damaged samples that were left out
        (`on_corrupt="skip"`): their values are zeros, or empty where samples differ in shape.
        """
        valid = np.arange(len(self)) < (len(self) if self._place is None else self._place[2])
        left_out = self._native.left_out()
        if left_out is not None:
            valid[left_out] = False
        return valid

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
        data = self.data
        if isinstance(data, dict):
            if name in data:
                return data[name]
        elif name == "data" and name not in self._columns.metadata:
            return data
        if name not in self._columns.metadata:
            raise KeyError(f"no payload field or metadata column {name!r}; there are: {', '.join(self.keys())}")
        column = self.metadata.get_column(name)
        return column if column.dtype == pl.String or column.null_count() else column.to_numpy(writable=True)

    def to_torch(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return PyTorch tensors of payload fields and metadata columns, without a copy of payloads.

        Args:
            names: Which ones. `None` is all payload fields, and the columns of numbers and booleans that have no nulls
                in this batch.

        Returns:
            A dict of name to tensor of shape `(len(batch), ...)`; plain bytes, fields of bytes and fields of open shape
            are `RaggedParts` of tensors. The tensors keep the memory of the batch: a change of one is a change of it.

        Raises:
            ImportError: PyTorch is not installed.
            ConfigError: There is no column of a name, or PyTorch has no tensors of its type.
        """
        from dataset_rt.adapters.torch import to_torch  # noqa: PLC0415 (adapters are loaded when asked for)

        return to_torch(self, names)

    def pin_memory(self) -> CachedBatch:
        """Return a copy of this batch whose payloads lie in pinned memory; `DataLoader(pin_memory=True)` calls it.

        `to_torch()` of the result makes no further copy; what it returns is pinned, its metadata columns too.

        Raises:
            ImportError: PyTorch is not installed.
            RuntimeError: PyTorch's own, where there is no accelerator to pin memory for. A `DataLoader` warns there,
                and leaves batches as they are.
        """
        from dataset_rt.adapters.torch import pinned  # noqa: PLC0415 (adapters are loaded when asked for)

        return pinned(self)

    def to_jax(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return JAX arrays of payload fields and metadata columns, on the default device.

        On the CPU, payloads of types that JAX keeps share memory with the batch, which must not be changed then.
        Unless `jax_enable_x64` is on, JAX has no 64-bit types: numbers become 32 bits wide.

        Args:
            names: Which ones. `None` is all payload fields, and the columns of numbers and booleans that have no nulls
                in this batch.

        Returns:
            A dict of name to array of shape `(len(batch), ...)`; plain bytes, fields of bytes and fields of open shape
            are `RaggedParts` of arrays.

        Raises:
            ImportError: JAX is not installed.
            ConfigError: There is no column of a name, or it is not of numbers or booleans.
            OverflowError: A 64-bit integer does not fit into the 32 bits that JAX would keep.
        """
        from dataset_rt.adapters.jax import to_jax  # noqa: PLC0415 (adapters are loaded when asked for)

        return to_jax(self, names)

    def __dlpack__(self, **options: Any) -> Any:
        """Return the one dense payload field for DLPack, without a copy: `np.from_dlpack(batch)` and its like.

        Raises:
            BufferError: The batch has more fields, or one that is no dense array; or NumPy cannot share its type.
        """
        return self._dense().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where the memory is: on the CPU."""
        return self._dense().__dlpack_device__()

    def _dense(self) -> NDArray[Any]:
        """Return the array of a batch that is one."""
        fields = self._columns.fields or ()
        if len(fields) == 1 and fields[0].is_dense:
            return self.data[fields[0].name]
        found = ", ".join(f"{field.name} ({field.dtype} of shape {field.shape})" for field in fields) or "plain bytes"
        raise BufferError(
            f"DLPack shares one array: expected a batch of one payload field of fixed shape, found {found}; choose a "
            "field with columns=, or share batch[name]"
        )

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


def _array(memory: native.NativeArray, dtype: Any) -> NDArray[Any]:
    """Return memory of Rust as an array, without a copy."""
    return np.frombuffer(memoryview(memory), dtype)


def _numbers(found: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return what Rust found, which may be nothing."""
    return np.empty(0, np.int64) if found is None else found


def generator(seed: int, epoch: int, position: int) -> np.random.Generator:
    """Return the random generator of one position of an epoch."""
    return np.random.Generator(np.random.Philox(key=native.sample_bits(seed, epoch, position)))
