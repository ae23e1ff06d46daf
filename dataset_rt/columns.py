"""The fields of typed payloads: their NumPy types, and which of them a batch has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from dataset_rt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PayloadField", "numpy_dtype"]

_OPAQUE = "bytes"


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy type that a manifest calls `name`; opaque bytes are `uint8`.

    Raises:
        ModuleNotFoundError: The type is one of `ml_dtypes`, which is not installed.
    """
    if name == _OPAQUE:
        return np.dtype(np.uint8)
    if name == "bfloat16" or name.startswith("float8_"):
        try:
            ml_dtypes = import_module("ml_dtypes")
        except ModuleNotFoundError as error:
            message = f"payload fields of {name} need the package ml_dtypes; install it with: pip install ml-dtypes"
            raise ModuleNotFoundError(message, name="ml_dtypes") from error
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


@dataclass(frozen=True, slots=True)
class PayloadField:
    """One named field of a typed payload."""

    name: str
    """Key in the mapping that the source gave."""

    dtype: str
    """NumPy or `ml_dtypes` name of the elements' type, or `"bytes"` for opaque bytes."""

    shape: tuple[int | None, ...]
    """Extent of each axis of one sample; `None` where samples differ."""

    @property
    def is_dense(self) -> bool:
        """Whether every sample has the same shape, so that a batch is one array."""
        return None not in self.shape

    @property
    def extents(self) -> list[int]:
        """The extents of the axes that are the same in every sample."""
        return [extent for extent in self.shape if extent is not None]

    @property
    def is_opaque(self) -> bool:
        """Whether the field holds opaque bytes."""
        return self.dtype == _OPAQUE

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy type of the elements."""
        return numpy_dtype(self.dtype)


@dataclass(frozen=True)
class Columns:
    """What a batch holds: fields of a typed payload or the plain payload, and metadata columns."""

    fields: tuple[PayloadField, ...] | None
    """The fields of a typed payload that a batch has; `None` where payloads are plain bytes."""

    metadata: tuple[str, ...]
    """The metadata columns of a batch."""

    native: list[str] | None = None
    """The fields that Rust reads, of which a plain payload is one without a name; `None` for all of them."""

    @cached_property
    def dense(self) -> tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...] | None:
        """Name, NumPy type and extents of each field, if all of them are of fixed shape; otherwise `None`."""
        fields = self.fields
        if fields is None or not all(field.is_dense and not field.is_opaque for field in fields):
            return None
        return tuple((field.name, field.numpy_dtype, tuple(field.extents)) for field in fields)

    @property
    def names(self) -> list[str]:
        """The names of all columns; a plain payload is called `data`."""
        payload = ["data"] if self.native is None else ["data"] * len(self.native)
        if self.fields is not None:
            payload = [field.name for field in self.fields]
        return [*payload, *(name for name in self.metadata if name not in payload)]

    def select(self, names: Sequence[str]) -> Columns:
        """Return only the columns called `names`.

        Raises:
            ConfigError: There is no column of a name.
        """
        if isinstance(names, str):
            raise TypeError(f"columns must be a list of names, found one name: {names!r}")
        known = self.names
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"columns: there is no payload field or metadata column {name!r}; there are: {', '.join(known)}",
                    option="columns",
                    expected=", ".join(known),
                    found=repr(name),
                )
        metadata = tuple(name for name in self.metadata if name in names)
        if self.fields is None:
            return Columns(None, metadata, [""] if "data" in names else [])
        fields = tuple(field for field in self.fields if field.name in names)
        return Columns(fields, metadata, [field.name for field in fields])
