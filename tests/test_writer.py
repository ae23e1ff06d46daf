"""Writing: what a source may yield, what is refused and how, and what the results say."""

from __future__ import annotations

import array
import ctypes
import hashlib
import json
import math
import mmap
import os
import pty
import tempfile
import threading
from collections import UserDict
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_rt import (
    CachedDataset,
    CacheInput,
    CacheSource,
    CacheSourcesDatasetError,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteSuccess,
    ShardCompression,
    WriterProfilerConfig,
    errors,
    write_cache,
)
from tests.support import (
    PATIENCE,
    Source,
    edit_manifest,
    finish,
    flip,
    manifest,
    numbered,
    open_in_order,
    pairs,
    read,
    reader,
    refuse,
    start,
    write,
    writer,
)

LZ4 = ShardCompression(algo="lz4", ratio=2.0)
ZSTD = ShardCompression(algo="zstd", ratio=3.0)
TRAINED = ShardCompression(algo="zstd", level=1, dictionary_bytes=1024)


def mapped(data: bytes) -> mmap.mmap:
    memory = mmap.mmap(-1, len(data))
    memory.write(data)
    return memory


class Text(str):
    __slots__ = ()


class Number(int):
    pass


# Payloads


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        pytest.param(b"", b"", id="empty"),
        pytest.param(b"\x00\xff", b"\x00\xff", id="bytes"),
        pytest.param(bytearray(b"ab"), b"ab", id="bytearray"),
        pytest.param(memoryview(b"abcd")[1:3], b"bc", id="memoryview"),
        pytest.param(memoryview(b"abcdefgh").cast("I", (2, 1)), b"abcdefgh", id="shaped-memoryview"),
        pytest.param(
            np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(6, dtype=np.float32).tobytes(), id="numpy"
        ),
        pytest.param(np.zeros((0, 3)), b"", id="empty-numpy"),
        pytest.param(np.array(7, dtype=np.int16), b"\x07\x00", id="numpy-without-axes"),
        pytest.param(np.array([(1, 2)], dtype=[("On", "u1"), ("O", "i1")]), b"\x01\x02", id="structured-numpy"),
        pytest.param(np.frombuffer(b"read only", dtype=np.uint8), b"read only", id="read-only-numpy"),
        pytest.param(array.array("h", [1, -1]), array.array("h", [1, -1]).tobytes(), id="array"),
        pytest.param(mapped(b"mapped"), b"mapped", id="mmap"),
        pytest.param((ctypes.c_uint8 * 3)(1, 2, 3), b"\x01\x02\x03", id="ctypes"),
    ],
)
def test_every_contiguous_buffer_is_stored_as_its_bytes(tmp_path, payload, expected):
    [sample] = read(write(tmp_path, [(payload, {"a": 1})]))
    assert sample.data == expected
    assert type(sample.data) is bytes


@pytest.mark.parametrize(
    ("payload", "parts"),
    [
        pytest.param("text", ["str", "encode"], id="str"),
        pytest.param(None, ["NoneType"], id="none"),
        pytest.param(5, ["int"], id="int"),
        pytest.param([1, 2], ["list"], id="list"),
        pytest.param(memoryview(b"abcdef")[::2], ["gaps"], id="strided-memoryview"),
        pytest.param(np.arange(6)[::2], ["gaps"], id="strided-numpy"),
        pytest.param(np.asfortranarray(np.ones((2, 3))), ["C order"], id="fortran-numpy"),
        pytest.param(np.array([object()]), ["objects"], id="objects"),
        pytest.param(np.array([(1, [])], dtype=[("a", "u1"), ("b", object)]), ["objects"], id="structured-objects"),
        pytest.param(np.array(object()), ["ndarray"], id="object-without-axes"),
    ],
)
def test_other_payloads_are_refused_with_their_row(tmp_path, payload, parts):
    message = refuse(tmp_path, [(b"", {"a": 1}), (b"", {"a": 1}), (payload, {"a": 1})])
    assert message.startswith("sample 2: ")
    assert all(part in message for part in parts), message


