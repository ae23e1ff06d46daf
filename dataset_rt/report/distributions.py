"""How the values of a column are distributed: histograms, most frequent values, nulls. All of it by columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Category", "Distribution", "Histogram", "distribution", "histogram"]

_BINS = 32
_CATEGORIES = 12
"""Most frequent values that are shown of a column."""

_FEW = 24
"""An integer column with no more different values is shown by value."""

_MANY = 100_000
"""A text column with more different values, by estimate, is not counted value by value."""


@dataclass(frozen=True)
class Histogram:
    """Counts in bins that join each other."""

    edges: list[float]
    counts: list[int]
    is_log: bool = False
    """Whether each bin is wider than the one before it by the same factor."""


@dataclass(frozen=True)
class Category:
    """A value and how often it comes."""

    value: Any
    count: int


@dataclass(frozen=True)
class Distribution:
    """One metadata column."""

    name: str
    kind: str
    rows: int
    nulls: int
    distinct: int | None = None
    """Different values; an estimate where `is_estimate`."""

    is_estimate: bool = False
    numbers: dict[str, float] = field(default_factory=dict)
    """`min`, `median`, `mean`, `max`, `nan` and `infinite` of a column of numbers."""

    histogram: Histogram | None = None
    top: list[Category] = field(default_factory=list)
    others: int = 0
    """Rows with none of the values in `top`."""


def histogram(values: NDArray[Any], bins: int = _BINS) -> Histogram | None:
    """Return counts of finite numbers; bins grow by a factor where the numbers span several orders of magnitude."""
    if len(values) == 0:
        return None
    low, high = float(values.min()), float(values.max())
    if low == high:
        return Histogram([low, high], [len(values)])
    middle = float(np.median(values))
    # Where most values would share a bin or two, orders of magnitude tell more.
    is_log = low > 0 and high / low >= 100 and (middle - low) / (high - low) < 0.1
    if is_log:
        edges = np.geomspace(low, high, bins + 1)
    else:
        if values.dtype.kind in "iu":
            bins = min(bins, round(high - low) + 1)
        edges = low + (high / bins - low / bins) * np.arange(bins + 1)
    edges[0], edges[-1] = low, high
    counts = np.histogram(values, edges)[0]
    return Histogram(edges.tolist(), counts.tolist(), is_log)


def distribution(column: pl.Series) -> Distribution:
    """Return how the values of a metadata column are distributed."""
    rows, nulls = len(column), column.null_count()
    if column.dtype == pl.Boolean:
        return _by_value(column, "bool", rows, nulls)
    if column.dtype.is_integer():
        distinct = _distinct(column)
        if distinct <= _FEW:
            return _by_value(column, "int", rows, nulls)
        return _by_number(column, "int", rows, nulls, distinct)
    if column.dtype.is_float():
        return _by_number(column, "float", rows, nulls, None)
    return _by_text(column, rows, nulls)


def _by_value(column: pl.Series, kind: str, rows: int, nulls: int) -> Distribution:
    counts = column.drop_nulls().value_counts(sort=True, name="__count__")
    # Numbers in their own order are easier to compare than by frequency.
    shown = counts.sort(counts.columns[0]) if counts.height <= _FEW else counts.head(_CATEGORIES)
    top = _categories(shown)
    others = rows - nulls - sum(one.count for one in top)
    return Distribution(column.name, kind, rows, nulls, counts.height, top=top, others=others)


def _by_number(column: pl.Series, kind: str, rows: int, nulls: int, distinct: int | None) -> Distribution:
    present = column.drop_nulls()
    finite = present.filter(present.is_finite()) if kind == "float" else present
    values = finite.to_numpy()
    numbers: dict[str, float] = {}
    if len(values):
        numbers = {
            "min": values.min().item(),
            "median": float(np.median(values)),
            "mean": float(values.mean(dtype=np.float64)),
            "max": values.max().item(),
        }
    if kind == "float":
        numbers["nan"] = int(present.is_nan().sum())
        numbers["infinite"] = len(present) - len(finite) - numbers["nan"]
    return Distribution(
        column.name, kind, rows, nulls, distinct, distinct is not None, numbers, histogram(_binnable(values))
    )


def _binnable(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers whose differences can be formed: the extremes of a float span more than a float holds."""
    with np.errstate(over="ignore"):
        if len(values) and not math.isfinite(float(values.max()) - float(values.min())):
            return values / 4
    return values


def _by_text(column: pl.Series, rows: int, nulls: int) -> Distribution:
    present = column.drop_nulls()
    distinct = _distinct(present)
    if distinct > _MANY:
        return Distribution(column.name, "string", rows, nulls, distinct, is_estimate=True)
    counts = present.value_counts(sort=True, name="__count__")
    top = _categories(counts.head(_CATEGORIES))
    others = rows - nulls - sum(one.count for one in top)
    return Distribution(column.name, "string", rows, nulls, counts.height, top=top, others=others)


def _distinct(column: pl.Series) -> int:
    found = column.approx_n_unique()
    return found if isinstance(found, int) else 0


def _categories(counts: pl.DataFrame) -> list[Category]:
    return [Category(value, int(number)) for value, number in counts.iter_rows()]
