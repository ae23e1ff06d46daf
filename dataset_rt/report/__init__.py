"""A page about caches for people: one HTML file that needs no network and no script.

Example:
    >>> from dataset_rt.report import html_report
    >>> html_report([cache]).startswith("<!doctype html>")
    True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import polars as pl

__all__ = ["html_report"]


def html_report(
    paths: Sequence[str | Path],
    *,
    title: str | None = None,
    weights: pl.DataFrame | None = None,
    balance: str | None = None,
    previews: int = 24,
    seed: int = 0,
    check: bool = True,
    waiting: Callable[[str], object] = lambda _: None,
) -> str:
    """Return an overview of caches as one HTML page.

    It has sizes, the distribution of sample sizes and of each metadata column, the balance of a column, previews of
    some samples, and the outcome of a check. Everything but the previews comes from manifests, metadata and index;
    columns are never turned into Python objects.

    Args:
        paths: Caches, or folders of caches; they need equal columns, as in a `CachedDataset`.
        title: Title of the page; by default the names of the caches.
        weights: A frame with `cache_id`, `sample_id` and `weight` for every sample, for the balance after weighting.
        balance: Column whose balance is shown. Without `weights` it is weighted so that its values are equally likely.
            By default a column that looks like a label is chosen, and not weighted.
        previews: Samples to show.
        seed: Which samples these are.
        check: Whether the caches are verified without reading payloads, and their dead bytes counted.
        waiting: Called with what is done next.

    Returns:
        The page; all text from data is escaped.

    Raises:
        InvalidCacheError: A cache is missing, damaged or does not go with the first.
        WeightsError: `weights` are not those of these samples.
        ConfigError: There is no column `balance`.
    """
    from dataset_rt.report.facts import collect
    from dataset_rt.report.page import page

    given = [f"{path}" for path in paths]
    facts = collect(given, weights=weights, balance=balance, previews=previews, seed=seed, check=check, waiting=waiting)
    return page(facts, title)