def test_a_buffer_that_the_source_reuses_is_copied_before_the_next_sample(tmp_path):
    buffer = np.zeros(5000, dtype=np.uint8)

    def items():
        for n in range(200):
            buffer[:] = n
            yield buffer, {"n": n}

    samples = read(write(tmp_path, items(), prefetch_size=16))
    assert [set(sample.data) for sample in samples] == [{n} for n in range(200)]


def test_buffers_are_released_once_their_sample_is_taken(tmp_path):
    payload = bytearray(b"x")
    write(tmp_path, [(payload, {"a": 1})])
    payload.append(1)  # refused while anybody holds the buffer


# Metadata


@pytest.mark.parametrize(
    "value",
    [
        *(True, False, 0, -1, 2**63 - 1, -(2**63)),
        *(0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan),
        *("", "a", "Grüße", "漢字", "🦀", "nul\x00inside", 'quote " \\ /', "\u2028", "NaN", "e\u0301", "x" * 100_000),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_every_value_comes_back_equal_and_with_its_type(tmp_path, value):
    path = write(tmp_path, [(b"", {"a": value})])
    dataset = open_in_order(path)
    for found in (dataset[0].metadata["a"], dataset.samples_metadata()["a"][0]):
        assert type(found) is type(value)
        assert repr(found) == repr(value)


@pytest.mark.parametrize(
    "kind",
    [
        *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64, np.bool_, np.str_),
    ],
)
def test_numpy_scalars_of_every_width_are_the_values_they_equal(tmp_path, kind):
    value = kind(1)
    [sample] = read(write(tmp_path, [(b"", {"a": value})]))
    assert sample.metadata["a"] == value.item()
    assert type(sample.metadata["a"]) is type(value.item())


@pytest.mark.parametrize(
    ("value", "part"),
    [
        pytest.param(2**63, "beyond 64 bits", id="above"),
        pytest.param(-(2**63) - 1, "beyond 64 bits", id="below"),
        pytest.param(10**400, "beyond 64 bits", id="huge"),
        pytest.param(np.uint64(2**63), "beyond 64 bits", id="numpy-above"),
        pytest.param(np.longdouble(1), "longdouble", id="longdouble"),
        pytest.param(np.datetime64("2026-01-01"), "datetime64", id="datetime64"),
        pytest.param(np.timedelta64(1, "s"), "timedelta64", id="timedelta64"),
        pytest.param(1j, "complex", id="complex"),
        pytest.param(b"bytes", "bytes", id="bytes"),
        pytest.param([1], "list", id="list"),
        pytest.param({}, "dict", id="dict"),
        pytest.param(np.array([1, 2]), "numpy.ndarray", id="array"),
        pytest.param("\ud800", "surrogates", id="surrogate"),
    ],
)
def test_other_values_are_refused_with_row_and_column(tmp_path, value, part):
    message = refuse(tmp_path, [(b"", {"a": None, "b": 1}), (b"", {"a": value, "b": 1})])
    assert message.startswith("sample 1: metadata column `a`: ")
    assert part in message


def test_subclasses_of_builtin_values_become_the_builtin(tmp_path):
    [sample] = read(write(tmp_path, [(b"", {Text("a"): Text("x"), "b": Number(5)})]))
    assert sample.metadata == {"a": "x", "b": 5}
    assert [type(value) for value in sample.metadata.values()] == [str, int]


@pytest.mark.parametrize("wrap", [dict, MappingProxyType, UserDict])
def test_metadata_may_be_any_mapping_in_any_key_order(tmp_path, wrap):
    path = write(tmp_path, [(b"", wrap({"b": 1, "a": "x"})), (b"", wrap({"a": "y", "b": 2}))])
    assert [sample.metadata for sample in read(path)] == [{"a": "x", "b": 1}, {"a": "y", "b": 2}]
    assert list(read(path)[0].metadata) == ["a", "b"]


@pytest.mark.parametrize(
    ("metadata", "part"),
    [
        pytest.param(None, "NoneType", id="none"),
        pytest.param([("a", 1)], "list", id="list"),
        pytest.param({1: 1}, "int", id="int-key"),
        pytest.param({"\ud800": 1}, "Unicode", id="surrogate-key"),
    ],
)
def test_metadata_of_another_shape_is_refused(tmp_path, metadata, part):
    message = refuse(tmp_path, [(b"", metadata)])
    assert message.startswith("sample 0: ")
    assert part in message


def test_ints_in_a_float_column_are_exact_or_refused(tmp_path):
    exact = [0.5, 3, -(2**53), 2**62, None]
    samples = read(write(tmp_path, [(b"", {"a": value}) for value in exact]))
    assert [sample.metadata["a"] for sample in samples] == [0.5, 3.0, -(2.0**53), 2.0**62, None]
    message = refuse(tmp_path, [(b"", {"a": 0.5}), (b"", {"a": 2**53 + 1})], "other")
    assert message.startswith("sample 1: metadata column `a`: ")
    assert str(2**53 + 1) in message


@pytest.mark.parametrize(
    ("first", "second"),
    [(1, 1.5), (1, True), (True, 1), (1.5, True), ("x", 1), (1, "x"), (1.5, "x"), ("x", None)],
)
def test_a_column_keeps_the_type_of_its_first_value(tmp_path, first, second):
    items = [(b"", {"a": first})] * 900 + [(b"", {"a": second})]
    if second is None:
        assert read(write(tmp_path, items))[900].metadata == {"a": None}
        return
    message = refuse(tmp_path, items)
    assert message.startswith("sample 900: metadata column `a`: ")


@pytest.mark.parametrize("value", [True, 5, 0.5, "x"])
@pytest.mark.parametrize("nulls", [1, 1000, 70_000])
def test_a_type_may_be_learned_after_any_number_of_nulls(tmp_path, value, nulls):
    path = write(
        tmp_path,
        [(b"", {"a": None, "n": n}) for n in range(nulls)] + [(b"", {"a": value, "n": nulls})],
        prefetch_size=4096,
    )
    dataset = open_in_order(path)
    table = dataset.samples_metadata()
    assert table["a"].null_count() == nulls
    assert table["a"][nulls] == value
    assert type(dataset[nulls].metadata["a"]) is type(value)
    assert dataset[nulls - 1].metadata == {"a": None, "n": nulls - 1}


def test_a_first_null_may_come_after_any_number_of_values(tmp_path):
    path = write(tmp_path, [*((b"", {"a": n}) for n in range(70_000)), (b"", {"a": None})], prefetch_size=4096)
    table = open_in_order(path).samples_metadata()
    assert table["a"].null_count() == 1
    assert table["a"][:70_000].to_list() == list(range(70_000))


def test_a_column_of_nulls_is_text(tmp_path):
    dataset = open_in_order(write(tmp_path, [(b"", {"a": None})] * 3))
    assert dataset.samples_metadata().schema["a"] == pl.String
    assert dataset[1].metadata == {"a": None}


def test_nulls_and_non_finite_floats_raise_the_format_version_and_nothing_else_does(tmp_path):
    versions = {
        name: manifest(write(tmp_path, [(b"", {"a": value}), (b"", {"a": 0.5})], name))["format_version"]
        for name, value in {"plain": 1.5, "null": None, "nan": math.nan, "infinite": -math.inf}.items()
    }
    assert versions == {"plain": 2, "null": 4, "nan": 4, "infinite": 4}


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        (["a"], ["`b` is missing"]),
        (["a", "b", "c"], ["`c` is unexpected"]),
        (["a", "c"], ["`b` is missing", "`c` is unexpected"]),
        ([], ["`a` is missing"]),
        (["a", 2], ["a metadata key is of type int"]),
    ],
)
def test_missing_and_extra_keys_are_named_with_their_row(tmp_path, keys, parts):
    items = [(b"", {"a": 1, "b": 2})] * 5 + [(b"", dict.fromkeys(keys, 1))]
    message = refuse(tmp_path, items)
    assert message.startswith("sample 5: ")
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("name", ["cache_id", "sample_id", "weight"])
def test_names_of_the_samples_table_are_refused_as_columns(tmp_path, name):
    assert f"`{name}`" in refuse(tmp_path, [(b"", {name: 1})])
    assert f"`{name}`" in refuse(tmp_path, [(b"", {name: 1})], schema={name: int})


