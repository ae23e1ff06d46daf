"""Datasets as sources of `write_cache`: caches merged, subsets and repetitions as caches of their own."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from dataset_rt import (
    CachedDataset,
    CacheWriteError,
    CacheWriteSuccess,
    ShardCompression,
    delete_samples,
    write_arrays,
    write_cache,
)
from dataset_rt.errors import SourceNameError
from tests.support import Source, numbered, pairs, reader, write, writer


def ordered(*paths, **options):
    return CachedDataset(list(paths), reader_config=reader(shuffle=False, **options))


def copied(dataset, base, name="copy", **options):
    [result] = write_cache(dataset, base, name=name, writer_config=writer(**options))
    assert isinstance(result, CacheWriteSuccess), result
    assert result.source_name == name
    assert result.path == base / name
    return ordered(result.path, validate_cache=True)


def test_caches_of_every_compression_merge_in_the_order_of_the_dataset(tmp_path):
    stores = [
        ShardCompression(algo="none"),
        ShardCompression(algo="lz4"),
        ShardCompression(algo="zstd"),
        ShardCompression(algo="zstd", dictionary_bytes=1024),
        ShardCompression(algo="zstd", dictionary_bytes=2048),
    ]
    rows, paths = [], []
    for number, compression in enumerate(stores):
        own = [(f"sample {n} of cache {number}, ".encode() * (n % 5), {"n": n, "of": number}) for n in range(60)]
        rows.append(own)
        paths.append(write(tmp_path, own, f"part{number}", shard_compression=compression, max_shard_bytes=2000))
    merged = copied(ordered(*paths), tmp_path)
    assert pairs(merged) == [pair for own in rows for pair in own]
    assert [sample.sample_id for sample in merged] == list(range(300))
    backwards = ordered(*paths)
    table = backwards.samples_metadata().reverse()
    assert pairs(copied(backwards.select(table), tmp_path, "back")) == [p for own in rows[::-1] for p in own[::-1]]


def test_views_become_caches_with_their_repetitions_and_without_their_weights(tmp_path):
    cache = write(tmp_path, numbered(30))
    delete_samples(cache, [4])
    dataset = ordered(cache)
    odd = dataset.filter(pl.col("n") % 2 == 1)
    assert pairs(copied(odd, tmp_path, "odd")) == [numbered(30)[n] for n in range(1, 30, 2)]
    chosen = pl.DataFrame({"cache_id": [0] * 5, "sample_id": [9, 3, 9, 0, 9], "weight": [2.0, 3.0, 2.0, 1.0, 5.0]})
    repeated = copied(dataset.select(chosen), tmp_path, "repeated")
    assert pairs(repeated) == [numbered(30)[n] for n in (9, 3, 9, 0, 9)]
    table = repeated.samples_metadata()
    assert table["weight"].to_list() == [1.0] * 5
    assert table["n"].to_list() == [9, 3, 9, 0, 9]


def test_typed_payloads_and_nulls_survive(tmp_path):
    arrays = {"image": np.arange(20 * 12, dtype=np.uint8).reshape(20, 3, 4), "label": np.arange(20, dtype=np.int64)}
    metadata = pl.DataFrame({"a": [None if n % 3 else n for n in range(20)], "b": [float("nan")] + [1.5] * 19})
    first = write_arrays("first", arrays, tmp_path, metadata=metadata, writer_config=writer())
    second = write_arrays("second", arrays, tmp_path, metadata=metadata.fill_null(7), writer_config=writer())
    assert isinstance(first, CacheWriteSuccess)
    assert isinstance(second, CacheWriteSuccess)
    dataset = ordered(first.path, second.path)
    merged = copied(dataset, tmp_path)
    assert merged.payload_fields == dataset.payload_fields
    before, after = dataset.gather(slice(None)), merged.gather(slice(None))
    np.testing.assert_array_equal(after["image"], before["image"])
    np.testing.assert_array_equal(after["label"], before["label"])
    kept = ["a", "b"]
    assert merged.samples_metadata().select(kept).equals(dataset.samples_metadata().select(kept))


def test_sources_and_datasets_mix_and_one_failure_stops_no_other(tmp_path):
    cache = write(tmp_path, numbered(10))
    dataset = ordered(cache)
    sources = [dataset, Source("fresh", numbered(3)), dataset.filter(pl.col("n") < 0), dataset.filter(pl.col("n") < 2)]
    results = write_cache(sources, tmp_path, name=["all", "none", "two"], writer_config=writer())
    assert [result.source_name for result in results] == ["all", "fresh", "none", "two"]
    assert [type(result) for result in results] == [
        CacheWriteSuccess,
        CacheWriteSuccess,
        CacheWriteError,
        CacheWriteSuccess,
    ]
    assert "yielded no samples" in str(results[2])
    assert len(ordered(tmp_path / "all")) == 10
    assert len(ordered(tmp_path / "two")) == 2
    [again] = write_cache(dataset, tmp_path, name="all", writer_config=writer())
    assert isinstance(again, CacheWriteError)
    assert "exists" in again.message


def test_a_dataset_needs_a_name_and_a_source_takes_none(tmp_path):
    dataset = ordered(write(tmp_path, numbered(3)))
    for sources, name, told in [
        (dataset, None, "a dataset has no name of its own"),
        ([dataset, dataset], "one", "each of the 2"),
        (Source("fresh", numbered(3)), "fresh", "none in sources"),
    ]:
        with pytest.raises(TypeError, match=told):
            write_cache(sources, tmp_path, name=name, writer_config=writer())
    with pytest.raises(SourceNameError):
        write_cache([dataset, dataset], tmp_path, name=["a", "a"], writer_config=writer())
    [bad] = write_cache(dataset, tmp_path, name="../out", writer_config=writer())
    assert isinstance(bad, CacheWriteError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train"]


def test_a_damaged_sample_is_told_and_leaves_nothing(tmp_path):
    cache = write(tmp_path, numbered(20))
    [shard] = (cache / "shards").iterdir()
    damaged = bytearray(shard.read_bytes())
    damaged[-1] ^= 1
    shard.write_bytes(damaged)
    before = sorted(tmp_path.rglob("*"))
    dataset = ordered(cache)
    [result] = write_cache(dataset, tmp_path, name="copy", writer_config=writer())
    assert isinstance(result, CacheWriteError)
    assert "sample 19" in result.message
    assert "checksum" in result.message
    assert sorted(tmp_path.rglob("*")) == before
    sound = dataset.filter(pl.col("n") < 19)
    assert len(copied(sound, tmp_path)) == 19
