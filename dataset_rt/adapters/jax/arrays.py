"""Arrays of JAX that share memory with a batch where JAX can."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dataset_rt.adapters.parts import converted, parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dataset_rt.batch import CachedBatch


def to_jax(batch: CachedBatch, names: Sequence[str] | None) -> dict[str, Any]:
    """Do what `CachedBatch.to_jax` says."""
    found = parts(batch, names)
    local = [converted(part, partial(narrowed, name=name)) for name, part in found.items()]
    # All in one call, which costs more than what it does.
    return dict(zip(found, jax.device_put(local, may_alias=True), strict=True))


def narrowed(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return `array` in the type that JAX gives it, as JAX would, but never with another integer.

    Raises:
        OverflowError: An integer does not fit.
    """
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if dtype == array.dtype:
        return array
    narrow = array.astype(dtype)
    if np.issubdtype(dtype, np.integer) and not np.array_equal(narrow, array):
        place = tuple(np.argwhere(narrow != array)[0].tolist())
        raise OverflowError(
            f"{name!r} at {place}: {array[place]} does not fit into {dtype}, which is what JAX makes of {array.dtype} "
            "unless jax_enable_x64 is on; turn it on, or leave the column out with columns= or names="
        )
    return narrow