def test_samples_may_have_no_metadata(tmp_path):
    path = write(tmp_path, [(b"%d" % n, {}) for n in range(70_000)], prefetch_size=4096)
    dataset = open_in_order(path)
    assert dataset.samples_metadata().columns == ["cache_id", "sample_id", "weight"]
    assert len(dataset.samples_metadata()) == 70_000
    assert dataset[69_999] == (b"69999", {}, 0, 69_999)


def test_column_names_may_be_any_text(tmp_path):
    names = ["", " ", "ü", "a.b", 'q"', "\n", "漢"]
    path = write(tmp_path, [(b"", {name: n for n, name in enumerate(names)})])
    assert read(path)[0].metadata == {name: n for n, name in enumerate(names)}
    assert open_in_order(path).samples_metadata().columns[2:-1] == sorted(names, key=str.encode)


VALUES = {
    "bool": st.booleans(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(),
    "str": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
}


@st.composite
def sources(draw):
    names = draw(st.lists(st.text('abé"\\', max_size=3), max_size=4, unique=True))
    columns = {name: draw(st.sampled_from(sorted(VALUES))) for name in names}
    row = st.fixed_dictionaries({name: st.none() | VALUES[kind] for name, kind in columns.items()})
    return draw(st.lists(st.tuples(st.binary(max_size=300), row), min_size=1, max_size=60))


@given(
    items=sources(),
    algo=st.sampled_from([ShardCompression(), LZ4, ZSTD, TRAINED]),
    prefetch=st.integers(1, 70),
    threads=st.integers(1, 4),
    shard_bytes=st.integers(200, 9000),
)
@settings(max_examples=40, deadline=None)
def test_what_a_source_yields_is_what_a_reader_gets(items, algo, prefetch, threads, shard_bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = write(
            Path(folder),
            items,
            shard_compression=algo,
            prefetch_size=prefetch,
            num_threads=threads,
            max_shard_bytes=shard_bytes,
        )
        dataset = open_in_order(path, validate_cache=True, num_workers=2, prefetch_size=prefetch)
        found = pairs(dataset)
        table = dataset.samples_metadata().drop("cache_id", "sample_id", "weight")
    assert repr(found) == repr(
        [(data, dict(sorted(row.items(), key=lambda pair: pair[0].encode()))) for data, row in items]
    )
    assert repr([row for _, row in found]) == repr(table.to_dicts()) or not table.columns


@pytest.mark.parametrize("threads", [1, 7])
def test_the_files_do_not_depend_on_threads_or_prefetch(tmp_path, threads):
    def files(name, **options):
        path = write(tmp_path / name, numbered(500), max_shard_bytes=20_000, **options)
        return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}

    assert files("one", num_threads=1, prefetch_size=1) == files("other", num_threads=threads, prefetch_size=500)


# Declared schemas


SPELLINGS = [
    (bool, "bool", False),
    (int, "int", False),
    (float, "float", False),
    (str, "string", False),
    ("bool", "bool", False),
    ("int", "int", False),
    ("float", "float", False),
    ("str", "string", False),
    ("string", "string", False),
    (int | None, "int", True),
    (None | str, "string", True),
    (Optional[float], "float", True),  # noqa: UP045 (older code declares it so)
    (Union[None, bool], "bool", True),  # noqa: UP007
    ("int | None", "int", True),
    ("str|None", "string", True),
    ("None | bool", "bool", True),
]


@pytest.mark.parametrize(("declared", "kind", "nullable"), SPELLINGS, ids=repr)
def test_a_schema_may_be_spelled_with_classes_or_their_names(tmp_path, declared, kind, nullable):
    value = {"bool": True, "int": 3, "float": 0.5, "string": "x"}[kind]
    path = write(tmp_path, [(b"", {"a": value})], schema={"a": declared})
    [column] = manifest(path)["metadata_schema"]
    assert (column["name"], column["kind"], bool(column.get("nullable"))) == ("a", kind, nullable)
    outcome = write_cache(
        Source("second", [(b"", {"a": None})], schema={"a": declared}), tmp_path, writer_config=writer()
    )
    assert isinstance(outcome[0], CacheWriteSuccess) is nullable, outcome


@pytest.mark.parametrize(
    ("declared", "part"),
    [
        (bytes, "bytes"),
        ("double", "'double'"),
        ("int | str", "'int | str'"),
        ("None", "'None'"),
        (int | str, "int | str"),
        (int | str | None, "int | str | None"),
        (None, "None"),
        (np.int64, "numpy.int64"),
        (5, "5"),
        (type("int", (), {}), "int"),
    ],
    ids=str,
)
def test_other_declared_types_are_refused(tmp_path, declared, part):
    message = refuse(tmp_path, [(b"", {"a": 1})], schema={"a": declared})
    assert "`a`" in message
    assert part in message


def test_a_declared_float_column_takes_ints_from_the_first_row(tmp_path):
    path = write(tmp_path, [(b"", {"a": 1}), (b"", {"a": 0.5})], schema={"a": float})
    assert [repr(sample.metadata["a"]) for sample in read(path)] == ["1.0", "0.5"]


def test_a_declared_schema_names_every_key(tmp_path):
    assert "`b` is missing" in refuse(tmp_path, [(b"", {"a": 1})], schema={"a": int, "b": int})
    assert "`b` is unexpected" in refuse(tmp_path, [(b"", {"a": 1, "b": 1})], schema={"a": int})
    message = refuse(tmp_path, [(b"", {"a": 1}), (b"", {"a": "x"})], schema={"a": int})
    assert message.startswith("sample 1: metadata column `a`: expected int")


@pytest.mark.parametrize("schema", [[("a", int)], 5, {1: int}], ids=["list", "int", "int-key"])
def test_a_schema_of_another_shape_is_refused(tmp_path, schema):
    assert "schema" in refuse(tmp_path, [(b"", {"a": 1})], schema=schema)


def test_methods_called_schema_and_version_are_not_declarations(tmp_path):
    class Framework(Source):
        def schema(self):
            raise AssertionError

        def version(self):
            raise AssertionError

    framework = Framework.__new__(Framework)
    framework.name, framework.items, framework.passes = "train", numbered(2), []
    [result] = write_cache(framework, tmp_path, writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result


# Sources and results


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../up", "a/b", "a\\b", "/etc", "C:", ".hidden", "end.", "end ", " start"),
        *("nul", "NUL.txt", "com1", "LPT9.bin", "a\0b", "a\nb", "x" * 201, "ü" * 101, "a*b", "a?"),
    ],
    ids=lambda name: repr(name)[:12],
)
def test_names_that_are_no_directory_name_everywhere_are_refused(tmp_path, name):
    message = refuse(tmp_path, numbered(1), name)
    assert "name" in message


