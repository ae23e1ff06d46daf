"""Payload fields on their way in: what a source declares, and values as dtype name, shape and bytes.

The native half takes NumPy arrays in the byte order and layout of a cache without calling here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RefusedError", "declared", "dtype_of", "laid_out"]

_BYTES = "bytes"
_KIND_ORDER = "biufc"
"""Kinds of dtypes of which a later one takes Python numbers of an earlier one, but no number a bool."""

_REFUSED = {
    "O": "an object dtype; give every sample an array of numbers",
    "S": "a byte string dtype; give bytes for a field of bytes",
    "U": "a str dtype; encode text to bytes",
    "T": "a str dtype; encode text to bytes",
    "M": "a dtype of dates; view it as int64 and keep the unit in the metadata",
    "m": "a dtype of time differences; view it as int64 and keep the unit in the metadata",
}


class RefusedError(ValueError):
    """A value that no field takes, or a declaration that is none; the text says what was found, and what to do."""


def declared(field: Any) -> tuple[str, tuple[int | None, ...]]:
    """Read one declaration of a `payload_schema`: `bytes`, a dtype, or a pair of dtype and shape."""
    dtype, shape = field if isinstance(field, tuple) and len(field) == 2 else (field, None)
    name = dtype if isinstance(dtype, str) else _BYTES if dtype is bytes else dtype_of(_dtype(dtype))
    if name == _BYTES:
        return name, (None,) if shape is None else _axes(shape)
    if isinstance(dtype, str):
        # A name of ml_dtypes needs no import of it.
        name = name if _is_extension(name) else dtype_of(_dtype(name))
    return name, () if shape is None else _axes(shape)


def dtype_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype that can be stored, whatever its byte order.

    Raises:
        RefusedError: Elements of it are not plain numbers.
    """
    if dtype.names is not None or dtype.subdtype is not None:
        raise RefusedError(f"the structured dtype {dtype}; give every member as a field of its own")
    if dtype.kind in _REFUSED:
        raise RefusedError(f"dtype {dtype}, {_REFUSED[dtype.kind]}")
    if dtype.kind == "V" and not _is_extension(dtype.name):
        raise RefusedError(f"dtype {dtype}; view it as uint8")
    if dtype.kind in "fc" and dtype.char in "gG":
        raise RefusedError(
            f"the longdouble dtype {dtype.name}, which machines differ on; convert it to 64 bits a number"
        )
    return dtype.name


def laid_out(value: Any, expected: str | None) -> tuple[str, tuple[int, ...], np.ndarray[Any, Any]]:
    """Return dtype name, shape, and the elements as flat bytes, little-endian and in C order.

    Args:
        value: An array, anything NumPy makes one of, or Python numbers, also nested in lists.
        expected: The dtype of its field if that is known; Python numbers take it where it is no narrower in kind.

    Raises:
        RefusedError: The value is no array of numbers.
    """
    tensor = _extension_tensor(value)
    if tensor is not None:
        return tensor
    if isinstance(value, str):
        raise RefusedError("str; encode text to bytes")
    if isinstance(value, bytes | bytearray):
        raise RefusedError(type(value).__name__)
    if isinstance(value, np.ma.MaskedArray):
        raise RefusedError("a masked array; fill it, and keep the mask as a field of its own")
    array = _numbers(value, expected) if isinstance(value, int | float | complex | list | tuple) else np.asarray(value)
    name = dtype_of(array.dtype)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return name, array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _numbers(value: Any, expected: str | None) -> np.ndarray[Any, Any]:
    """Return Python numbers as an array: of the expected dtype, if they are of a kind that it takes."""
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise RefusedError(f"{type(value).__name__} that is no array ({error})") from None
    if expected is None or found.dtype.name == expected or isinstance(value, np.generic):
        return found
    try:
        wanted = np.dtype(expected)
    except TypeError:
        return found
    kind = "f" if _is_extension(expected) else wanted.kind
    if found.size > 0:  # an empty list has no kind
        if found.dtype.kind not in _KIND_ORDER or not _takes(kind, found.dtype.kind):
            return found
        if wanted.kind in "iu":
            limits = np.iinfo(wanted)
            if found.min() < limits.min or found.max() > limits.max:
                raise RefusedError(f"{type(value).__name__} with a number beyond {expected}")
    return np.asarray(value, dtype=wanted)


def _takes(kind: str, found: str) -> bool:
    """Whether a field of one kind takes Python numbers of another."""
    if "b" in (kind, found):
        return kind == found
    signed = kind.replace("u", "i"), found.replace("u", "i")
    return _KIND_ORDER.index(signed[0]) >= _KIND_ORDER.index(signed[1])


def _extension_tensor(value: Any) -> tuple[str, tuple[int, ...], np.ndarray[Any, Any]] | None:
    """Return a PyTorch tensor of a dtype that NumPy does not have; `None` for all else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    name = str(value.dtype).removeprefix("torch.")
    if not _is_extension(name):
        return None
    flat = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return name, tuple(value.shape), flat


def _is_extension(name: str) -> bool:
    """Whether a dtype is one that ml_dtypes adds to NumPy; which of them are stored, the native half knows."""
    return name == "bfloat16" or name.startswith("float8_")


def _dtype(dtype: Any) -> np.dtype[Any]:
    try:
        return np.dtype(dtype)
    except TypeError:
        raise RefusedError(f"{dtype!r}, which is no dtype") from None


def _axes(shape: Iterable[Any] | int) -> tuple[int | None, ...]:
    """Return a declared shape as a tuple of its axes."""
    axes = (shape,) if isinstance(shape, int) else tuple(shape)
    for axis in axes:
        if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int | np.integer) or axis < 0):
            raise RefusedError(f"the shape {shape!r}; an axis is a number of elements, or None where samples differ")
    return tuple(None if axis is None else int(axis) for axis in axes)
