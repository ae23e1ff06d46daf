"""PyTorch: loaders with any number of workers deliver the global order, resume exactly, and count right."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from dataset_rt import errors
from dataset_rt.adapters import torch as adapter
from tests.order_support import MODES, batch_ids, ids, opened, order, payload, written

if TYPE_CHECKING:
    from dataset_rt import CachedDataset

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402 (after the check)

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning"),
]

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["samples", "batches", "rows", "gathered"]
BATCH = 4


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return written(tmp_path_factory.mktemp("torch"), 50)


@pytest.fixture(scope="module")
def stateful():
    return pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed").StatefulDataLoader


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
    """Return a loader over a dataset in one of the three ways; its items are lists of samples or batches."""
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


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stateful_loader_resumes_at_every_step(cache, stateful, kind, workers):
    expected = [order(opened(cache, 22), epoch) for epoch in range(2, 5)]
    dataset = opened(cache, 22)
    dataset.set_epoch(2)
    loaded = loader(kind, dataset, workers=workers, cls=stateful)
    states, items = [pickle.dumps(loaded.state_dict())], []
    for item in loaded:
        items.append(item)
        states.append(pickle.dumps(loaded.state_dict()))
    assert who(items) == expected[0]
    for step in (0, 1, 4, 5, 6) if workers else range(7):
        again = loader(kind, opened(cache, 22), workers=workers, cls=stateful)
        again.load_state_dict(pickle.loads(states[step]))
        rest = who(again)
        assert who(items[:step]) + rest == expected[0]
        assert who(again) == expected[1]
    states.append(pickle.dumps(loaded.state_dict()))
    again = loader(kind, opened(cache, 22), workers=workers, cls=stateful)
    again.load_state_dict(pickle.loads(states[-1]))
    assert [who(again), who(again)] == expected[1:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_resumes_twice_in_one_epoch_between_snapshots(cache, stateful, workers):
    state, seen = None, []
    for steps in (3, 2, 4):
        loaded = loader("samples", opened(cache), workers=workers, cls=stateful, snapshot_every_n_steps=3)
        if state is not None:
            loaded.load_state_dict(state)
        seen += who(itertools.islice(loaded, steps))
        state = loaded.state_dict()
        del loaded
    assert seen == order(opened(cache), 0, 0, 9 * BATCH)


@pytest.mark.parametrize("kind", ["samples", "batches"])
def test_a_loader_resumes_with_another_number_of_workers(cache, stateful, kind):
    dataset, seen = opened(cache), []
    for workers in [0, 4, 0, 3]:
        loaded = loader(kind, dataset, workers=workers, cls=stateful, snapshot_every_n_steps=2)
        seen += who(itertools.islice(loaded, 3))
        state = loaded.state_dict()
        del loaded
        dataset = opened(cache)
        adapter.load_loader_state(dataset, state)
    with dataset.batches(7, epochs=2) as batches:
        seen += who(batches)
    assert seen == order(opened(cache), 0) + order(opened(cache), 1)


@pytest.mark.filterwarnings("ignore:.*some ranks get")
@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_state_after_each_step_is_that_of_the_batches(cache, stateful, kind, remainder, workers):
    """Also after the last full step, where `drop` leaves positions out."""
    config = {"rank": 1, "world_size": 3, "num_workers": 1}
    loaded = loader(kind, opened(cache, **config), workers=workers, cls=stateful, remainder=remainder)
    found, batches = [], list(opened(cache, **config).batches(BATCH, remainder=remainder))

    def place(state):
        return state["epoch"], state["position"]

    for _ in itertools.islice(loaded, len(batches) if kind == "samples" else None):
        again = opened(cache, rank=0, world_size=2)
        adapter.load_loader_state(again, loaded.state_dict())
        found.append(place(again.state_dict()))
    if kind == "samples":  # of which a rank gets 16, whatever is done with the last two positions
        assert found[:4] == [(0, 12), (0, 24), (0, 36), (1, 0) if remainder == "drop" else (0, 48)]
    else:
        assert found == [place(batch.state_dict()) for batch in batches]
        assert found[-1] == (1, 0)


def test_a_state_of_other_ranks_is_refused_by_the_loader(cache, stateful):
    state = loader("batches", opened(cache, rank=0, world_size=2), cls=stateful).state_dict()
    with pytest.raises(errors.StateMismatchError, match="world_size was 2 and is 1"):
        next(iter(_loaded(loader("batches", opened(cache), cls=stateful), state)))


@pytest.mark.parametrize("steps", [0, 5, 13])
def test_a_batch_sampler_takes_the_state_of_other_ranks(cache, steps):
    before: Any = iter(adapter.batch_sampler(opened(cache, rank=1, world_size=2), 2))
    for _ in itertools.islice(before, steps):
        pass
    after = opened(cache)
    again: Any = iter(adapter.batch_sampler(after, 5))
    again.load_state_dict(before.state_dict())
    assert [row for rows in again for row in rows] == after.rows(0, min(4 * steps, 50)).tolist()


def test_what_the_dataset_returns_is_a_sized_torch_iterable_dataset(cache):
    assert isinstance(opened(cache).to_torch_iterable_dataset(), adapter.SizedTorchIterableDataset)
    assert isinstance(opened(cache).to_torch_iterable_dataset(), IterableDataset)
    assert not isinstance(iter([]), adapter.SizedTorchIterableDataset)


def test_an_iterator_moves_to_a_loaded_state_and_ends_when_closed(cache):
    for data in (adapter.iterable_dataset(opened(cache)), adapter.batch_dataset(opened(cache), 3)):
        iterator: Any = iter(data)
        items = [next(iterator) for _ in range(5)]
        state = iterator.state_dict()
        assert state["received"] == 5
        rest = list(iterator)
        done = iterator.state_dict()
        assert done["received"] == 5 + len(rest) == len(data)
        iterator.load_state_dict(state)
        assert len(list(iterator)) == len(rest)
        iterator.load_state_dict(done)
        assert list(iterator) == []
        assert data.dataset.state_dict()["epoch"] == 1
        iterator.load_state_dict(state)
        iterator.close()
        assert iterator.state_dict() == state
        assert len(items) == 5


def test_batch_tokens_resume_any_loader_with_any_workers(cache):
    loaded = loader("batches", opened(cache), workers=4)
    iterator = iter(loaded)
    used = [next(iterator) for _ in range(5)]
    del iterator
    dataset = opened(cache)
    dataset.load_state_dict(json.loads(json.dumps(used[3].state_dict())))  # the fifth batch was not used
    assert who(used[:4]) + who(loader("samples", dataset, workers=2, size=6)) == order(opened(cache))


def test_a_state_of_another_loader_is_refused(cache, stateful):
    state = loader("samples", opened(cache), cls=stateful).state_dict()
    with pytest.raises(errors.StateMismatchError, match="kind was 'samples' and is 'batches'"):
        next(iter(_loaded(loader("batches", opened(cache), cls=stateful), state)))
    with pytest.raises(errors.StateMismatchError, match="seed"):
        next(iter(_loaded(loader("samples", opened(cache, seed=5), cls=stateful), state)))
    with pytest.raises(errors.StateMismatchError, match="seed"):
        adapter.load_loader_state(opened(cache, seed=5), state)
    with pytest.raises(ValueError, match="StatefulDataLoader"):
        adapter.load_loader_state(opened(cache), {"epoch": 1})


def _loaded(loaded, state):
    loaded.load_state_dict(state)
    return loaded


@pytest.fixture
def in_a_worker(monkeypatch):
    """Let this process pass for a worker: PyTorch takes seconds to end one that raised an exception."""
    info = SimpleNamespace(id=1, num_workers=2, seed=5)
    monkeypatch.setattr("dataset_rt.adapters.torch.iterable.get_worker_info", lambda: info)


@pytest.mark.usefixtures("in_a_worker")
def test_a_batch_size_that_contradicts_the_loader_is_refused(cache):
    loaded = DataLoader(adapter.iterable_dataset(opened(cache), batch_size=8), batch_size=4)
    with pytest.raises(RuntimeError, match="asks for batches of 4, expected 8"):
        list(loaded)


@pytest.mark.usefixtures("in_a_worker")
def test_a_worker_that_cannot_see_the_batch_size_asks_for_it_rather_than_guess(cache):
    with pytest.raises(RuntimeError, match=r"iterable_dataset\(dataset, batch_size=...\)"):
        next(adapter.iterable_dataset(opened(cache)).__iter__())
    told = adapter.iterable_dataset(opened(cache), batch_size=8)
    expected = order(opened(cache))
    assert ids(told) == [who for place, who in enumerate(expected) if place // 8 % 2 == 1]


class Upper(IterableDataset):
    """What users write around a dataset."""

    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        yield from self.inner


def test_a_dataset_around_the_dataset_keeps_the_order(cache):
    loaded = DataLoader(
        Upper(opened(cache).to_torch_iterable_dataset()), batch_size=BATCH, num_workers=3, collate_fn=whole
    )
    assert who(loaded) == order(opened(cache))


class Lookalike(IterableDataset):
    """A wrapper with a variable that happens to be called like the argument of the fetchers."""

    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        possibly_batched_index = [0, 1, 2]
        for sample in self.inner:
            assert len(possibly_batched_index) == 3
            yield sample


def test_only_the_loader_itself_tells_the_batch_size(cache):
    loaded = DataLoader(
        Lookalike(opened(cache).to_torch_iterable_dataset()), batch_size=BATCH, num_workers=3, collate_fn=whole
    )
    assert who(loaded) == order(opened(cache))


def draw(sample, generator):
    return sample.sample_id, int(generator.integers(1 << 62))


def draw_rows(batch):
    return [
        (sample, int(batch.generator(row).integers(1 << 62))) for row, sample in enumerate(batch.sample_id.tolist())
    ]


def test_random_generators_of_samples_do_not_depend_on_workers_or_ranks(cache):
    def drawn(workers, world=1):
        found = []
        for rank in range(world):
            dataset = opened(cache, rank=rank, world_size=world)
            data = adapter.iterable_dataset(dataset, transform=draw, remainder="pad")
            loaded = DataLoader(data, batch_size=BATCH, num_workers=workers, collate_fn=whole)
            found.append([[pair for item in loaded for pair in item] for _ in range(2)])
        return found

    [alone] = drawn(0)
    flat = alone[0] + alone[1]
    assert len({value for _, value in flat}) == len(flat)  # no two positions share draws
    assert drawn(3) == [alone]
    left, right = drawn(2, world=2)
    assert [pair for pairs in zip(left[0], right[0], strict=True) for pair in pairs] == alone[0]
    batches = adapter.batch_dataset(opened(cache), 7, transform=draw_rows)
    assert [
        pair for rows in DataLoader(batches, batch_size=None, num_workers=2, collate_fn=whole) for pair in rows
    ] == (alone[0])


def test_a_transform_that_cannot_be_sent_is_named(cache):
    data = adapter.iterable_dataset(opened(cache), transform=lambda sample, generator: sample)
    with pytest.raises(TypeError, match=r"transform .*lambda.* top level of a module"):
        pickle.dumps(data)


def test_adapters_can_be_pickled_and_deliver_the_same(cache):
    dataset = opened(cache)
    for data in (adapter.iterable_dataset(dataset), adapter.batch_dataset(dataset, 5), adapter.map_dataset(dataset)):
        copy = pickle.loads(pickle.dumps(data))
        assert len(copy) == len(data)
    assert ids(pickle.loads(pickle.dumps(adapter.iterable_dataset(dataset)))) == order(dataset)


def test_rows_by_number(cache):
    rows = adapter.map_dataset(opened(cache).filter(pl.col("n") > 9))
    assert len(rows) == 40
    assert rows[0].sample_id == 10
    assert rows[-1].sample_id == 49
    assert ids(rows.__getitems__([3, 3, 0])) == [(0, 13), (0, 13), (0, 10)]
    with pytest.raises(IndexError):
        rows[40]
    assert ids(item for items in DataLoader(rows, batch_size=6, collate_fn=whole, num_workers=2) for item in items) == [
        (0, n) for n in range(10, 50)
    ]


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


def test_damage_in_a_worker_reaches_the_caller_as_itself(tmp_path):
    path = written(tmp_path, 20)
    shard = path / "shards" / "000000.bin"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    iterator = iter(loader("batches", opened(path, shuffle=False), workers=1))
    with pytest.raises(errors.CorruptRecordError, match="sample 19"):
        list(iterator)
    iterator._shutdown_workers()  # as cyclic garbage, with the exception, it would take seconds


def test_without_pytorch_the_package_works_and_the_adapter_says_what_is_missing(cache):
    script = """
import sys
from tests.order_support import ids, opened
assert "torch" not in sys.modules
sys.modules["torch"] = None
dataset = opened(sys.argv[1])
assert len(ids(dataset)) == 50
try:
    dataset.to_torch_iterable_dataset()
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(cache)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "the PyTorch adapters need PyTorch: install the package `torch`\n"
