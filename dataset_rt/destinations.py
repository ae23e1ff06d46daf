"""Memory of the caller's that a gather writes to."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dataset_rt.columns import PayloadField
from dataset_rt.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dataset_rt.columns import Columns

__all__ = ["as_bytes", "destinations"]

_PLAIN = PayloadField("data", "bytes", (None,))
"""A plain payload as a field."""


def destinations(out: Any, columns: Columns, rows: int) -> list[NDArray[Any]]:
    """Return the memory of `out` as arrays, one per payload column, in the order that Rust fills them.

    Raises:
        ConfigError: A column has no destination, one too many, or one of another shape or type.
    """
    fields = columns.fields
    if isinstance(out, np.ndarray) and fields is not None and len(fields) == 1:
        return [_fitting(out, fields[0], rows)]
    if fields is None:
        out = out["data"] if isinstance(out, Mapping) and set(out) == {"data"} else out
        return [_fitting(out, _PLAIN, rows)]
    names = [field.name for field in fields]
    if not isinstance(out, Mapping):
        if len(names) != 1:
            raise _refusal("out", f"a mapping with {', '.join(names)}", type(out).__name__)
        out = {names[0]: out}
    if set(out) != set(names):
        raise _refusal("out", f"the fields {', '.join(names)}", ", ".join(map(str, out)) or "none")
    return [_fitting(out[field.name], field, rows) for field in fields]


def _fitting(out: Any, field: PayloadField, rows: int) -> NDArray[Any]:
    dtype = field.numpy_dtype
    array = out if isinstance(out, np.ndarray) else _array(out, _name(field), dtype)
    fits = array.shape == (rows, *field.shape) if field.is_dense else array.ndim == 1
    if not fits or array.dtype != dtype:
        expected = f"{dtype} of shape {(rows, *field.shape)}" if field.is_dense else f"flat {dtype}"
        raise _refusal(_name(field), expected, f"{array.dtype} of shape {array.shape}")
    flags = array.flags
    if not flags.c_contiguous:
        raise _refusal(_name(field), "an array in C order", "one with gaps or in another order")
    if not flags.writeable:
        raise _refusal(_name(field), "a writable array", "a read-only one")
    return array


def _name(field: PayloadField) -> str:
    return f"out[{field.name!r}]"


def _array(out: Any, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the memory of `out` as an array that shares it."""
    if isinstance(out, np.ndarray):
        return out
    if type(out).__module__.partition(".")[0] == "torch":
        return _tensor(out, name, dtype)
    try:
        return np.asarray(memoryview(out))
    except TypeError:
        pass
    try:
        return np.from_dlpack(out)
    except (AttributeError, TypeError, BufferError, RuntimeError) as error:
        found = f"{type(out).__name__} ({error})"
        raise _refusal(name, "writable memory of the CPU, by the buffer protocol or DLPack", found) from error


def _tensor(tensor: Any, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the memory of a PyTorch tensor as an array; of a type that NumPy does not know, by way of its bytes."""
    if tensor.device.type != "cpu":
        raise _refusal(name, "a tensor on the CPU", f"one on {tensor.device}")
    flat = tensor.detach()
    found = str(tensor.dtype).removeprefix("torch.")
    try:
        if dtype.isbuiltin == 1 or found != dtype.name:
            return flat.numpy()
        return flat.view(getattr(sys.modules["torch"], f"uint{8 * dtype.itemsize}")).numpy().view(dtype)
    except (TypeError, RuntimeError) as error:
        raise _refusal(name, str(dtype), f"a tensor of {found} ({error})") from error


def _refusal(name: str, expected: str, found: str) -> ConfigError:
    message = f"{name}: expected {expected}, found {found}"
    return ConfigError(message, option=name, expected=expected, found=found)


def as_bytes(array: NDArray[Any]) -> NDArray[Any]:
    """Return the memory of a contiguous array: itself where its type is one that buffers know, otherwise as bytes."""
    return array if array.dtype.isbuiltin == 1 else array.reshape(-1).view(np.uint8)
