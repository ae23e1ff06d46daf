"""Sources that yield whole Arrow tables or Polars frames: which columns are what, and what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dataset_rt import CachedDataset, CacheInput, CacheWriteError, CacheWriteSuccess, ShardCompression, write_cache
from tests import stored
from tests.support import manifest, open_in_order, pairs, reader, write, writer


@dataclass
class Tables:
    """A source of tables."""

    items: list[Any]
    name: str = "train"
    schema: Any = None
    payload_schema: Any = None
    payload_columns: Any = None
    taken: list[int] = field(default_factory=list)

    def __iter__(self) -> Any:
        for item in self.items:
            self.taken.append(1)
            yield item


def put(base: Path, *items: Any, **changes: Any) -> Path:
    """Write tables and return the cache."""
    [result] = write_cache(Tables(list(items), **changes), base, writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result
    return result.path


def put_refused(base: Path, *items: Any, **changes: Any) -> str:
    """Try to write tables and return why they were refused; nothing may be left of them."""
    [result] = write_cache(Tables(list(items), **changes), base, writer_config=writer())
    assert isinstance(result, CacheWriteError), result
    assert list(base.iterdir()) == []
    return result.message


def fields(path: Path) -> dict[str, str]:
    """Return dtype and shape of every payload field."""
    return {spec["name"]: f"{spec['dtype']} {spec['shape']}" for spec in manifest(path)["payload"]["fields"]}


BYTES = [b"a", b"", b"more than twelve bytes"]


# The rule


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array(BYTES, pa.binary()), id="binary"),
        pytest.param(pa.array(BYTES, pa.large_binary()), id="large-binary"),
        pytest.param(pa.array(BYTES, pa.binary_view()), id="binary-view"),
        pytest.param(pl.Series(BYTES), id="polars"),
    ],
)
def test_one_column_of_bytes_called_data_is_the_plain_payload(tmp_path, column):
    table = pa.table({"data": pa.array(column) if isinstance(column, pa.Array) else column.to_arrow(), "n": [1, 2, 3]})
    path = put(tmp_path, table)
    assert "payload" not in manifest(path)
    assert manifest(path)["format_version"] == 2
    assert pairs(open_in_order(path)) == [(data, {"n": n}) for data, n in zip(BYTES, (1, 2, 3), strict=True)]
    other = write(tmp_path / "other", [(data, {"n": n}) for data, n in zip(BYTES, (1, 2, 3), strict=True)])
    assert (path / "shards" / "000000.bin").read_bytes() == (other / "shards" / "000000.bin").read_bytes()


def test_columns_of_bytes_and_lists_are_fields_and_scalars_are_metadata(tmp_path):
    images = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    frame = pl.DataFrame(
        {
            "label": ["cat", "lynx"],
            "image": images,
            "tokens": pl.Series([[1, 2, 3], []], dtype=pl.List(pl.Int32)),
            "boxes": pl.Series([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], dtype=pl.List(pl.Array(pl.Float32, 2))),
            "jpeg": [b"jpeg", b""],
            "mask": pl.Series([[True, False], [False, True]], dtype=pl.Array(pl.Boolean, 2)),
            "score": [0.5, None],
        }
    )
    path = put(tmp_path, frame)
    assert fields(path) == {
        "boxes": "float32 [None, 2]",
        "image": "uint8 [3, 4]",
        "jpeg": "bytes [None]",
        "mask": "bool [2]",
        "tokens": "int32 [None]",
    }
    assert manifest(path)["format_version"] == 4
    found = stored.samples(path)
    assert [sample["jpeg"] for sample in found] == [b"jpeg", b""]
    for name, expected in [
        ("image", images.tolist()),
        ("tokens", [[1, 2, 3], []]),
        ("boxes", [[[1, 2]], [[3, 4], [5, 6]]]),
        ("mask", [[True, False], [False, True]]),
    ]:
        assert [sample[name].tolist() for sample in found] == expected, name
    metadata = [json.loads(text) for text, _ in stored.records(path)]
    assert metadata == [{"label": "cat", "score": 0.5}, {"label": "lynx", "score": None}]


def test_dense_columns_alone_stay_in_the_lowest_format(tmp_path):
    path = put(tmp_path, pl.DataFrame({"x": np.ones((3, 2), np.float32)}))
    assert fields(path) == {"x": "float32 [2]"}
    assert manifest(path)["format_version"] == 2


def test_payload_columns_decide_against_the_rule(tmp_path):
    frame = pl.DataFrame({"label": [1, 2], "x": [3.5, 4.5], "n": [7, 8]})
    path = put(tmp_path, frame, payload_columns=["x", "label"])
    assert fields(path) == {"label": "int64 []", "x": "float64 []"}
    assert [json.loads(text) for text, _ in stored.records(path)] == [{"n": 7}, {"n": 8}]


def test_a_declared_column_called_data_is_a_field(tmp_path):
    path = put(tmp_path, pl.DataFrame({"data": BYTES}), payload_schema={"data": bytes})
    assert fields(path) == {"data": "bytes [None]"}


# Streams


@pytest.mark.parametrize(
    "split",
    [
        pytest.param(lambda frame: [frame], id="frame"),
        pytest.param(lambda frame: [frame.slice(0, 1), frame.slice(1, 60), frame.slice(61)], id="slices"),
        pytest.param(lambda frame: [pl.concat([frame.slice(0, 7), frame.slice(7)], rechunk=False)], id="chunks"),
        pytest.param(lambda frame: [frame.slice(0, 0), frame, frame.slice(0, 0)], id="empty-frames"),
        pytest.param(lambda frame: [frame.to_arrow()], id="arrow"),
        pytest.param(lambda frame: frame.to_arrow().to_batches(max_chunksize=9), id="batches"),
        pytest.param(lambda frame: [frame.to_arrow().to_reader(max_chunksize=9)], id="reader"),
    ],
)
def test_how_rows_are_split_into_tables_does_not_matter(tmp_path, split):
    count = 100
    tokens = [list(range(n % 7)) for n in range(count)]
    frame = pl.DataFrame(
        {
            "tokens": pl.Series(tokens, dtype=pl.List(pl.UInt16)),
            "jpeg": [b"%d" % n for n in range(count)],
            "image": np.arange(count * 4, dtype=np.int16).reshape(count, 2, 2),
            "n": range(count),
            "name": [None if n % 3 == 0 else f"sample {n}" for n in range(count)],
        }
    )
    path = put(tmp_path, *split(frame))
    found = stored.samples(path)
    assert [sample["tokens"].tolist() for sample in found] == tokens
    assert [sample["jpeg"] for sample in found] == frame["jpeg"].to_list()
    assert [sample["image"].tolist() for sample in found] == frame["image"].to_list()
    metadata = [json.loads(text) for text, _ in stored.records(path)]
    assert metadata == frame.select("n", "name").to_dicts()
    assert open_in_order(path).samples_metadata()["name"].to_list() == frame["name"].to_list()


def test_anything_with_the_arrow_interface_is_a_table(tmp_path):
    class Foreign:
        def __init__(self, table):
            self.table = table

        def __arrow_c_array__(self, requested_schema=None):
            return self.table.__arrow_c_array__(requested_schema)

    batch = pa.record_batch({"data": pa.array(BYTES), "n": pa.array([1, 2, 3])})
    path = put(tmp_path, Foreign(batch), Foreign(batch.slice(1, 1)))
    assert [sample.data for sample in open_in_order(path)] == [*BYTES, b""]


def test_tables_are_compressed_with_a_dictionary_like_samples(tmp_path):
    frame = pl.DataFrame({"data": [b"payload number %d of many" % n for n in range(5000)], "n": range(5000)})
    compression = ShardCompression(algo="zstd", dictionary_bytes=1024)
    config = writer(shard_compression=compression)
    [one] = write_cache(Tables([frame]), tmp_path, writer_config=config)
    assert isinstance(one, CacheWriteSuccess), one
    items = list(zip(frame["data"], ({"n": n} for n in range(5000)), strict=True))
    two = write(tmp_path / "two", items, shard_compression=compression)
    assert (one.path / "shards" / "000000.bin").read_bytes() == (two / "shards" / "000000.bin").read_bytes()
    assert pairs(open_in_order(one.path)) == items


def test_sources_of_tables_are_reused(tmp_path):
    source = Tables([pl.DataFrame({"data": BYTES})])
    for _ in range(2):
        CachedDataset.from_cache_sources(source, tmp_path, reader_config=reader(), writer_config=writer())
        assert len(source.taken) == 1


# Refusals


def test_samples_and_tables_do_not_mix(tmp_path):
    table = pl.DataFrame({"data": BYTES})
    message = put_refused(tmp_path, table, CacheInput(b"", {}))
    assert message.startswith("sample 3: expected a table as before, found dataset_rt.records.CacheInput")
    message = put_refused(tmp_path, CacheInput(b"", {}), table)
    assert message.startswith("sample 1: expected CacheInput(data, metadata) as before, found polars.")
    assert message.endswith("a source gives samples or tables, not both")


@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        pytest.param({"x": [[1]]}, {"y": [[1]]}, ["`x` is missing", "`y` is unexpected"], id="other-field"),
        pytest.param({"x": [[1]]}, {"x": [[1.5]]}, ["`x`", "int64 (None,)", "float64 (None,)"], id="other-dtype"),
        pytest.param({"data": [b""]}, {"data": [b""], "x": [[1]]}, ["`data`", "alone"], id="no-longer-plain"),
        pytest.param({"data": [b""], "n": [1]}, {"data": [b""]}, ["`n` is missing"], id="missing-metadata"),
        pytest.param(
            {"data": [b""], "n": [1]}, {"data": [b""], "n": ["a"]}, ["`n`", "int", "string"], id="metadata-type"
        ),
        pytest.param({"data": [b""]}, {"data": [None]}, ["`data`", "null"], id="null"),
        pytest.param({"x": [[1]]}, {"x": [[None]]}, ["`x`", "null"], id="null-inside"),
    ],
)
def test_a_table_that_differs_is_refused_with_its_row(tmp_path, first, second, parts):
    types = {"data": pl.Binary} if "data" in second else {}
    types |= {"x": pl.List(pl.Int64)} if second.get("x") == [[None]] else {}
    message = put_refused(tmp_path, pl.DataFrame(first), pl.DataFrame(second, schema_overrides=types))
    assert message.startswith("sample 1: ")
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("frame", "changes", "parts"),
    [
        pytest.param({"n": [1]}, {}, ["without payload columns", "payload_columns"], id="no-payload"),
        pytest.param({"x": [[1]]}, {"payload_columns": ["y"]}, ["`y` is missing"], id="named-and-missing"),
        pytest.param({"x": ["a"]}, {"payload_columns": ["x"]}, ["`x`", "Utf8", "cast text to binary"], id="text"),
        pytest.param({"x": [[[1]]]}, {}, ["`x`", "outermost"], id="list-of-lists"),
        pytest.param({"x": [["a"]]}, {}, ["`x`", "Utf8"], id="list-of-text"),
        pytest.param({"x": [[1]], "s": [{"a": 1}]}, {}, ["`s`", "Struct"], id="struct"),
        pytest.param({"x": [[1]]}, {"payload_columns": "x"}, ["payload_columns is of type str"], id="no-list"),
        pytest.param({"x": [[1]]}, {"payload_schema": {"x": ("int32", (None,))}}, ["int32", "int64"], id="declared"),
        pytest.param({"x": [[1]], "n": [None]}, {"schema": {"n": int}}, ["`n`", "null"], id="declared-metadata"),
        pytest.param({"x": [[1]], "weight": [1]}, {}, ["`weight`", "rename"], id="reserved"),
    ],
)
def test_tables_that_cannot_be_stored_are_refused(tmp_path, frame, changes, parts):
    message = put_refused(tmp_path, pl.DataFrame(frame), **changes)
    assert all(part in message for part in parts), message


def test_an_exception_while_a_table_is_read_reaches_the_result(tmp_path):
    def batches():
        yield pa.record_batch({"data": pa.array([b"a"])})
        raise RuntimeError("out of film")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"data": pa.binary()}), batches())
    assert "out of film" in put_refused(tmp_path, reader)


def test_sources_without_rows_are_empty(tmp_path):
    message = put_refused(tmp_path, pl.DataFrame(schema={"data": pl.Binary}))
    assert message.startswith('source "train" yielded no samples')
