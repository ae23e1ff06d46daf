"""Single samples: what they are, by which index they are found, and what a damaged one is."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from dataset_rt import CachedSample, errors
from tests.support import flip, numbered, open_in_order, own_threads, pairs, write


@pytest.mark.parametrize("io", ["auto", "mmap", "pread"])
@pytest.mark.parametrize("verify", ["first", "always", "never"])
def test_every_engine_and_setting_delivers_the_same(cache, io, verify):
    dataset = open_in_order(cache, io=io, verify=verify)
    assert pairs(dataset) == pairs(dataset) == numbered(300)
    assert pairs(dataset[n] for n in range(300)) == numbered(300)


def test_samples_are_named_tuples_of_plain_objects(cache):
    sample = open_in_order(cache)[5]
    assert type(sample) is CachedSample
    assert CachedSample._fields == ("data", "metadata", "cache_id", "sample_id")
    assert [type(part) for part in sample] == [bytes, dict, int, int]
    assert sample == (b"payload 5", {"n": 5, "name": "sample 5"}, 0, 5)
    assert pickle.loads(pickle.dumps(sample)) == sample
    assert sample._replace(data=b"").data == b""


def test_changing_a_samples_metadata_changes_no_other_sample(cache):
    dataset = open_in_order(cache)
    dataset[0].metadata["n"] = "changed"
    assert dataset[0].metadata["n"] == 0


@pytest.mark.parametrize("index", [0, 299, -1, -300, np.int64(7), np.uint8(255), np.int16(-3), True], ids=repr)
def test_an_index_may_be_negative_or_from_numpy(cache, index):
    assert open_in_order(cache)[index].sample_id == int(index) % 300


@pytest.mark.parametrize("index", [300, -301, 2**64, -(2**64), 2**100], ids=repr)
def test_an_index_beyond_the_rows_is_an_index_error(cache, index):
    with pytest.raises(errors.RowIndexError) as caught:
        open_in_order(cache)[index]
    assert isinstance(caught.value, IndexError)
    assert (caught.value.index, caught.value.length) == (index, 300)


@pytest.mark.parametrize("index", [1.0, "0", None, slice(0, 1), (0,), np.float32(1)], ids=repr)
def test_an_index_of_another_type_is_a_type_error(cache, index):
    with pytest.raises(TypeError):
        open_in_order(cache)[index]


def test_reversed_and_sequence_protocols_end_where_the_rows_end(cache):
    assert [sample.sample_id for sample in reversed(open_in_order(cache))] == list(range(299, -1, -1))


def test_rows_of_several_caches_follow_each_other(tmp_path):
    paths = [write(tmp_path, numbered(count, count * 100), str(count)) for count in (3, 1, 5)]
    dataset = open_in_order(*paths)
    expected = [(cache, sample) for cache, count in enumerate((3, 1, 5)) for sample in range(count)]
    assert [(sample.cache_id, sample.sample_id) for sample in dataset] == expected
    assert [(dataset[n].cache_id, dataset[n].sample_id) for n in range(9)] == expected
    assert dataset[3].metadata["n"] == 100


def test_repr_names_size_caches_and_configuration(cache):
    assert repr(open_in_order(cache)).startswith("CachedDataset(300 samples in 1 caches, ReaderConfig(seed=7")


def test_a_damaged_sample_is_reported_at_its_place_and_the_others_are_delivered(tmp_path):
    path = write(tmp_path, numbered(100))
    index = np.frombuffer((path / "index.bin").read_bytes(), dtype="<u8").reshape(-1, 3)
    shard = path / "shards" / "000000.bin"
    flip(shard, int(index[40, 1] + index[40, 2] - 1))
    for io in ("mmap", "pread"):
        samples, found = iter(open_in_order(path, io=io, num_workers=2)), []
        with pytest.raises(errors.CorruptRecordError) as caught:
            found.extend(iter(lambda samples=samples: next(samples), None))
        error = caught.value
        assert (Path(error.path), error.sample_id, error.offset) == (shard, 40, int(index[40, 1]))
        assert "sample 40" in str(error)
        assert error.expected != error.found
        assert own_threads() == []
        with pytest.raises(errors.CorruptRecordError):  # an early end is not to be taken for the end of the epoch
            next(samples)
        start = open_in_order(path, io=io).state_dict()
        samples.load_state_dict(start)
        assert next(samples).sample_id == 0
        samples.close()
        dataset = open_in_order(path, io=io)
        assert pairs(dataset[row] for row in range(100) if row != 40) == [*numbered(40), *numbered(59, 41)]
        with pytest.raises(errors.CorruptRecordError):
            dataset[40]
        with pytest.raises(errors.CorruptRecordError):
            dataset[40]
        assert pickle.loads(pickle.dumps(error)).sample_id == 40
