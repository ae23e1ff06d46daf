"""Compaction as Python sees it: the same samples under the same ids, and nothing left of the others."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from dataset_rt import CachedDataset, ShardCompression, compact_cache, delete_samples, vacuum_cache, write_cache
from dataset_rt.errors import CacheNotFoundError, ConfigError, CorruptRecordError, StateMismatchError
from tests.support import Source, numbered, pairs, path_of, reader, write, writer


def ordered(path, generations=None, **options):
    return CachedDataset([path], reader_config=reader(shuffle=False, **options), generations=generations)


def ids(dataset):
    return [sample.sample_id for sample in dataset]


def held(path):
    return b"".join(file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file())


def test_live_samples_keep_ids_bytes_and_metadata_and_a_second_run_does_nothing(tmp_path):
    cache = write(tmp_path, numbered(50))
    gone = [0, 1, 7, 30, 49]
    delete_samples(cache, gone)
    before = ordered(cache)
    change = compact_cache(cache, min_dead_fraction=0.0)
    assert (change.operation, change.generation, change.previous_generation) == ("compact", 2, 1)
    assert (change.samples, change.added, change.deleted, change.changed) == (45, 0, 0, True)
    written = [file for file in (cache / "generations" / "000002").rglob("*") if file.is_file()]
    assert change.bytes_written == sum(file.stat().st_size for file in written if file.name != "manifest.json")
    left = [n for n in range(50) if n not in gone]
    for dataset in (before, ordered(cache), ordered(cache, io="pread"), ordered(cache, [1])):
        assert ids(dataset) == left
        assert pairs(dataset) == [numbered(50)[n] for n in left]
        assert dataset.gather([3, -1]).sample_id.tolist() == [left[3], left[-1]]
    assert ordered(cache).samples_metadata().equals(before.samples_metadata())
    again = compact_cache(cache, min_dead_fraction=0.0)
    assert (again.changed, again.generation, again.bytes_written) == (False, 2, 0)
    assert not compact_cache(cache).changed


def test_a_cache_from_which_nothing_was_deleted_is_left_alone(tmp_path):
    cache = write(tmp_path, numbered(20))
    assert not compact_cache(cache, min_dead_fraction=0.0).changed
    assert not (cache / "generations").exists()


def test_without_metadata_there_is_none_to_take_away(tmp_path):
    cache = write(tmp_path, [(b"x" * 100, {}) for _ in range(20)])
    delete_samples(cache, [3])
    assert not compact_cache(cache).changed
    assert compact_cache(cache, min_dead_fraction=0.0).changed
    assert ids(ordered(cache, validate_cache=True)) == [n for n in range(20) if n != 3]


@pytest.mark.parametrize("algorithm", ["none", "lz4", "zstd"])
def test_after_compaction_and_vacuum_no_byte_of_a_deleted_sample_is_on_the_disk(tmp_path, algorithm):
    secret = "somebody's name, said once"
    rows: list[tuple[bytes, dict[str, Any]]] = [
        (b"payload %d" % n, {"n": n, "text": f"text {n}", "note": None}) for n in range(40)
    ]
    rows[13] = (b"", {"n": 13_131_313, "text": secret, "note": f"{secret}, again"})
    source = Source("train", rows, schema={"n": int, "text": str, "note": str | None})
    config = writer(shard_compression=ShardCompression(algo=algorithm))
    [result] = write_cache(source, tmp_path, writer_config=config)
    cache = path_of(result)
    assert secret.encode() in held(cache)
    delete_samples(cache, pl.col("text") == secret)
    compact_cache(cache, min_dead_fraction=0.0)
    delete_samples(cache, [0])
    vacuum_cache(cache, grace=timedelta(0))
    assert secret.encode() not in held(cache)
    assert (13_131_313).to_bytes(8, "little") not in held(cache)
    assert ids(ordered(cache)) == [n for n in range(1, 40) if n != 13]


def test_random_deletions_and_compactions_agree_with_a_set(tmp_path):
    rng = random.Random(5)
    rows = [(bytes([n]) * (n * 7 % 90), {"n": n, "text": f"{n}" * (n % 4)}) for n in range(80)]
    config = writer(max_shard_bytes=900, shard_compression=ShardCompression(algo="lz4"))
    [result] = write_cache(Source("train", rows), tmp_path, writer_config=config)
    cache = path_of(result)
    left, opened = set(range(80)), []
    for _ in range(10):
        opened.append((ordered(cache, io=rng.choice(["mmap", "pread"])), sorted(left)))
        gone = rng.sample(range(80), rng.randrange(8))
        delete_samples(cache, gone)
        left -= set(gone)
        compact_cache(cache, min_dead_fraction=rng.choice([0.0, 0.1, 0.5]))
        dataset = ordered(cache, validate_cache=True)
        assert ids(dataset) == sorted(left)
        assert pairs(dataset) == [rows[n] for n in sorted(left)]
    for dataset, ids_then in opened:
        assert pairs(dataset) == [rows[n] for n in ids_then]
        assert dataset.samples_metadata()["n"].to_list() == ids_then


def test_readers_go_on_while_the_cache_is_compacted_under_them(tmp_path):
    cache = write(tmp_path, numbered(3000))
    delete_samples(cache, range(0, 3000, 7))
    expected = [n for n in range(3000) if n % 7]
    dataset = ordered(cache)
    delivered, iterator = [], iter(dataset)
    delivered.extend(next(iterator).sample_id for _ in range(10))
    compactor = threading.Thread(target=compact_cache, args=(cache,), kwargs={"min_dead_fraction": 0.0})
    compactor.start()
    delivered.extend(sample.sample_id for sample in iterator)
    compactor.join()
    assert delivered == expected
    assert ids(dataset) == expected


def test_states_and_weights_survive_compactions_and_not_deletions(tmp_path):
    cache = write(tmp_path, numbered(30))
    delete_samples(cache, [1, 2, 3, 4, 5, 6, 7])
    options = reader(shuffle=True)
    dataset = CachedDataset([cache], reader_config=options)
    table = dataset.samples_metadata().with_columns(weight=pl.col("sample_id") + 1.0)
    dataset.set_samples_metadata(table)
    iterator = iter(dataset)
    for _ in range(9):
        next(iterator)
    state = dataset.state_dict()
    rest = [sample.sample_id for sample in iterator]
    assert compact_cache(cache, min_dead_fraction=0.0).changed
    after = CachedDataset([cache], reader_config=options)
    after.set_samples_metadata(table)
    after.load_state_dict(state)
    assert [sample.sample_id for sample in after] == rest
    delete_samples(cache, [20])
    with pytest.raises(StateMismatchError):
        CachedDataset([cache], reader_config=options).load_state_dict(state)


def test_a_damaged_record_is_raised_and_nothing_is_changed(tmp_path):
    cache = write(tmp_path, numbered(20))
    delete_samples(cache, [3])
    [shard] = (cache / "shards").iterdir()
    damaged = bytearray(shard.read_bytes())
    damaged[-1] ^= 1
    shard.write_bytes(damaged)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CorruptRecordError) as caught:
        compact_cache(cache, min_dead_fraction=0.0)
    assert caught.value.sample_id == 19
    assert sorted(tmp_path.rglob("*")) == before


def test_what_cannot_be_compacted_is_refused(tmp_path):
    with pytest.raises(CacheNotFoundError):
        compact_cache(tmp_path / "nothing")
    cache = write(tmp_path, numbered(3))
    for fraction in (-0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="min_dead_fraction"):
            compact_cache(cache, min_dead_fraction=fraction)
