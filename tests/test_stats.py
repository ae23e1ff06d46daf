"""What `cache_stats` says agrees with the files and with the operations that made them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from dataset_rt import ShardCompression, cache_stats, compact_cache, delete_samples, vacuum_cache
from dataset_rt.errors import CacheNotFoundError, GenerationNotFoundError
from tests.support import numbered, write


def size(path, *names):
    return sum((path / name).stat().st_size for name in names)


def test_a_fresh_cache_is_all_alive(tmp_path):
    rows = [(b"x" * n, {"n": n}) for n in range(40)]
    cache = write(tmp_path, rows, max_shard_bytes=400, shard_compression=ShardCompression(algo="none"))
    stats = cache_stats(cache)
    assert stats.path == cache.resolve()
    assert (stats.generation, stats.samples, stats.sample_ids, stats.deleted) == (0, 40, 40, 0)
    assert stats.stored_bytes == sum(file.stat().st_size for file in (cache / "shards").iterdir())
    assert (stats.live_bytes, stats.reclaimable_bytes) == (stats.stored_bytes, 0)
    assert stats.payload_bytes == sum(range(40))
    assert stats.metadata_bytes == size(cache, "metadata.arrow")
    assert stats.index_bytes == size(cache, "index.bin", "checksums.bin") == 40 * 28
    assert stats.shards["path"].to_list() == sorted(str(file.resolve()) for file in (cache / "shards").iterdir())
    assert stats.shards["shard"].to_list() == list(range(len(stats.shards)))
    assert stats.shards["records"].sum() == stats.shards["live_records"].sum() == 40
    assert set(stats.shards["algorithm"]) == {"none"}
    [only] = stats.generations.to_dicts()
    assert (only["generation"], only["operation"], only["created"], only["added"]) == (0, "write", None, 40)
    assert only["bytes"] == sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())


def test_every_operation_shows_in_the_generations_and_compaction_reclaims_what_was_promised(tmp_path):
    began = datetime.now(UTC) - timedelta(seconds=1)
    cache = write(tmp_path, numbered(30))
    delete_samples(cache, range(10))
    before = cache_stats(cache)
    assert (before.samples, before.sample_ids, before.deleted) == (20, 30, 10)
    assert before.shards["live_records"].sum() == 20
    assert before.reclaimable_bytes > 0
    compact_cache(cache, min_dead_fraction=0.0)
    after = cache_stats(cache)
    assert after.stored_bytes == after.live_bytes == before.live_bytes
    assert after.stored_bytes + before.reclaimable_bytes == before.stored_bytes
    assert after.shards["generation"].to_list() == [2]
    assert cache_stats(cache, generation=1).shards.equals(before.shards)
    frame = after.generations
    assert frame["operation"].to_list() == ["write", "delete", "compact"]
    assert frame["samples"].to_list() == [30, 20, 20]
    assert frame["added"].to_list() == [30, 0, 0]
    assert frame["deleted"].to_list() == [0, 10, 0]
    assert frame["removed"].to_list() == [False] * 3
    assert frame.schema["created"] == pl.Datetime("ms", "UTC")
    assert frame["created"].null_count() == 1
    assert all(began <= created <= datetime.now(UTC) for created in frame["created"].drop_nulls())


def test_generations_that_a_vacuum_gave_up_are_told_as_far_as_they_left_a_trace(tmp_path):
    cache = write(tmp_path, numbered(30))
    for n in range(3):
        delete_samples(cache, [n])
    vacuum_cache(cache, grace=timedelta(0))
    frame = cache_stats(cache).generations
    assert frame.filter("removed")["generation"].to_list() == [0]
    assert frame.filter(~pl.col("removed"))["generation"].to_list() == [2, 3]
    with pytest.raises(GenerationNotFoundError):
        cache_stats(cache, generation=1)
    with pytest.raises(CacheNotFoundError):
        cache_stats(tmp_path / "nothing")
