"""Writing: the files of a cache, the profile, and progress on a terminal."""

from __future__ import annotations

import hashlib
import json
import os
import pty

import pytest

from dataset_rt import (
    CacheWriteError,
    CacheWriteSuccess,
    ShardCompression,
    WriterProfilerConfig,
    errors,
    write_cache,
)
from tests.support import (
    Source,
    edit_manifest,
    finish,
    manifest,
    numbered,
    open_in_order,
    pairs,
    read,
    start,
    write,
    writer,
)

LZ4 = ShardCompression(algo="lz4", ratio=2.0)


# Files


def test_shards_are_closed_before_they_pass_the_limit(tmp_path):
    items = [(bytes([n]) * 100, {"n": n}) for n in range(50)]
    items[20] = (b"x" * 5000, {"n": 20})
    path = write(tmp_path, items, max_shard_bytes=1000)
    shards = manifest(path)["shards"]
    sizes = [(path / "shards" / shard["name"]).stat().st_size for shard in shards]
    assert sizes == [shard["byte_len"] for shard in shards]
    assert [shard["name"] for shard in shards] == [f"{n:06}.bin" for n in range(len(shards))]
    assert len([size for size in sizes if size > 1000]) == 1
    assert max(sizes) > 5000
    assert sorted(entry.name for entry in (path / "shards").iterdir()) == [shard["name"] for shard in shards]
    assert sum(shard["uncompressed_byte_len"] for shard in shards) == 49 * 100 + 5000
    assert pairs(read(path)) == items


@pytest.mark.parametrize("level", [None, 1, 2, 9, 12])
def test_lz4_payloads_shrink_and_come_back_equal(tmp_path, level):
    items = [(b"ab" * 5000, {"n": 0}), (os.urandom(3000), {"n": 1}), (b"", {"n": 2}), (b"x", {"n": 3})]
    path = write(tmp_path, items * 20, shard_compression=ShardCompression(algo="lz4", ratio=2.0, level=level))
    assert pairs(read(path)) == items * 20
    [shard] = manifest(path)["shards"]
    assert shard["compression"] == {"algo": "lz4", "ratio": 2.0}
    assert shard["uncompressed_byte_len"] == 20 * 13_001
    assert shard["byte_len"] < 20 * 5000


def test_a_higher_level_of_lz4_shrinks_more(tmp_path):
    words = ("train", "a photo of", "label", "/data/", "image", ".jpg", "score")
    text = "".join(words[n * n % 7] + str(n * 7919 % 1000) for n in range(4000)).encode()
    sizes = []
    for level in (1, 9):
        path = write(tmp_path / str(level), [(text, {})], shard_compression=ShardCompression(algo="lz4", level=level))
        [shard] = manifest(path)["shards"]
        sizes.append(shard["byte_len"])
    assert sizes[1] < 0.9 * sizes[0]


@pytest.mark.parametrize("level", [-7, 1, 3, 19])
def test_zstd_payloads_shrink_and_come_back_equal(tmp_path, level):
    items = [(b"ab" * 5000, {"n": 0}), (os.urandom(3000), {"n": 1}), (b"", {"n": 2}), (b"x", {"n": 3})]
    path = write(tmp_path, items * 20, shard_compression=ShardCompression(algo="zstd", ratio=3.0, level=level))
    assert pairs(read(path)) == items * 20
    assert manifest(path)["format_version"] == 4
    [shard] = manifest(path)["shards"]
    assert shard["compression"] == {"algo": "zstd", "ratio": 3.0}
    assert shard["uncompressed_byte_len"] == 20 * 13_001
    assert shard["byte_len"] < 20 * 3500


def test_a_zstd_dictionary_lies_in_the_cache_and_shrinks_short_records(tmp_path):
    items = [(f"sample {n}: a photo of object number {n * 7919} on a table".encode(), {"n": n}) for n in range(3000)]
    plain, trained = (
        write(tmp_path / name, items, shard_compression=ShardCompression(algo="zstd", dictionary_bytes=size))
        for name, size in [("plain", 0), ("trained", 4096)]
    )
    assert pairs(read(plain)) == pairs(read(trained)) == items
    assert "dictionary" not in manifest(plain)
    described = manifest(trained)["dictionary"]
    dictionary = (trained / "dictionary.zstd").read_bytes()
    assert described == {"byte_len": len(dictionary), "sha256": hashlib.sha256(dictionary).hexdigest()}
    lengths = [manifest(path)["shards"][0]["byte_len"] for path in (plain, trained)]
    assert lengths[1] < lengths[0] * 2 / 3
    (trained / "dictionary.zstd").write_bytes(dictionary[:-1] + b"?")
    with pytest.raises(errors.CorruptCacheError, match=r"dictionary\.zstd"):
        pairs(read(trained))


