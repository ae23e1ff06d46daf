"""PyTorch: loaders with any number of workers deliver the global order, epoch after epoch, and count right."""

from __future__ import annotations

import itertools

import polars as pl
import pytest

from dataset_rt.adapters import torch as adapter
from tests.order_support import MODES, ids, opened, order, payload

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DataLoader  # noqa: E402 (after the check)

from tests.adapters.torch_support import BATCH, KINDS, QUIET, loader, sizes, who  # noqa: E402

pytestmark = QUIET


@pytest.mark.parametrize("mode", ["physical", "quota", "weighted"])
@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_workers_delivers_the_global_order_epoch_after_epoch(cache, kind, workers, mode):
    loaded = loader(kind, opened(cache, **MODES[mode]), workers=workers)
    expected = opened(cache, **MODES[mode])
    for epoch in range(3):
        items = list(loaded)
        assert who(items) == order(expected, epoch)
        assert sizes(items) == [4] * 12 + [2]
        assert len(loaded) == 13


@pytest.mark.parametrize(
    ("rows", "size", "workers"), [(48, 4, 4), (50, 7, 3), (0, 3, 2), (1, 3, 2), (2, 1, 4), (9, 50, 2), (13, 3, 4)]
)
@pytest.mark.parametrize("drop", [False, True])
def test_length_is_exact_and_at_most_the_last_batch_is_short(cache, rows, size, workers, drop):
    for kind in KINDS:
        options = {"drop_last": True} if kind == "samples" and drop else {}
        remainder = "drop" if drop and kind != "samples" else "keep"
        dataset = opened(cache, rows, num_workers=1)
        loaded = loader(kind, dataset, workers=workers, size=size, remainder=remainder, **options)
        items = list(loaded)
        count = rows // size if drop else -(-rows // size)
        assert len(items) == len(loaded) == count
        assert set(sizes(items)[:-1]) <= {size}
        assert who(items) == order(opened(cache, rows))[: count * size]


def test_single_samples_keep_the_order_over_workers(cache):
    loaded = DataLoader(opened(cache).to_torch_iterable_dataset(), batch_size=None, num_workers=3)
    assert ids(loaded) == order(opened(cache))
    assert len(loaded) == 50


def test_the_default_collation_makes_tensors_of_the_metadata(cache):
    loaded = DataLoader(opened(cache).to_torch_iterable_dataset(), batch_size=10, num_workers=2)
    batch = next(iter(loaded))
    expected = [sample for _, sample in order(opened(cache), 0, 0, 10)]
    assert batch.metadata["n"].tolist() == batch.sample_id.tolist() == expected
    assert list(batch.data) == [payload(n) for n in expected]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("samples", {"persistent_workers": True}),
        ("batches", {"persistent_workers": True}),
        ("samples", {"multiprocessing_context": "spawn"}),
        ("batches", {"multiprocessing_context": "forkserver"}),
    ],
    ids=str,
)
def test_reused_and_spawned_workers_move_on_too(cache, kind, options):
    view = opened(cache, num_workers=1).filter(pl.col("n") > 30)
    loaded = loader(kind, view, workers=2, size=3, **options)
    assert [who(loaded) for _ in range(2)] == [order(view, epoch) for epoch in range(2)]


def test_a_new_loader_for_every_epoch_moves_on(cache):
    dataset = opened(cache)
    seen = [who(loader(kind, dataset, workers=workers)) for kind, workers in [("samples", 2), ("batches", 2)] * 2]
    seen += [who(loader("batches", dataset)), ids(dataset), who(loader("samples", dataset, workers=1))]
    assert seen == [order(opened(cache), epoch) for epoch in range(7)]


def test_equal_seeds_of_the_loader_do_not_repeat_an_epoch(cache):
    dataset, seen = opened(cache), []
    for _ in range(3):
        torch.manual_seed(0)
        seen.append(who(loader("batches", dataset, workers=2)))
    assert seen == [order(dataset, epoch) for epoch in range(3)]


def test_a_pass_left_early_is_followed_by_the_next_epoch(cache):
    loaded = loader("samples", opened(cache), workers=3)
    starts = []
    for _ in range(3):
        iterator = iter(loaded)
        starts.append(who([next(iterator)]))
        del iterator
    assert starts == [order(opened(cache), epoch, 0, BATCH) for epoch in range(3)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_choice_of_the_epoch_or_a_loaded_token_counts_for_workers(cache, kind, workers):
    dataset = opened(cache)
    loaded = loader(kind, dataset, workers=workers)
    first = who(loaded)
    dataset.set_epoch(0)
    assert who(loaded) == first
    dataset.load_state_dict({**dataset.state_dict(), "epoch": 5, "position": 9})
    assert who(loaded) == order(dataset, 5, 9)
    assert who(loaded) == order(dataset, 6)


def test_edited_weights_count_from_the_next_pass_on(cache):
    dataset = opened(cache)
    loaded = loader("batches", dataset, workers=2)
    who(loaded)
    dataset.set_samples_metadata(
        dataset.samples_metadata().with_columns(weight=pl.when(pl.col("n") == 3).then(1e9).otherwise(1e-9))
    )
    assert set(who(loaded)) == {(0, 3)}
    assert next(iter(loader("batches", dataset, workers=0))).epoch == 2


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_with_workers_make_equal_steps_and_join_to_the_order(cache, world, workers):
    for kind in ("batches", "rows"):
        ranks = [
            list(loader(kind, opened(cache, rank=rank, world_size=world, num_workers=1), workers=workers))
            for rank in range(world)
        ]
        assert who(item for step in zip(*ranks, strict=True) for item in step) == order(opened(cache))


def test_samples_of_ranks_are_as_many_as_the_length_says(cache):
    expected = order(opened(cache))
    for rank, count in enumerate([17, 17, 16]):
        dataset = opened(cache, rank=rank, world_size=3)
        with pytest.warns(UserWarning, match="some ranks get 16 and others one more"):
            samples = adapter.iterable_dataset(dataset)
        assert len(samples) == count
        assert ids(samples) == expected[rank::3]
        for remainder, length in (("drop", 16), ("pad", 17)):
            dataset = opened(cache, rank=rank, world_size=3)
            samples = adapter.iterable_dataset(dataset, remainder=remainder)
            wrapped = (expected + expected)[rank : rank + 3 * length : 3]
            assert len(samples) == length
            assert ids(samples) == wrapped
            later = order(dataset, 1) * 2
            assert ids(DataLoader(samples, batch_size=None, num_workers=2)) == later[rank : rank + 3 * length : 3]


@pytest.mark.filterwarnings("ignore:no batch of")
@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
def test_the_batch_sampler_gives_the_rows_of_batches(cache, remainder):
    for rows, world, size in itertools.product([0, 1, 5, 23, 24], [1, 2, 5], [1, 3]):
        for rank in range(world):
            dataset = opened(cache, rows, rank=rank, world_size=world)
            sampler = adapter.batch_sampler(dataset, size, remainder=remainder)
            batches = opened(cache, rows, rank=rank, world_size=world).batches(size, remainder=remainder)
            expected = [batch.sample_id.tolist() for batch in batches]
            assert len(sampler) == len(expected)
            assert list(sampler) == expected
