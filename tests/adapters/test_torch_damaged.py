"""PyTorch loaders over damaged samples: the same substitutes with any workers, masks in batches, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dataset_rt import errors
from dataset_rt.adapters import torch as adapter
from tests.order_support import batch_ids, ids, opened, order, payload, written
from tests.support import flip

pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DataLoader

from tests.adapters.torch_support import QUIET, whole

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore::dataset_rt.errors.CorruptSampleWarning")]

DAMAGED = [3, 10, 11, 25, 45]
"""Samples of the cache with a payload to flip: every seventh has none."""


def numbered(sample, generator):
    """Return which sample it is, and a random number that belongs to its position."""
    return sample.sample_id, generator.random()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    path = written(tmp_path_factory.mktemp("torch"), 50)
    index = np.frombuffer((path / "index.bin").read_bytes(), dtype="<u8").reshape(-1, 3)
    for sample in DAMAGED:
        flip(path / "shards" / "000000.bin", int(index[sample, 1] + index[sample, 2] - 1))
    return path


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_any_number_of_workers_delivers_the_same_substitutes(cache, workers):
    expected = ids(opened(cache, on_corrupt="substitute"))
    assert len(expected) == 50
    samples = adapter.iterable_dataset(opened(cache, on_corrupt="substitute"))
    loaded = DataLoader(samples, batch_size=4, num_workers=workers, collate_fn=whole)
    assert [found for batch in loaded for found in ids(batch)] == expected
    batches = adapter.batch_dataset(opened(cache, on_corrupt="substitute"), 4)
    loaded = DataLoader(batches, batch_size=None, num_workers=workers)
    assert [found for batch in loaded for found in batch_ids(batch)] == expected


@pytest.mark.parametrize("workers", [0, 3])
def test_batches_mark_what_is_left_out(cache, workers):
    batches = adapter.batch_dataset(opened(cache, on_corrupt="skip"), 4)
    loaded = list(DataLoader(batches, batch_size=None, num_workers=workers))
    assert [sample for batch in loaded for sample in batch.sample_id] == [sample for _, sample in order(opened(cache))]
    for batch in loaded:
        assert batch.valid.tolist() == [sample not in DAMAGED for sample in batch.sample_id]
        for row, sample in enumerate(batch.sample_id.tolist()):
            assert batch.data[row] == (b"" if sample in DAMAGED else payload(sample))


def test_single_samples_are_left_out_in_this_process_and_keep_their_generators(cache):
    dataset = opened(cache, on_corrupt="skip")
    planned = [sample for _, sample in order(dataset)]
    expected = [
        (sample, dataset.generator(0, position).random())
        for position, sample in enumerate(planned)
        if sample not in DAMAGED
    ]
    plain = DataLoader(adapter.iterable_dataset(opened(cache, on_corrupt="skip")), batch_size=None)
    assert [sample.sample_id for sample in plain] == [sample for sample, _ in expected]
    transformed = adapter.iterable_dataset(opened(cache, on_corrupt="skip"), transform=numbered)
    assert list(DataLoader(transformed, batch_size=None, collate_fn=whole)) == expected


@pytest.mark.parametrize("transform", [None, numbered])
def test_single_samples_resume_behind_what_was_left_out(cache, transform):
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

    def loader():
        dataset = adapter.iterable_dataset(opened(cache, on_corrupt="skip"), transform=transform)
        return stateful.StatefulDataLoader(dataset, batch_size=None, collate_fn=whole)

    def who(item):
        return item.sample_id if transform is None else item

    expected = [who(item) for item in loader()]
    for taken in (1, 8, 20, 40):
        first = loader()
        items = iter(first)
        for _ in range(taken):
            next(items)
        second = loader()
        second.load_state_dict(first.state_dict())
        assert [who(item) for item in second] == expected[taken:]


def test_worker_processes_refuse_to_leave_single_samples_out(cache):
    samples = adapter.iterable_dataset(opened(cache, on_corrupt="skip"))
    with pytest.raises(errors.ConfigError, match=r"on_corrupt.*batch_dataset"):
        list(DataLoader(samples, batch_size=4, num_workers=2, collate_fn=whole))


def test_rows_that_are_asked_for_raise(cache):
    rows = adapter.map_dataset(opened(cache, on_corrupt="substitute"))
    with pytest.raises(errors.CorruptRecordError):
        rows[DAMAGED[0]]
    with pytest.raises(errors.CorruptRecordError):
        rows[[0, DAMAGED[0]]]
