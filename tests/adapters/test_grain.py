"""Grain: real pipelines over a dataset, in this process and in workers, deliver exactly its rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest

from dataset_rt import errors
from dataset_rt.adapters import grain as adapter
from tests.batch_support import dense_cache, fields, metadata, plain_order, typed_cache
from tests.order_support import opened, written
from tests.support import run, write

grain = pytest.importorskip("grain", reason="Grain is not installed")

from tests.adapters.grain_maps import Decode, decoded  # noqa: E402 (after the check)


@pytest.fixture(scope="module")
def typed_path(tmp_path_factory):
    return typed_cache(tmp_path_factory.mktemp("typed"), 30)


@pytest.fixture(scope="module")
def typed(typed_path):
    return plain_order(typed_path)


def same_row(found, n):
    """Check one element, wherever it was read."""
    expected = {**metadata(n), **fields(n)}
    assert set(found) == set(expected)
    for name, value in expected.items():
        if name in ("label", "score", "is_even", "name", "maybe"):
            assert found[name] == value, name
            assert type(found[name]) is type(value), name
        else:
            array = np.frombuffer(value, np.uint8) if name == "jpeg" else value
            assert found[name].dtype == array.dtype, name
            assert np.array_equal(found[name], array), name
    return True


def test_it_is_a_source_for_grain_with_batched_reads(typed):
    from grain._src.python.dataset import base

    source = adapter.source(typed)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    assert isinstance(source, base.SupportsBatchedReadRandomAccessDataSource)
    assert len(source) == 30


def test_elements_are_the_rows_one_by_one_and_together(typed):
    source = adapter.source(typed)
    assert all(same_row(source[n], n) for n in range(30))
    rows: list[Any] = [4, 0, 29, 4, np.int64(7)]
    for together in (source.__getitems__(rows), grain.MapDataset.source(source)._getitems(rows)):
        assert len(together) == 5
        assert all(same_row(element, int(n)) for element, n in zip(together, rows, strict=True))
    assert source.__getitems__([]) == []
    with pytest.raises(IndexError):
        source[30]


def test_plain_bytes_keep_their_zeros_and_columns_choose(tmp_path):
    rows = [(b"a\0\0", {"n": 1}), (b"b\0c", {"n": 2})]
    dataset = plain_order(write(tmp_path, rows))
    source = adapter.source(dataset)
    batch = grain.MapDataset.source(source).batch(2)[0]
    assert [values.tobytes() for values in batch["data"]] == [b"a\0\0", b"b\0c"]
    assert batch["n"].tolist() == [1, 2]
    assert [list(element) for element in (source[0], adapter.source(dataset, ["n"])[0])] == [["data", "n"], ["n"]]
    assert adapter.source(dataset, ["data"]).__getitems__([1])[0]["data"].tobytes() == b"b\0c"
    with pytest.raises(errors.ConfigError, match="no payload field or metadata column 'x'"):
        adapter.source(dataset, ["x"])


def test_names_that_payload_and_metadata_share_mean_what_they_mean_in_a_batch(tmp_path):
    typed = plain_order(write(tmp_path, [({"x": np.arange(2)}, {"x": "text"})], name="typed"))
    plain = plain_order(write(tmp_path, [(b"bytes", {"data": "text"})], name="plain"))
    for dataset, name in ((typed, "x"), (plain, "data")):
        expected = dataset.gather([0])[name][0]
        source = adapter.source(dataset)
        for element in (source[0], source.__getitems__([0])[0]):
            assert list(element) == [name]
            assert np.array_equal(element[name], expected)


def test_a_shuffled_mapped_batched_pipeline_delivers_every_row_once_with_its_contents(typed):
    pipeline = grain.MapDataset.source(adapter.source(typed)).shuffle(seed=3).map(decoded).batch(7)
    seen = []
    for batch in pipeline:
        for image, number, label in zip(batch["image"], batch["number"], batch["label"], strict=True):
            assert np.array_equal(image, fields(number)["image"])
            assert label == number % 10
            seen.append(int(number))
    assert sorted(seen) == list(range(30))
    assert seen != sorted(seen)
    assert [n for batch in pipeline for n in batch["number"].tolist()] == seen
    threaded = pipeline.to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=4))
    assert [n for batch in threaded for n in batch["number"].tolist()] == seen


def test_whole_batches_by_row_number_are_gathered_in_a_map(tmp_path):
    dataset = plain_order(dense_cache(tmp_path, 20))
    pipeline = grain.MapDataset.range(20).shuffle(seed=1).batch(6).map(lambda rows: dataset.gather(rows).data["x"])
    delivered = [int(row[0]) for batch in pipeline for row in batch]
    assert sorted(delivered) == list(range(20))


def test_a_source_is_small_when_pickled_and_reads_its_view_elsewhere(typed, typed_path):
    view = typed.filter(pl.col("is_even"))
    source = adapter.source(view, ["image", "label"])
    text = pickle.dumps(source)
    assert len(text) < 4096
    again = pickle.loads(text)
    assert again.dataset._opened.ready is None  # nothing is opened before it is read
    assert len(again) == 15
    assert again[3]["label"] == 6
    assert np.array_equal(again[3]["image"], fields(6)["image"])
    assert list(again[3]) == ["image", "label"]


def test_the_text_of_a_source_names_its_contents_and_not_its_state(typed, typed_path, tmp_path):
    source = adapter.source(typed)
    assert repr(source) == repr(pickle.loads(pickle.dumps(source))) == repr(adapter.source(opened(typed_path)))
    others = [adapter.source(typed, ["image"]), adapter.source(typed.filter(pl.col("is_even")))]
    others.append(adapter.source(plain_order(written(tmp_path, 30))))
    assert len({repr(source), *map(repr, others)}) == 4


@pytest.fixture
def parsed_flags():
    """Do what `absl.app.run` does in a program: Grain reads flags."""
    flags = pytest.importorskip("absl.flags").FLAGS
    was_parsed = flags.is_parsed()
    flags.mark_as_parsed()
    yield
    if not was_parsed:
        flags.unparse_flags()


def test_the_data_loader_of_grain_resumes_over_the_same_contents_only(typed, tmp_path, parsed_flags):
    def loader(dataset):
        source = adapter.source(dataset)
        sampler = grain.samplers.IndexSampler(30, shuffle=True, seed=5, num_epochs=1)
        operations = [Decode(), grain.transforms.Batch(6)]
        return iter(grain.DataLoader(data_source=source, sampler=sampler, operations=operations, worker_count=0))

    batches = loader(typed)
    first = [next(batches)["number"].tolist() for _ in range(2)]
    state = batches.get_state()
    rest = [batch["number"].tolist() for batch in batches]
    assert sorted(n for batch in first + rest for n in batch) == list(range(30))
    resumed = loader(opened(typed.cache_paths))
    resumed.set_state(state)
    assert [batch["number"].tolist() for batch in resumed] == rest
    with pytest.raises(ValueError, match="RowSource"):
        loader(plain_order(written(tmp_path, 30))).set_state(state)


_WORKERS = """
import json, sys
import grain
import numpy as np
from absl import flags
from tests.batch_support import fields, plain_order
from tests.adapters.grain_maps import Decode
from dataset_rt.adapters import grain as adapter

def main(path):
    source = adapter.source(plain_order(path))
    sampler = grain.samplers.IndexSampler(len(source), shuffle=True, seed=5, num_epochs=1)
    operations = [Decode(), grain.transforms.Batch(5)]
    seen = []
    for batch in grain.DataLoader(data_source=source, sampler=sampler, operations=operations, worker_count=2):
        for image, number in zip(batch["image"], batch["number"]):
            assert np.array_equal(image, fields(int(number))["image"])
            seen.append(int(number))
    print(json.dumps([seen, len(source)]))

if __name__ == "__main__":
    flags.FLAGS.mark_as_parsed()
    main(sys.argv[1])
"""


def test_worker_processes_of_grain_read_every_row_once(typed_path):
    seen, count = run(_WORKERS, typed_path)
    assert sorted(seen) == list(range(count))
    assert seen != sorted(seen)