@pytest.mark.parametrize(
    "name", ["train.v2", "日本語", "a b", "x-1_2", "x" * 200, "console"], ids=lambda name: name[:8]
)
def test_other_names_are_directory_names(tmp_path, name):
    assert write(tmp_path, numbered(1), name).name == name


def test_sources_without_a_usable_name_are_called_by_their_position(tmp_path):
    class Broken:
        @property
        def name(self):
            raise ValueError("no name today")

    given: list[Any] = [
        Source("good", numbered(1)),
        5,
        SimpleNamespace(name=3),
        Broken(),
        SimpleNamespace(name="no iterator"),
    ]
    results = write_cache(given, tmp_path, writer_config=writer())
    assert [result.source_name for result in results] == ["good", "source[1]", "source[2]", "source[3]", "no iterator"]
    assert isinstance(results[0], CacheWriteSuccess)
    for result, part in zip(
        results[1:], ["name", "expected str", "ValueError: no name today", "__iter__"], strict=True
    ):
        assert isinstance(result, CacheWriteError)
        assert part in result.message


def test_a_source_without_samples_is_refused(tmp_path):
    assert "no samples" in refuse(tmp_path, [])


class MyError(Exception):
    pass


@pytest.mark.parametrize("row", [0, 1, 63, 64, 1000])
def test_an_exception_of_a_source_is_told_with_type_text_and_row(tmp_path, row):
    def items():
        yield from numbered(row)
        raise MyError("the disk of the source is gone")

    results = write_cache(
        [Source("before", numbered(3)), Source("bad", items()), Source("after", numbered(3))],
        tmp_path,
        writer_config=writer(),
    )
    assert [type(result) for result in results] == [CacheWriteSuccess, CacheWriteError, CacheWriteSuccess]
    assert results[1] == ("bad", f"sample {row}: MyError: the disk of the source is gone")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["after", "before"]
    assert len(read(tmp_path / "before", tmp_path / "after")) == 6


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exceptions_that_are_nobodys_to_catch_reach_the_caller_and_earlier_caches_stay(tmp_path, kind):
    def items():
        yield from numbered(100)
        raise raised

    raised = kind(3)
    with pytest.raises(kind) as caught:
        write_cache([Source("first", numbered(3)), Source("bad", items())], tmp_path, writer_config=writer())
    assert caught.value is raised
    assert [entry.name for entry in tmp_path.iterdir()] == ["first"]


