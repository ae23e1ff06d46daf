"""A cache's life as Python sees it: deletion, vacuum, leases, and readers that keep what they opened."""

from __future__ import annotations

import json
import pickle
import shutil
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dataset_rt import CachedDataset, compact_cache, delete_samples, lease_generation, repair_cache, vacuum_cache
from dataset_rt.errors import (
    CacheNotFoundError,
    DamagedGenerationError,
    FallBackWarning,
    GenerationNotFoundError,
    InvalidCacheError,
    RowIndexError,
    StateMismatchError,
    WeightsError,
)
from tests.support import numbered, pairs, reader, write


@pytest.fixture
def cache(tmp_path):
    return write(tmp_path, numbered(20))


def ordered(path, generations=None, **options):
    return CachedDataset([path], reader_config=reader(shuffle=False, **options), generations=generations)


def ids(dataset):
    return [sample.sample_id for sample in dataset]


@pytest.mark.parametrize(
    "samples",
    [
        [3, 5, 3],
        np.array([5, 3]),
        np.array([3, 5], np.uint8),
        pl.DataFrame({"sample_id": [3, 5]}),
        pl.DataFrame({"cache_id": [0, 0], "sample_id": [5, 3]}),
        pl.col("sample_id").is_in([3, 5]),
        pl.col("n").is_in([3, 5]),
    ],
    ids=["list", "array", "small integers", "frame", "frame with cache", "expression", "metadata"],
)
def test_samples_to_delete_are_named_in_any_way(cache, samples):
    change = delete_samples(cache, samples)
    assert (change.operation, change.generation, change.previous_generation) == ("delete", 1, 0)
    assert (change.samples, change.added, change.deleted, change.changed) == (18, 0, 2, True)
    assert change.path == cache.resolve()
    dataset = ordered(cache)
    expected = [n for n in range(20) if n not in (3, 5)]
    assert len(dataset) == 18
    assert ids(dataset) == expected
    assert pairs(dataset) == [numbered(20)[n] for n in expected]
    assert dataset.samples_metadata()["sample_id"].to_list() == expected
    assert not delete_samples(cache, samples if isinstance(samples, list) else [3, 5]).changed


@pytest.mark.parametrize("samples", [["3"], [3.0], [[3]], [-1], pl.DataFrame({"n": [3]}), object()])
def test_what_names_no_samples_is_refused(cache, samples):
    with pytest.raises(TypeError):
        delete_samples(cache, samples)
    assert ordered(cache).generations == [0]


def test_an_id_that_was_never_given_is_refused_and_nothing_is_deleted(cache):
    with pytest.raises(RowIndexError) as caught:
        delete_samples(cache, [3, 20])
    assert (caught.value.index, caught.value.length) == (20, 20)
    assert len(ordered(cache)) == 20


def test_negative_ids_are_refused_in_arrays_and_frames_alike(cache):
    for samples in ([-1], pl.DataFrame({"sample_id": [3, -1]})):
        with pytest.raises(TypeError, match="sample ids start at 0, found -1"):
            delete_samples(cache, samples)
    assert len(ordered(cache)) == 20


def test_nothing_to_delete_changes_nothing(cache):
    assert not delete_samples(cache, []).changed
    assert not delete_samples(cache, pl.DataFrame({"sample_id": []})).changed
    assert not delete_samples(cache, pl.col("n") > 100).changed


