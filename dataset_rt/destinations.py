"""Memory of the caller's that a gather writes to."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dataset_rt.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dataset_rt.columns import Columns, PayloadField

__all__ = ["as_bytes", "destinations"]


def destinations(out: Any, columns: Columns, rows: int) -> list[NDArray[Any]]:
    """Return the memory of `out` as arrays, one per payload column, in the order that Rust fills them.

    Raises:
        ConfigError: A column has no destination, one too many, or one of another shape or type.
    """
    if columns.fields is None:
        given = out["data"] if isinstance(out, Mapping) and set(out) == {"data"} else out
        array = _array(given, "out", np.dtype(np.uint8))
        return [_checked(array, "out", array.dtype == np.uint8 and array.ndim == 1, "flat uint8")]
    names = [field.name for field in columns.fields]
    if not isinstance(out, Mapping):
        if len(names) != 1:
            raise _refusal("out", f"a mapping with {', '.join(names)}", type(out).__name__)
        out = {names[0]: out}
    if set(out) != set(names):
        raise _refusal("out", f"the fields {', '.join(names)}", ", ".join(map(str, out)) or "none")
    return [_fitting(out[field.name], field, rows) for field in columns.fields]


def _fitting(out: Any, field: PayloadField, rows: int) -> NDArray[Any]:
    name, dtype = f"out[{field.name!r}]", field.numpy_dtype
    array = _array(out, name, dtype)
    if field.is_dense:
        shape = (rows, *field.shape)
        return _checked(array, name, array.dtype == dtype and array.shape == shape, f"{dtype} of shape {shape}")
    return _checked(array, name, array.dtype == dtype and array.ndim == 1, f"flat {dtype}")


def _checked(array: NDArray[Any], name: str, fits: bool, expected: str) -> NDArray[Any]:
    if not fits:
        raise _refusal(name, expected, f"{array.dtype} of shape {array.shape}")
    if not array.flags.c_contiguous:
        raise _refusal(name, f"{expected} in C order", "one with gaps or in another order")
    if not array.flags.writeable:
        raise _refusal(name, f"{expected}, writable", "a read-only one")
    return array


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


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the memory of a contiguous array, of any type, as bytes."""
    return array.reshape(-1).view(np.uint8)