def test_very_many_tiny_samples(tmp_path):
    count = 200_000
    path = write(tmp_path, ((b"", {"n": n}) for n in range(count)))
    dataset = open_in_order(path)
    assert len(dataset) == count
    assert dataset[count - 1] == (b"", {"n": count - 1}, 0, count - 1)
    assert [sample.metadata["n"] for sample in dataset] == list(range(count))


def test_a_base_directory_that_cannot_be_made_is_an_error_of_each_source(tmp_path):
    (tmp_path / "file").write_text("")
    results = write_cache(
        [Source("a", numbered(1)), Source("b", numbered(1))], tmp_path / "file" / "base", writer_config=writer()
    )
    assert [result.source_name for result in results] == ["a", "b"]
    assert all(isinstance(result, CacheWriteError) and str(tmp_path / "file") in result.message for result in results)


def test_a_base_directory_is_made_with_its_parents(tmp_path):
    assert write(tmp_path / "a" / "b" / "ç d", numbered(1)).is_dir()


# Profile and progress


def profiled(path):
    return {"profiler": WriterProfilerConfig(enabled=True, path=path)}


def test_the_profile_counts_samples_bytes_stages_and_sources(tmp_path):
    report = tmp_path / "new folder" / "profile.json"
    write(tmp_path, [(b"12345", {"n": n}) for n in range(1000)], **profiled(report))
    profile = json.loads(report.read_text())
    assert profile["status"] == "ok"
    assert (profile["samples"], profile["payload_bytes"]) == (1000, 5000)
    assert 1 <= profile["peak_samples_in_flight"] <= 64
    assert profile["sources"] == [{"name": "train", "status": "written", "detail": str(tmp_path / "train")}]
    expected = "source_wait ingest encode compress checksum queue_wait commit write hash fsync publish"
    assert set(profile["stages"]) == set(expected.split())
    assert profile["stages"]["publish"]["count"] == 1


def test_no_profile_is_written_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "base", numbered(1))
    assert [entry.name for entry in tmp_path.iterdir()] == ["base"]


def test_the_profile_is_written_after_a_failure_and_after_an_interrupt(tmp_path):
    report = tmp_path / "profile.json"

    def items(kind):
        yield from numbered(5)
        raise kind("stop")

    write_cache(
        [Source("bad", items(LookupError)), Source("good", numbered(1))],
        tmp_path / "a",
        writer_config=writer(**profiled(report)),
    )
    profile = json.loads(report.read_text())
    assert profile["status"] == "failed"
    assert [(source["name"], source["status"]) for source in profile["sources"]] == [
        ("bad", "error"),
        ("good", "written"),
    ]
    assert profile["sources"][0]["detail"] == "sample 5: LookupError: stop"
    with pytest.raises(KeyboardInterrupt):
        write_cache(
            [Source("good", numbered(1)), Source("bad", items(KeyboardInterrupt))],
            tmp_path / "b",
            writer_config=writer(**profiled(report)),
        )
    profile = json.loads(report.read_text())
    assert profile["status"] == "interrupted"
    assert [(source["name"], source["status"]) for source in profile["sources"]] == [
        ("good", "written"),
        ("bad", "interrupted"),
    ]


def test_a_profile_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    config = writer(**profiled(tmp_path / "file" / "profile.json"))
    with pytest.warns(RuntimeWarning, match="profile"):
        [result] = write_cache(Source("train", numbered(1)), tmp_path, writer_config=config)
    assert isinstance(result, CacheWriteSuccess)


def test_progress_is_quiet_when_not_on_a_terminal(tmp_path, capfd):
    write(tmp_path, numbered(1000), show_progress=True)
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize("shown", [True, False])
def test_progress_is_drawn_on_a_terminal_unless_switched_off(tmp_path, shown):
    master, slave = pty.openpty()
    child = start(
        """
        import sys
        from tests.support import numbered, write
        from pathlib import Path
        write(Path(sys.argv[1]), numbered(1000), show_progress=sys.argv[2] == "True")
        """,
        tmp_path,
        shown,
        stderr=slave,
    )
    os.close(slave)
    drawn = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # what Linux says at the end of a terminal
            break
        if not part:
            break
        drawn += part
    os.close(master)
    assert finish(child) is None
    assert (b"sources" in drawn) is shown, drawn


def test_a_manifest_without_its_seal_still_opens(tmp_path):
    path = write(tmp_path, numbered(2))
    edit_manifest(path, source_name="another")
    assert pairs(read(path)) == numbered(2)
