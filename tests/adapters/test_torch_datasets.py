"""PyTorch: datasets that are wrapped, sent to workers, transformed or damaged, and what they say without PyTorch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace

import polars as pl
import pytest

from dataset_rt import errors
from dataset_rt.adapters import torch as adapter
from tests.order_support import ids, opened, order, written
from tests.support import ROOT

pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DataLoader, IterableDataset

from tests.adapters.torch_support import BATCH, QUIET, loader, who, whole

pytestmark = QUIET


def test_what_the_dataset_returns_is_a_sized_torch_iterable_dataset(cache):
    assert isinstance(opened(cache).to_torch_iterable_dataset(), adapter.SizedTorchIterableDataset)
    assert isinstance(opened(cache).to_torch_iterable_dataset(), IterableDataset)
    assert not isinstance(iter([]), adapter.SizedTorchIterableDataset)


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
