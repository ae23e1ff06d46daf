"""Tensors that share memory with a batch, and batches in pinned memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dataset_rt.adapters.parts import converted, parts
from dataset_rt.errors import ConfigError
from dataset_rt.values import Payloads, Ragged, RaggedParts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dataset_rt.batch import CachedBatch


def to_torch(batch: CachedBatch, names: Sequence[str] | None) -> dict[str, Any]:
    """Do what `CachedBatch.to_torch` says."""
    pinned = batch._pinned or {}  # noqa: SLF001 (adapters are friends of the batch, here and below)
    return {name: _tensors(name, pinned.get(name, part)) for name, part in parts(batch, names).items()}


def pinned(batch: CachedBatch) -> CachedBatch:
    """Do what `CachedBatch.pin_memory` says."""
    memory = {name: converted(part, _Pinned) for name, part in parts(batch, None).items()}
    copy = object.__new__(type(batch))
    fields = {name: _value(batch[name], memory[name]) for name in memory if name not in batch._columns.metadata}  # noqa: SLF001
    if batch._columns.fields is None:  # noqa: SLF001
        fields = fields.get("data", batch.data)
    copy.__dict__.update(batch.__dict__, data=fields, _pinned=memory)
    return copy


class _Pinned:
    """An array in pinned memory: as PyTorch's allocator knows it, which must see when a transfer of it has ended."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.memory = _bytes(array).pin_memory()
        self.array = self.memory.numpy().view(array.dtype).reshape(array.shape)


def _value(value: Any, memory: Any) -> Any:
    """Return a value of a batch over other memory."""
    if not isinstance(memory, RaggedParts):
        return memory.array
    values, offsets, shapes = (part.array for part in memory)
    return Payloads(values, offsets) if isinstance(value, Payloads) else Ragged(values, offsets, shapes)


def _tensors(name: str, part: Any) -> Any:
    return converted(part, lambda array: _tensor(name, array))


def _tensor(name: str, array: NDArray[Any] | _Pinned) -> torch.Tensor:
    """Return a tensor over the memory of an array; by way of its bytes, since PyTorch has types that NumPy has not."""
    memory = array.memory if isinstance(array, _Pinned) else _bytes(array)
    array = array.array if isinstance(array, _Pinned) else array
    dtype = getattr(torch, array.dtype.name, None)
    if not isinstance(dtype, torch.dtype):
        raise ConfigError(
            f"names: PyTorch has no tensors of {array.dtype}, of which field {name!r} is; leave it out, or view "
            f"batch[{name!r}] as another type",
            option="names",
            expected="fields of a type that PyTorch has",
            found=f"{name!r} of {array.dtype}",
        )
    return memory.view(dtype).reshape(array.shape)


def _bytes(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(array.reshape(-1).view(np.uint8))