def test_there_must_be_a_cache(tmp_path):
    for operation in (lambda path: delete_samples(path, [1]), vacuum_cache, lease_generation):
        with pytest.raises(CacheNotFoundError):
            operation(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_keeps_its_generation_and_so_does_its_pickle(cache):
    before = ordered(cache)
    pickled = pickle.dumps(before)
    delete_samples(cache, [0])
    delete_samples(cache, [1])
    for dataset in (before, pickle.loads(pickled), ordered(cache, [0])):
        assert dataset.generations == [0]
        assert ids(dataset) == list(range(20))
    assert ids(ordered(cache, [1])) == list(range(1, 20))
    assert ids(pickle.loads(pickle.dumps(ordered(cache, [1])))) == list(range(1, 20))
    assert ordered(cache, [None]).generations == [2]


def test_rows_are_gap_free_and_every_way_to_read_them_agrees(cache):
    delete_samples(cache, [0, 7, 8, 19])
    live = [n for n in range(20) if n not in (0, 7, 8, 19)]
    dataset = ordered(cache)
    assert [dataset[row].sample_id for row in range(len(dataset))] == live
    assert dataset.gather(slice(None)).sample_id.tolist() == live
    assert dataset.gather([-1, 0]).metadata["n"].to_list() == [18, 1]
    assert [n for batch in dataset.batches(5) for n in batch.metadata["n"]] == live
    shuffled = CachedDataset([cache], reader_config=reader(shuffle=True, replacement=False))
    assert sorted(ids(shuffled)) == live
    assert ids(dataset.filter(pl.col("n") > 10)) == [n for n in live if n > 10]


def test_several_caches_keep_their_ids_apart(tmp_path):
    paths = [write(tmp_path, numbered(5), name) for name in ("a", "b", "c")]
    delete_samples(paths[1], [0, 4])
    dataset = CachedDataset(paths, reader_config=reader(shuffle=False))
    assert dataset.generations == [0, 1, 0]
    expected = [(0, n) for n in range(5)] + [(1, n) for n in (1, 2, 3)] + [(2, n) for n in range(5)]
    assert [(s.cache_id, s.sample_id) for s in dataset] == expected
    table = dataset.samples_metadata()
    assert list(zip(table["cache_id"], table["sample_id"], strict=True)) == expected
    assert table["n"].to_list() == [n for _, n in expected]


def test_a_table_with_deleted_samples_says_which_they_are(cache):
    table = ordered(cache).samples_metadata()
    delete_samples(cache, [4])
    for use in ("set_samples_metadata", "select", "gather"):
        with pytest.raises(WeightsError, match="deleted from their cache") as caught:
            getattr(ordered(cache), use)(table)
        assert "(cache_id 0, sample_id 4)" in str(caught.value)
    ordered(cache).set_samples_metadata(table.filter(pl.col("sample_id") != 4))


def test_a_state_says_what_went_since_and_its_generation_resumes_it(cache):
    delete_samples(cache, [1])
    dataset = ordered(cache)
    samples = iter(dataset)
    taken = [next(samples).sample_id for _ in range(5)]
    state = json.loads(json.dumps(dataset.state_dict()))
    delete_samples(cache, [9, 10])
    with pytest.raises(StateMismatchError, match=r"was in generation 1 and is in 2, without the samples 9, 10"):
        ordered(cache).load_state_dict(state)
    resumed = ordered(cache, [1])
    resumed.load_state_dict(state)
    assert taken + ids(resumed) == [n for n in range(20) if n != 1]


def test_a_generation_must_exist_and_there_is_one_for_each_cache(cache):
    with pytest.raises(GenerationNotFoundError) as caught:
        ordered(cache, [3])
    assert (caught.value.generation, caught.value.kept) == (3, [0])
    with pytest.raises(ValueError, match="1 caches, found 2"):
        ordered(cache, [0, 0])
    with pytest.raises(TypeError, match="one number for each cache, found 0"):
        ordered(cache, 0)
    with pytest.raises(ValueError, match="numbered from 0, found -1"):
        ordered(cache, [-1])


def test_a_damaged_generation_is_an_error_or_passed_over_with_a_warning(cache):
    delete_samples(cache, [1])
    delete_samples(cache, [2])
    manifest = cache / "generations" / "000002" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:100])
    with pytest.raises(DamagedGenerationError, match="dataset-rt repair") as caught:
        ordered(cache)
    assert (caught.value.generation, caught.value.last_good) == (2, 1)
    with pytest.warns(FallBackWarning) as warned:
        dataset = ordered(cache, fall_back=True)
    [warning] = [found.message for found in warned]
    assert isinstance(warning, FallBackWarning)
    assert (warning.generation, dataset.generations) == (1, [1])
    assert len(dataset) == 19
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ordered(cache, [1], fall_back=True)


