"""`append_cache`: what it takes, what it refuses, and that nothing is changed by what goes wrong."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dataset_rt import (
    CachedDataset,
    CacheSourcesDatasetSuccess,
    ShardCompression,
    WriterProfilerConfig,
    append_cache,
    delete_samples,
    write_arrays,
)
from dataset_rt.errors import (
    AppendMismatchError,
    CacheLockedError,
    CacheNotFoundError,
    ConfigError,
    SampleError,
)
from tests.support import (
    Source,
    finish,
    hear,
    manifest,
    numbered,
    open_in_order,
    pairs,
    read,
    reader,
    start,
    write,
    writer,
)

CONFIG = writer()


@pytest.fixture
def cache(tmp_path):
    return write(tmp_path, numbered(20))


@pytest.fixture
def unchanged(tmp_path):
    """Check that a test leaves every file as it found it, and nothing beside them but an empty folder."""
    before: dict[str, bytes] = {}
    yield lambda: before.update(_files(tmp_path))
    assert before
    assert _files(tmp_path) == before


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass
class Declared(Source):
    """A source that declares its payload fields."""

    payload_schema: Any = None


ADDED = {
    "data": [payload for payload, _ in numbered(3, 20)],
    "n": [20, 21, 22],
    "name": ["sample 20", "sample 21", "sample 22"],
}
"""Columns of three samples more than the cache has."""


class Table:
    """A source of one table."""

    name = "table"

    def __init__(self, table: Any) -> None:
        self.table = table

    def __iter__(self) -> Any:
        yield self.table


def test_samples_follow_those_that_the_cache_has(cache):
    before = open_in_order(cache)
    change = append_cache(Source("of any name", numbered(5, 20), version=3), cache, writer_config=CONFIG)
    assert change.path == cache.resolve()
    assert (change.operation, change.generation, change.previous_generation) == ("append", 1, 0)
    assert (change.samples, change.added, change.deleted, change.changed) == (25, 5, 0, True)
    added = cache / "generations" / "000001"
    written = sum(path.stat().st_size for path in added.rglob("*.*") if path.name != "manifest.json")
    assert change.bytes_written == written
    samples = read(cache, validate_cache=True)
    assert pairs(samples) == numbered(25)
    assert [sample.sample_id for sample in samples] == list(range(25))
    assert pairs(before) == numbered(20)
    newest = json.loads((added / "manifest.json").read_text())
    assert (newest["source_name"], newest.get("source_version")) == ("train", None)


def test_ids_of_deleted_samples_are_not_given_again(cache):
    delete_samples(cache, [0, 19])
    change = append_cache(Source(items=numbered(3, 20)), cache, writer_config=CONFIG)
    assert (change.generation, change.samples) == (2, 21)
    samples = read(cache)
    assert [sample.sample_id for sample in samples] == [*range(1, 19), 20, 21, 22]
    assert pairs(samples) == [*numbered(18, 1), *numbered(3, 20)]


@pytest.mark.parametrize(
    "source",
    [
        Source(items=numbered(3, 20)),
        Table(pl.DataFrame(ADDED)),
        Table(pa.table(ADDED)),
    ],
    ids=["samples", "frame", "arrow"],
)
def test_samples_come_one_by_one_or_in_tables(cache, source):
    assert append_cache(source, cache, writer_config=CONFIG).added == 3
    assert pairs(read(cache, validate_cache=True)) == numbered(23)


def test_arrays_are_appended_with_their_metadata(cache):
    rows = numbered(3, 20)
    metadata = pl.DataFrame([m for _, m in rows])
    change = append_cache({"data": [p for p, _ in rows]}, cache, metadata=metadata, writer_config=CONFIG)
    assert change.added == 3
    assert pairs(read(cache, validate_cache=True)) == numbered(23)


def test_typed_arrays_are_appended_dense_and_ragged(tmp_path):
    def arrays(start: int, count: int) -> dict[str, Any]:
        image = np.arange(start * 6, (start + count) * 6, dtype=np.int16).reshape(count, 2, 3)
        offsets = np.arange(count + 1)
        return {"image": image, "tokens": (np.arange(start, start + count, dtype=np.float32), offsets)}

    write_arrays("train", arrays(0, 4), tmp_path, writer_config=CONFIG)
    cache = tmp_path / "train"
    assert append_cache(arrays(4, 3), cache, writer_config=CONFIG).added == 3
    one = {"image": np.zeros((2, 3), np.int16), "tokens": np.zeros(9, np.float32)}
    assert append_cache(Source(items=[(one, {})]), cache, writer_config=CONFIG).samples == 8
    batch = CachedDataset([cache], reader_config=reader(validate_cache=True)).gather(range(8))
    assert (batch["image"][:7] == arrays(0, 7)["image"]).all()
    assert [len(value) for value in batch["tokens"]] == [1] * 7 + [9]


@pytest.mark.parametrize("algo", ["none", "lz4", "zstd"])
def test_new_shards_are_compressed_in_their_own_way(cache, algo):
    compression = ShardCompression(algo=algo)
    append_cache(Source(items=numbered(30, 20)), cache, writer_config=writer(shard_compression=compression))
    assert pairs(read(cache, validate_cache=True)) == numbered(50)


def test_a_column_may_get_its_first_null(cache):
    append_cache(Source(items=[(b"x", {"n": None, "name": None})]), cache, writer_config=CONFIG)
    assert read(cache, validate_cache=True)[20].metadata == {"n": None, "name": None}
    table = open_in_order(cache).samples_metadata()
    assert table["n"].null_count() == 1


def test_nothing_appended_changes_nothing(cache, unchanged):
    unchanged()
    change = append_cache(Source(items=[]), cache, writer_config=CONFIG)
    assert (change.changed, change.generation, change.added, change.bytes_written) == (False, 0, 0, 0)
    assert not append_cache({"data": []}, cache, writer_config=CONFIG).changed


METADATA = {"n": 1, "name": ""}


def one(data: Any, metadata: Any) -> Source:
    """Return a source of one sample."""
    return Source(items=[(data, metadata)])


@pytest.mark.parametrize(
    ("source", "kind", "facts", "text"),
    [
        (
            Source(items=[*numbered(1), (b"", METADATA | {"n": "1"})]),
            SampleError,
            {"row": 1, "column": "n"},
            "int or null",
        ),
        (one(b"", {"n": 1}), SampleError, {"row": 0}, "`name` is missing; what is appended needs the metadata"),
        (one({"x": 1}, METADATA), SampleError, {"row": 0}, "`x` where the cache"),
        (one(b"", METADATA | {"o": 0}), SampleError, {"row": 0}, "`o` is unexpected"),
        (Source(schema={"n": int}), AppendMismatchError, {"column": "name", "found": "no column"}, "is string in the"),
        (Source(schema={"n": float, "name": str}), AppendMismatchError, {"column": "n"}, "declares float"),
        (
            Declared(payload_schema={"x": ("int8", ())}),
            AppendMismatchError,
            {"subject": "payload field"},
            "plain bytes",
        ),
        (Table(pl.DataFrame({"x": [[1]], "n": [1], "name": [""]})), SampleError, {"row": 0}, "plain bytes"),
        (Table(pl.DataFrame({"data": [b""], "n": [1.5], "name": [""]})), SampleError, {"column": "n"}, "expected int"),
        ({"x": np.zeros((2, 3))}, SampleError, {"row": 0}, "plain bytes"),
        ({"data": [b"x"]}, SampleError, {"row": 0}, "`n` is missing"),
        ({"data": np.array([object()])}, ConfigError, {"option": "arrays"}, "object dtype"),
        ({}, ConfigError, {"option": "arrays"}, "no arrays"),
        (object(), TypeError, {}, "without the attribute `name`"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_nothing_is_changed(cache, unchanged, source, kind, facts, text):
    unchanged()
    with pytest.raises(kind, match=text) as caught:
        append_cache(source, cache, writer_config=CONFIG)
    for name, value in facts.items():
        assert getattr(caught.value, name) == value


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        (Source(items=[(b"x", {})]), SampleError, "data is of type bytes, expected a mapping"),
        (Source(items=[({"y": np.zeros(2, np.int8)}, {})]), SampleError, "`x` is missing"),
        (Source(items=[({"x": np.zeros(2, np.int16)}, {})]), SampleError, "field `x`"),
        (Source(items=[({"x": np.zeros(3, np.int8)}, {})]), SampleError, "field `x`"),
        ({"x": np.zeros((1, 3), np.int8)}, SampleError, "field `x`"),
        ({"data": [b"x"]}, SampleError, "`x` is missing and `data` is unexpected; what is appended"),
        (Declared(payload_schema={"x": ("int8", (3,))}), AppendMismatchError, "field `x`"),
        (Declared(payload_schema={"x": ("int8", (2,)), "y": bytes}), AppendMismatchError, "field `y` is no field"),
    ],
)
def test_payload_fields_must_be_those_of_the_cache(tmp_path, unchanged, source, kind, text):
    write_arrays("train", {"x": np.zeros((4, 2), np.int8)}, tmp_path, writer_config=CONFIG)
    unchanged()
    with pytest.raises(kind, match=text):
        append_cache(source, tmp_path / "train", writer_config=CONFIG)


def test_a_source_may_declare_what_the_cache_has(tmp_path):
    cache = write(tmp_path, [({"x": np.zeros(2, np.int8)}, {"n": 1})])
    items, fields = [({"x": [1, 2]}, {"n": None})], {"x": ("int8", (2,))}
    source = Declared(items=items, schema={"n": int | None}, payload_schema=fields)
    assert append_cache(source, cache, writer_config=CONFIG).samples == 2
    strict = replace(source, schema={"n": int})
    with pytest.raises(SampleError, match="expected int, found null"):
        append_cache(strict, cache, writer_config=CONFIG)


def test_the_dictionary_of_the_cache_is_used_and_none_can_be_added(tmp_path, unchanged):
    items = numbered(3000)
    trained = ShardCompression(algo="zstd", dictionary_bytes=4096)
    cache = write(tmp_path / "trained", items, shard_compression=trained)
    assert "dictionary" in manifest(cache)
    for config in (trained, ShardCompression(algo="zstd", level=5)):
        append_cache(Source(items=items), cache, writer_config=writer(shard_compression=config))
    assert pairs(read(cache, validate_cache=True)) == items * 3
    plain = write(tmp_path / "plain", items)
    unchanged()
    for path, least in ((plain, 4096), (cache, 1024)):
        config = writer(shard_compression=ShardCompression(algo="zstd", dictionary_bytes=least))
        with pytest.raises(ConfigError, match="the cache has") as caught:
            append_cache(Source(items=items), path, writer_config=config)
        assert caught.value.option == "shard_compression.dictionary_bytes"


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_a_source_raises_is_raised_as_it_is(cache, unchanged, kind):
    unchanged()
    error = kind("of the source")

    def items():
        yield from numbered(1000)
        raise error

    with pytest.raises(kind) as caught:
        append_cache(Source(items=items()), cache, writer_config=CONFIG)
    assert caught.value is error


def test_ctrl_c_changes_nothing(cache, unchanged):
    unchanged()
    child = start(
        """
        import sys
        from tests.support import Source, numbered, writer
        from dataset_rt import append_cache

        def items():
            yield from numbered(1000)
            print("going", flush=True)
            while True:
                yield from numbered(1000)

        try:
            append_cache(Source(items=items()), sys.argv[1], writer_config=writer())
        except KeyboardInterrupt:
            print('"interrupted"')
        """,
        cache,
    )
    assert hear(child) == "going"
    child.send_signal(signal.SIGINT)
    assert finish(child) == "interrupted"


def test_a_disk_that_is_full_changes_nothing(cache, unchanged):
    unchanged()
    script = """
        import resource, signal, sys
        from tests.support import Source, numbered, writer
        from dataset_rt import append_cache
        from dataset_rt.errors import CacheIOError

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            append_cache(Source(items=numbered(20_000)), sys.argv[1], writer_config=writer())
        except CacheIOError as error:
            print()
            print(f'"{error.action}"')
    """
    assert finish(start(script, cache)) == "write"


def test_one_maintainer_at_a_time(cache):
    def items():
        with pytest.raises(CacheLockedError):
            append_cache({"data": [b""]}, cache, writer_config=CONFIG)
        with pytest.raises(CacheLockedError):
            delete_samples(cache, [1])
        yield from numbered(1, 20)

    assert append_cache(Source(items=items()), cache, writer_config=CONFIG).added == 1
    assert not (cache.parent / ".train.lock").exists()


def test_a_missing_cache_and_metadata_in_the_wrong_place_are_refused(cache, tmp_path, unchanged):
    unchanged()
    with pytest.raises(CacheNotFoundError):
        append_cache(Source(items=numbered(1)), tmp_path / "none", writer_config=CONFIG)
    with pytest.raises(TypeError, match="metadata belongs to arrays"):
        append_cache(Source(items=numbered(1)), cache, metadata=pl.DataFrame({"n": [1]}), writer_config=CONFIG)


def test_a_cache_that_grew_is_reused(cache):
    source = Source(items=numbered(20))
    append_cache(Source(items=numbered(5, 20)), cache, writer_config=CONFIG)
    delete_samples(cache, [3])
    for validate_cache in (False, True):
        result = CachedDataset.from_cache_sources(
            [source],
            cache.parent,
            writer_config=writer(validate_cache=validate_cache),
            reader_config=reader(shuffle=False),
        )
        assert isinstance(result, CacheSourcesDatasetSuccess)
        assert len(result.dataset) == 24
    assert source.passes == []


def test_a_report_is_written_where_it_is_asked_for(cache, tmp_path):
    report = tmp_path / "report.json"
    config = writer(profiler=WriterProfilerConfig(enabled=True, path=report))
    append_cache(Source("delta", numbered(5, 20)), cache, writer_config=config)
    told = json.loads(report.read_text())
    assert told["status"] == "ok"
    assert told["sources"][0]["name"] == "delta"
