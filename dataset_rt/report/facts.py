"""What the page says, gathered: from manifests, index, metadata, a fast check, and a few samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dataset_rt.config import ReaderConfig
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import ConfigError
from dataset_rt.inspection.caches import caches_at, record_lengths, summary
from dataset_rt.report.distributions import Distribution, Histogram, distribution, histogram
from dataset_rt.report.previews import Preview, previewed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["Balance", "Facts", "Health", "Share", "Sizes", "collect"]

_LABELS = ("label", "class", "target", "category", "kind", "y", "split")
"""Names of columns that are worth a look at their balance, the likeliest first."""

_FINDINGS = 20
"""Findings of a cache that are listed."""

_CLASSES = 40
"""Most values of a column whose balance is shown."""


@dataclass(frozen=True)
class Sizes:
    """Stored bytes of a sample."""

    quantiles: dict[str, int]
    histogram: Histogram | None


@dataclass(frozen=True)
class Share:
    """One value of a column: its part of the samples, and of the draws."""

    value: Any
    samples: int
    stored: float
    drawn: float


@dataclass(frozen=True)
class Balance:
    """How the values of a column share the samples, and the draws."""

    column: str
    shares: list[Share]
    values: int
    is_weighted: bool
    effective: float
    """Samples of equal weight that would vary as much as these (Kish)."""


@dataclass(frozen=True)
class Health:
    """What a fast check of one cache found."""

    path: str
    finding_count: int
    findings: list[str]
    deleted: int
    reclaimable_bytes: int
    error: str | None = None


@dataclass(frozen=True)
class Facts:
    """Everything that is on the page."""

    caches: list[dict[str, Any]]
    samples: int
    sizes: Sizes | None
    columns: list[Distribution]
    balance: Balance | None
    previews: list[Preview]
    health: list[Health] = field(default_factory=list)


def collect(
    paths: Sequence[str],
    *,
    weights: pl.DataFrame | None,
    balance: str | None,
    previews: int,
    seed: int,
    check: bool,
    waiting: Callable[[str], object],
) -> Facts:
    """Return what there is to say about caches; the arguments are those of `html_report`."""
    waiting("opening")
    named = caches_at(paths)
    dataset = CachedDataset(named, reader_config=ReaderConfig(seed=seed, shuffle=False, populate_bytes=0))
    if weights is not None:
        dataset.set_samples_metadata(weights)
    waiting("reading metadata")
    table = dataset.samples_metadata()
    names = [name for name in table.columns if name not in ("cache_id", "sample_id", "weight")]
    if balance is not None and balance not in names:
        raise ConfigError(
            f"balance: expected one of the columns {', '.join(names)}, found {balance}",
            option="balance",
            expected=", ".join(names),
            found=balance,
        )
    columns = [distribution(table.get_column(name)) for name in names]
    waiting("reading the index")
    lengths = _lengths(named, table)
    waiting("reading samples")
    shown = previewed(dataset, table, lengths, previews, seed)
    health = []
    for path in named if check else []:
        waiting(f"checking {path}")
        health.append(_health(path))
    return Facts(
        caches=[summary(path) for path in named],
        samples=len(dataset),
        sizes=_sizes(lengths),
        columns=columns,
        balance=_balance(table, balance, columns, is_given=weights is not None),
        previews=shown,
        health=health,
    )


def _lengths(paths: Sequence[str], table: pl.DataFrame) -> NDArray[np.uint64]:
    """Return the stored bytes of each row."""
    cache_ids, sample_ids = (table.get_column(name).to_numpy() for name in ("cache_id", "sample_id"))
    # Rows are in cache order, so those of one cache lie together.
    bounds = np.searchsorted(cache_ids, np.arange(len(paths) + 1))
    parts = [
        record_lengths(path)[sample_ids[bounds[number] : bounds[number + 1]].astype(np.intp)]
        for number, path in enumerate(paths)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _sizes(lengths: NDArray[np.uint64]) -> Sizes | None:
    if len(lengths) == 0:
        return None
    points = {"min": 0, "5 %": 5, "median": 50, "95 %": 95, "max": 100}
    found = np.percentile(lengths, list(points.values()), method="nearest")
    return Sizes(dict(zip(points, map(int, found), strict=True)), histogram(lengths))


def _balance(
    table: pl.DataFrame, wanted: str | None, columns: Sequence[Distribution], *, is_given: bool
) -> Balance | None:
    column = wanted or _likely(columns)
    if column is None or table.is_empty():
        return None
    weight = pl.col("weight") if is_given or wanted is None else 1.0 / pl.len().over(column).cast(pl.Float64)
    rows = table.select(value=column, weight=weight)
    grouped = rows.group_by("value").agg(samples=pl.len(), weight=pl.col("weight").sum()).sort("samples", "value")
    total = float(grouped["weight"].sum())
    shown = grouped.reverse().head(_CLASSES)
    shares = [Share(value, samples, samples / table.height, part / total) for value, samples, part in shown.iter_rows()]
    squares = float((rows["weight"] * rows["weight"]).sum())
    is_weighted = is_given or wanted is not None
    return Balance(column, shares, grouped.height, is_weighted, total * total / squares)


def _likely(columns: Sequence[Distribution]) -> str | None:
    """Return the name of a column that looks like a label."""
    few = {one.name for one in columns if one.top and one.distinct is not None and 1 < one.distinct <= _CLASSES}
    return next((name for name in _LABELS if name in few), None)


def _health(path: str) -> Health:
    from dataset_rt.cache import cache_stats, verify_cache
    from dataset_rt.errors import DatasetRTError

    try:
        report, stats = verify_cache(path, full=False), cache_stats(path)
    except DatasetRTError as error:
        return Health(path, 0, [], 0, 0, str(error))
    messages = [finding.message for finding in report.findings[:_FINDINGS]]
    return Health(path, report.finding_count, messages, stats.deleted, stats.reclaimable_bytes)
