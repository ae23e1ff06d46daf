"""What a framework gets of a batch: named arrays that share its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from dataset_rt.errors import ConfigError
from dataset_rt.values import Payloads, Ragged, RaggedParts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dataset_rt.batch import CachedBatch

__all__ = ["converted", "parts"]


def parts(batch: CachedBatch, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the columns called `names` as arrays, or as `RaggedParts` of arrays where values differ in length.

    Without names these are all columns but those of texts or with nulls.

    Raises:
        ConfigError: There is no column of a name, or it is of texts or has nulls.
    """
    known = batch.keys()
    if names is None:
        values = {name: batch[name] for name in known}
        return {name: _part(value) for name, value in values.items() if not isinstance(value, pl.Series)}
    if isinstance(names, str):
        raise TypeError(f"names must be a list of names, found one name: {names!r}")
    for name in names:
        if name not in known:
            raise _refusal(f"there is no payload field or metadata column {name!r}", ", ".join(known), repr(name))
    values = {name: batch[name] for name in names}
    for name, value in values.items():
        if isinstance(value, pl.Series):
            found = f"{value.null_count()} nulls" if value.dtype != pl.String else "texts"
            expected = "numbers or booleans without nulls"
            raise _refusal(f"column {name!r} has no array, make one of batch[{name!r}]", expected, found)
    return {name: _part(value) for name, value in values.items()}


def converted(part: Any, convert: Callable[[Any], Any]) -> Any:
    """Return what `convert` makes of an array, or of each array of `RaggedParts`."""
    return RaggedParts(*map(convert, part)) if isinstance(part, RaggedParts) else convert(part)


def _part(value: Any) -> Any:
    if isinstance(value, Ragged):
        return RaggedParts(value.values, value.offsets, value.shapes)
    if isinstance(value, Payloads):
        return RaggedParts(value.values, value.offsets, (value.offsets[1:] - value.offsets[:-1]).reshape(-1, 1))
    return value


def _refusal(fault: str, expected: str, found: str) -> ConfigError:
    message = f"names: {fault}: expected {expected}, found {found}"
    return ConfigError(message, option="names", expected=expected, found=found)