def test_a_vacuum_keeps_two_generations_the_grace_period_and_leases(cache):
    for sample in range(4):
        delete_samples(cache, [sample])
    report = vacuum_cache(cache)
    assert set(report.kept.values()) == {"newest", "previous", "grace"}
    assert (report.removed, report.files, report.dry_run) == ([], 0, False)
    with lease_generation(cache, 1, duration=timedelta(hours=1)) as lease:
        assert (lease.generation, lease.path) == (1, cache)
        assert timedelta(minutes=59) < lease.expires - datetime.now(UTC) <= timedelta(hours=1)
        told = vacuum_cache(cache, grace=timedelta(0), dry_run=True)
        assert told.kept == {1: "leased", 3: "previous", 4: "newest"}
        assert ordered(cache, [2]).generations == [2]
        done = vacuum_cache(cache, grace=timedelta(0))
        assert (done.kept, done.removed) == (told.kept, told.removed)
    with pytest.raises(GenerationNotFoundError) as caught:
        ordered(cache, [2])
    assert caught.value.kept == [1, 3, 4]
    assert 1 not in vacuum_cache(cache, grace=timedelta(0)).kept
    assert ids(ordered(cache)) == list(range(4, 20))


def test_nothing_of_a_sample_that_was_taken_down_stays_on_the_disk(cache):
    delete_samples(cache, [7])
    compact_cache(cache, min_dead_fraction=0)
    report = vacuum_cache(cache, grace=timedelta(0), keep_previous=False)
    assert report.kept == {2: "newest"}
    left = b"".join(file.read_bytes() for file in cache.rglob("*") if file.is_file())
    assert b"payload 7" not in left
    assert b"sample 7" not in left
    assert b"payload 8" in left


def test_a_lease_that_would_end_after_the_last_date_is_refused_and_keeps_nothing(cache):
    delete_samples(cache, [1])
    with pytest.raises(ValueError, match="year 10000"):
        lease_generation(cache, duration=timedelta.max)
    assert list((cache / "generations").glob("leases/*")) == []


def test_a_vacuum_refuses_what_it_cannot_read_and_bad_arguments(cache):
    delete_samples(cache, [1])
    (cache / "generations" / "leases").mkdir()
    (cache / "generations" / "leases" / "x.json").write_text("{")
    with pytest.raises(InvalidCacheError, match="lease"):
        vacuum_cache(cache, grace=timedelta(0))
    with pytest.raises(ValueError, match="negative"):
        vacuum_cache(cache, grace=timedelta(-1))
    with pytest.raises(ValueError, match="a second or more"):
        lease_generation(cache, duration=timedelta(0))


def test_a_repair_keeps_what_it_can_and_lists_what_is_lost(cache):
    assert not repair_cache(cache).change.changed
    delete_samples(cache, [19])
    shard = cache / "shards" / "000000.bin"
    damaged = bytearray(shard.read_bytes())
    damaged[damaged.index(b"payload 7")] ^= 1
    shard.write_bytes(damaged)
    (cache / "metadata.arrow").unlink()
    report = repair_cache(cache)
    assert (report.change.operation, report.change.generation, report.started_from) == ("repair", 2, 1)
    assert report.lost_sample_ids.tolist() == [7]
    assert sorted(file.name for file in report.damaged_files) == ["000000.bin", "metadata.arrow"]
    assert (report.lost_generations, report.change.samples, report.change.deleted) == ({}, 18, 1)
    live = [n for n in range(20) if n not in (7, 19)]
    dataset = ordered(cache, validate_cache=True)
    assert pairs(dataset) == [numbered(20)[n] for n in live]
    assert dataset.samples_metadata()["n"].to_list() == live
    assert not repair_cache(cache).change.changed


def test_a_generation_whose_manifest_is_lost_is_repaired_from_the_one_before(cache):
    delete_samples(cache, [1])
    delete_samples(cache, [2])
    (cache / "generations" / "000002" / "manifest.json").write_text("{}")
    report = repair_cache(cache)
    assert list(report.lost_generations) == [2]
    assert (report.started_from, report.change.generation) == (1, 3)
    assert ids(ordered(cache)) == [0, *range(3, 20)]


def test_a_cache_without_any_trustworthy_manifest_is_not_repaired(cache):
    (cache / "manifest.json").write_text("{}")
    with pytest.raises(InvalidCacheError):
        repair_cache(cache)


def test_a_read_only_cache_is_read_and_refuses_changes(cache, tmp_path):
    delete_samples(cache, [1])
    copied = tmp_path / "copied"
    shutil.copytree(cache, copied)
    entries = [copied, *copied.rglob("*")]
    for entry in entries:
        entry.chmod(0o555 if entry.is_dir() else 0o444)
    before = {entry: entry.stat().st_mtime_ns for entry in entries}
    assert len(pairs(ordered(copied))) == 19
    assert {entry: entry.stat().st_mtime_ns for entry in [copied, *copied.rglob("*")]} == before
    assert Path(copied).exists()
