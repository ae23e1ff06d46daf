"""What the tests of PyTorch loaders share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader

from dataset_rt.adapters import torch as adapter
from tests.order_support import batch_ids, ids

if TYPE_CHECKING:
    from dataset_rt import CachedDataset

QUIET = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning"),
]
"""Marks of tests that start workers: what PyTorch and Python say about it."""

KINDS = ["samples", "batches", "rows", "gathered"]
BATCH = 4


def whole(items):
    """Keep items as they are: module level, so that it can be sent to a process."""
    return items


def loader(
    kind: str,
    dataset: CachedDataset,
    *,
    workers: int = 0,
    size: int = BATCH,
    cls: Any = DataLoader,
    remainder: Any = "keep",
    **options: Any,
):
    """Return a loader over a dataset in one of the ways of `KINDS`; its items are lists of samples or batches."""
    options = {"num_workers": workers, "collate_fn": whole, **options}
    if kind == "samples":
        return cls(adapter.iterable_dataset(dataset, remainder=remainder), batch_size=size, **options)
    if kind == "batches":
        return cls(adapter.batch_dataset(dataset, size, remainder=remainder), batch_size=None, **options)
    sampler = adapter.batch_sampler(dataset, size, remainder=remainder)
    if kind == "gathered":
        options.pop("collate_fn")
        return cls(adapter.map_dataset(dataset), sampler=sampler, batch_size=None, **options)
    return cls(adapter.map_dataset(dataset), batch_sampler=sampler, **options)


def who(items):
    """Return who the items of a loader are, checking their bytes."""
    return [row for item in items for row in (ids(item) if isinstance(item, list) else batch_ids(item))]


def sizes(items):
    return [len(item) for item in items]
