"""Writing values: which payloads and metadata a source may yield, and how others are refused."""

from __future__ import annotations

import array
import ctypes
import math
import mmap
import tempfile
from collections import UserDict
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_rt import (
    ShardCompression,
)
from tests.support import (
    manifest,
    numbered,
    open_in_order,
    pairs,
    read,
    refuse,
    write,
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
