"""What an epoch draws: each another, by weight, and the same whoever reads it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest

from dataset_rt import CachedDataset
from tests.support import numbered, open_in_order, reader, write


def names(dataset):
    return [sample.sample_id for sample in dataset]


def test_epochs_advance_with_each_iterator_and_set_epoch_chooses_one(cache):
    dataset = CachedDataset([cache], reader_config=reader())
    epochs = [names(dataset) for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    dataset.set_epoch(1)
    assert [names(dataset), names(dataset)] == epochs[1:]
    again = CachedDataset([cache], reader_config=reader())
    assert [names(again) for _ in range(3)] == epochs
    assert names(CachedDataset([cache], reader_config=reader(seed=8))) != epochs[0]


@pytest.mark.parametrize("epoch", [-1, 2**32, "0", 1.5], ids=repr)
def test_an_epoch_that_does_not_exist_is_refused(cache, epoch):
    dataset = CachedDataset([cache], reader_config=reader())
    with pytest.raises((ValueError, TypeError, OverflowError)):
        dataset.set_epoch(epoch)
    assert len(names(dataset)) == 300


def test_draws_are_with_replacement_or_a_permutation_or_in_table_order(cache):
    drawn = names(CachedDataset([cache], reader_config=reader()))
    assert len(drawn) == 300
    assert 100 < len(set(drawn)) < 300
    shuffled = names(CachedDataset([cache], reader_config=reader(replacement=False)))
    assert sorted(shuffled) == list(range(300)) != shuffled
    assert names(open_in_order(cache)) == list(range(300))


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 1},
        {"num_workers": 13},
        {"prefetch_size": 1},
        {"prefetch_size": 1, "num_workers": 9},
        {"prefetch_size": 1000},
        {"io": "pread"},
        {"io": "pread", "num_workers": 2, "prefetch_size": 5},
        {"verify": "never"},
        {"validate_cache": True},
    ],
    ids=str,
)
def test_the_order_does_not_depend_on_how_it_is_read(cache, options):
    expected = CachedDataset([cache], reader_config=reader())
    found = CachedDataset([cache], reader_config=reader(**options))
    for _ in range(3):
        assert list(found) == list(expected)


def is_plausible(observed: np.ndarray, expected: np.ndarray) -> bool:
    """Chi-square within four standard deviations on both sides, by the approximation of Wilson and Hilferty."""
    freedom = len(observed) - 1
    statistic = float(((observed - expected) ** 2 / expected).sum())
    center, spread = 1 - 2 / (9 * freedom), (2 / (9 * freedom)) ** 0.5
    return abs((statistic / freedom) ** (1 / 3) - center) < 4 * spread


@pytest.mark.parametrize("weights", ["equal", "linear", "steep"])
def test_samples_come_as_often_as_their_weights_say(tmp_path, weights):
    count, epochs = 50, 400
    dataset = CachedDataset([write(tmp_path, numbered(count))], reader_config=reader(seed=11))
    row = np.arange(count)
    weight = {"equal": np.ones(count), "linear": row + 1.0, "steep": 1.1**row}[weights]
    dataset.set_samples_metadata(dataset.samples_metadata().with_columns(weight=pl.Series(weight)))
    drawn = Counter(name for _ in range(epochs) for name in names(dataset))
    observed = np.array([drawn[name] for name in range(count)])
    assert observed.sum() == count * epochs
    assert is_plausible(observed, weight / weight.sum() * count * epochs)
    if weights != "equal":
        assert not is_plausible(observed, np.full(count, float(epochs)))


def test_new_weights_count_from_the_next_iterator(tmp_path):
    dataset = CachedDataset([write(tmp_path, numbered(200))], reader_config=reader(prefetch_size=1))
    running = iter(dataset)
    expected = names(CachedDataset(dataset.cache_paths, reader_config=reader()))
    table = dataset.samples_metadata()
    dataset.set_samples_metadata(table.with_columns(weight=pl.when(pl.col("n") == 3).then(1e9).otherwise(1e-9)))
    assert names(running) == expected
    assert set(names(dataset)) == {3}