@pytest.mark.parametrize("item", [b"bytes", 5, None, (b"",), (b"", {}, 1)], ids=repr)
def test_items_that_are_no_cache_input_are_refused_with_their_row(tmp_path, item):
    class Odd:
        name = "train"

        def __iter__(self):
            yield CacheInput(b"", {})
            yield item

    [result] = write_cache(Odd(), tmp_path, writer_config=writer())
    assert isinstance(result, CacheWriteError)
    assert result.message.startswith("sample 1: expected CacheInput")


def test_items_may_be_tuples_named_tuples_or_objects_with_both_attributes(tmp_path):
    class Odd(Source):
        def __iter__(self) -> Any:
            yield (b"tuple", {"a": 1})
            yield CacheInput(b"named", {"a": 2})
            yield SimpleNamespace(data=b"object", metadata={"a": 3})

    [result] = write_cache(Odd(), tmp_path, writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result
    assert pairs(read(result.path)) == [(b"tuple", {"a": 1}), (b"named", {"a": 2}), (b"object", {"a": 3})]


def test_sources_come_alone_or_in_a_list_or_a_tuple_and_may_be_any_class(tmp_path):
    class Listed(list):
        name = "listed"

    class Split(NamedTuple):
        name: str
        count: int

        def __iter__(self) -> Any:
            return (CacheInput(b"", {}) for _ in range(self.count))

    class Assigned(CacheSource):
        def __init__(self):
            self.name = "assigned"  # pyrefly: ignore[read-only] (works all the same)

        def __iter__(self):
            return iter([CacheInput(b"", {})])

    class Lazy(CacheSource):
        name = "lazy"

        def __iter__(self):
            return iter([CacheInput(b"", {})])

    class Generated:
        name = "generated"

        def __init__(self):
            self.items = (CacheInput(b"", {}) for _ in range(2))

        def __iter__(self):
            return self.items

    one = write_cache(Source("one", numbered(1)), tmp_path, writer_config=writer())
    assert one == [("one", tmp_path / "one")]
    assigned = write_cache(Assigned(), tmp_path, writer_config=writer())
    assert assigned == [("assigned", tmp_path / "assigned")]
    pair = write_cache((Lazy(), Generated()), str(tmp_path), writer_config=writer())
    assert pair == [("lazy", tmp_path / "lazy"), ("generated", tmp_path / "generated")]
    listed = write_cache(Listed([CacheInput(b"", {})] * 2), tmp_path, writer_config=writer())
    assert listed == [("listed", tmp_path / "listed")]
    split = write_cache([Split("split", 3)], tmp_path, writer_config=writer())
    assert split == [("split", tmp_path / "split")]
    split_alone = write_cache(Split("alone", 3), tmp_path, writer_config=writer())
    assert split_alone == [("alone", tmp_path / "alone")]
    assert [len(read(tmp_path / name)) for name in ("listed", "split", "alone")] == [2, 3, 3]
    assert write_cache([], tmp_path, writer_config=writer()) == []


def test_results_have_the_shapes_of_the_published_release(tmp_path):
    assert CacheWriteSuccess._fields == ("source_name", "path")
    assert CacheWriteError._fields == ("source_name", "message")
    assert CacheSourcesDatasetSuccess._fields == ("dataset", "results")
    assert CacheSourcesDatasetError._fields == ("results", "message")
    assert CacheInput._fields == ("data", "metadata")
    good, bad = write_cache([Source("a", numbered(1)), Source("b", [])], tmp_path, writer_config=writer())
    match good:
        case CacheWriteSuccess(source_name, path):
            assert (source_name, path) == ("a", tmp_path / "a")
            assert isinstance(path, Path)
        case _:
            pytest.fail(str(good))
    match bad:
        case CacheWriteError(source_name, message):
            assert source_name == "b"
            assert "no samples" in message
        case _:
            pytest.fail(str(bad))


def test_two_sources_of_one_name_raise_before_anything_is_written(tmp_path):
    twice = [Source("a", numbered(1)), Source("b", numbered(1)), Source("a", numbered(1))]
    with pytest.raises(errors.SourceNameError, match='"a"') as caught:
        write_cache(twice, tmp_path / "base", writer_config=writer())
    assert isinstance(caught.value, ValueError)
    assert caught.value.name == "a"
    assert not (tmp_path / "base").exists()
    assert [source.passes for source in twice] == [[], [], []]


def test_an_existing_cache_is_an_error_and_stays_as_it_is(tmp_path):
    path = write(tmp_path, numbered(3))
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    again = Source("train", numbered(5))
    results = write_cache([again, Source("other", numbered(1))], tmp_path, writer_config=writer())
    assert isinstance(results[0], CacheWriteError)
    assert str(path) in results[0].message
    assert "exists" in results[0].message
    assert isinstance(results[1], CacheWriteSuccess)
    assert again.passes == []
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


@pytest.mark.parametrize("kind", ["file", "empty directory", "dangling link"])
def test_whatever_has_the_name_of_a_cache_is_never_replaced(tmp_path, kind):
    place = tmp_path / "train"
    match kind:
        case "file":
            place.write_text("mine")
        case "empty directory":
            place.mkdir()
        case _:
            place.symlink_to("nowhere")
    assert "exists" in refuse(tmp_path, numbered(1))
    with pytest.raises(errors.InvalidCacheError):
        from_sources(Source("train", numbered(1)), tmp_path)
    assert place.is_symlink() or place.exists()


# Reuse


def from_sources(given, base, **options):
    return CachedDataset.from_cache_sources(given, base, reader_config=reader(), writer_config=writer(**options))


def test_reuse_opens_what_exists_and_writes_what_is_missing(tmp_path):
    path = write(tmp_path, numbered(3), "old")
    old, new = Source("old", numbered(5)), Source("new", numbered(4))
    result = from_sources([old, new], tmp_path)
    assert isinstance(result, CacheSourcesDatasetSuccess)
    assert result.results == [("old", path), ("new", tmp_path / "new")]
    assert result.dataset.cache_paths == [path, tmp_path / "new"]
    assert len(result.dataset) == 7
    assert (old.passes, new.passes) == ([], [4])


def test_a_failing_source_leaves_the_dataset_over_the_others(tmp_path):
    result = from_sources([Source("empty", []), Source("good", numbered(2))], tmp_path)
    assert isinstance(result, CacheSourcesDatasetSuccess)
    assert [type(outcome) for outcome in result.results] == [CacheWriteError, CacheWriteSuccess]
    assert len(result.dataset) == 2


def test_without_any_cache_there_is_an_error_result_with_every_reason(tmp_path):
    result = from_sources([Source("a", []), Source("b", [("text", {})])], tmp_path)
    assert isinstance(result, CacheSourcesDatasetError)
    assert [outcome.source_name for outcome in result.results] == ["a", "b"]
    assert "a: " in result.message
    assert "b: sample 0: " in result.message
    nothing = from_sources([], tmp_path)
    assert isinstance(nothing, CacheSourcesDatasetError)
    assert nothing.results == []


@pytest.mark.parametrize("version", ["2026-11", 7], ids=repr)
def test_reuse_needs_the_version_that_was_stored(tmp_path, version):
    path = write(tmp_path, numbered(1), version=version)
    assert manifest(path)["source_version"] == str(version)
    assert isinstance(from_sources(Source("train", [], version), tmp_path), CacheSourcesDatasetSuccess)
    assert isinstance(from_sources(Source("train", []), tmp_path), CacheSourcesDatasetSuccess)
    with pytest.raises(errors.SourceVersionError) as caught:
        from_sources(Source("train", [], "next"), tmp_path)
    assert (caught.value.expected, caught.value.found) == ("next", str(version))
    assert '"next"' in str(caught.value)
    assert f'"{version}"' in str(caught.value)


def test_a_version_is_refused_where_none_was_stored(tmp_path):
    write(tmp_path, numbered(1))
    with pytest.raises(errors.SourceVersionError) as caught:
        from_sources(Source("train", [], 1), tmp_path)
    assert (caught.value.expected, caught.value.found) == ("1", "none")


@pytest.mark.parametrize("version", [True, 1.5, b"1", ()], ids=repr)
def test_other_versions_are_refused(tmp_path, version):
    assert "version" in refuse(tmp_path, numbered(1), version=version)


def test_an_existing_cache_that_is_damaged_raises_after_the_other_sources_are_done(tmp_path):
    path = write(tmp_path, numbered(3), "bad")
    (path / "manifest.json").write_text("{}")
    before, after = Source("before", numbered(2)), Source("after", numbered(2))
    with pytest.raises(errors.ManifestError) as caught:
        from_sources([before, Source("bad", numbered(3)), after], tmp_path)
    assert caught.value.path == path / "manifest.json"
    assert (before.passes, after.passes) == ([2], [2])
    assert (path / "manifest.json").read_text() == "{}"
    assert (tmp_path / "after" / "manifest.json").exists()


def test_validate_cache_reads_a_reused_cache_in_full(tmp_path):
    path = write(tmp_path, numbered(3))
    flip(path / "shards" / "000000.bin", 20)
    result = from_sources(Source("train", []), tmp_path)
    assert isinstance(result, CacheSourcesDatasetSuccess)
    with pytest.raises(errors.CorruptRecordError):
        list(result.dataset)
    with pytest.raises(errors.CorruptCacheError) as caught:
        from_sources(Source("train", []), tmp_path, validate_cache=True)
    assert caught.value.path == path / "shards" / "000000.bin"


def test_reuse_waits_for_a_writer_in_another_thread(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def slow():
        begun.set()
        assert go_on.wait(PATIENCE)
        yield from numbered(3)

    results: list[Any] = []
    first = threading.Thread(target=lambda: results.append(write(tmp_path, slow())))
    first.start()
    assert begun.wait(PATIENCE)
    late = Source("train", numbered(5))
    second = threading.Thread(target=lambda: results.append(from_sources(late, tmp_path)))
    second.start()
    go_on.set()
    first.join()
    second.join()
    assert results[0] == tmp_path / "train"
    assert len(results[1].dataset) == 3
    assert late.passes == []


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


def test_lz4_payloads_shrink_and_come_back_equal(tmp_path):
    items = [(b"ab" * 5000, {"n": 0}), (os.urandom(3000), {"n": 1}), (b"", {"n": 2}), (b"x", {"n": 3})]
    path = write(tmp_path, items * 20, shard_compression=LZ4)
    assert pairs(read(path)) == items * 20
    [shard] = manifest(path)["shards"]
    assert shard["compression"] == {"algo": "lz4", "ratio": 2.0}
    assert shard["uncompressed_byte_len"] == 20 * 13_001
    assert shard["byte_len"] < 20 * 5000


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
        [Source("bad", items(MyError)), Source("good", numbered(1))],
        tmp_path / "a",
        writer_config=writer(**profiled(report)),
    )
    profile = json.loads(report.read_text())
    assert profile["status"] == "failed"
    assert [(source["name"], source["status"]) for source in profile["sources"]] == [
        ("bad", "error"),
        ("good", "written"),
    ]
    assert profile["sources"][0]["detail"] == "sample 5: MyError: stop"
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
