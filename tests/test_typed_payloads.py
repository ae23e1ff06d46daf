"""Typed payloads on the way in: what a field takes, how it is stored, and what is refused with which words."""

from __future__ import annotations

import array
from collections import UserDict
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dataset_rt import (
    CachedDataset,
    CacheInput,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteSuccess,
    ShardCompression,
    write_cache,
)
from tests import stored
from tests.support import Source, manifest, refuse, write, writer
from tests.support import reader as reader_config

NUMPY = ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
NUMPY += ["float16", "float32", "float64", "complex64", "complex128"]
EXTENSIONS = ["bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"]
EXTENSIONS += ["float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


@dataclass
class Declared(Source):
    """A source that declares its payload fields."""

    payload_schema: Any = None


def sample(**fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return fields, {}


def put(base: Path, source: Any) -> Path:
    """Write one cache from a source of any make."""
    [result] = write_cache(source, base, writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result
    return result.path


def put_refused(base: Path, source: Any) -> str:
    """Try to write one cache from a source of any make; nothing may be left of it."""
    [result] = write_cache(source, base, writer_config=writer())
    assert isinstance(result, CacheWriteError), result
    assert list(base.iterdir()) == []
    return result.message


def one_field(schema: Any, *values: Any) -> Declared:
    """Return a source of one declared field."""
    return Declared("train", [sample(x=value) for value in values], payload_schema={"x": schema})


def declared(base: Path, schema: Any, *values: Any) -> list[Any]:
    """Write one declared field and return its stored arrays."""
    return [fields["x"] for fields in stored.samples(put(base, one_field(schema, *values)))]


def equal(found, expected):
    assert found.shape == np.shape(expected)
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


# What is stored


@pytest.mark.parametrize("name", [*NUMPY, *EXTENSIONS])
def test_every_dtype_keeps_its_bytes_and_its_name(tmp_path, name):
    dtype = stored.dtype(name)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2 if name == "bool" else 256, 24 * dtype.itemsize, np.uint8) for _ in range(3)]
    arrays = [values.view(dtype).reshape(2, 3, 4) for values in arrays]
    path = write(tmp_path, [sample(x=values) for values in arrays])
    assert manifest(path)["payload"] == {"fields": [{"name": "x", "dtype": name, "shape": [2, 3, 4]}]}
    assert manifest(path)["format_version"] == 2
    for found, expected in zip(stored.samples(path), arrays, strict=True):
        equal(found["x"], expected)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: a, id="plain"),
        pytest.param(lambda a: a[:, ::-1], id="negative-strides"),
        pytest.param(lambda a: np.repeat(a, 2, axis=0)[::2], id="strided"),
        pytest.param(np.asfortranarray, id="fortran"),
        pytest.param(lambda a: np.asfortranarray(a).T.copy().T, id="transposed"),
        pytest.param(lambda a: a.astype(a.dtype.newbyteorder(">")), id="big-endian"),
        pytest.param(lambda a: np.broadcast_to(a[:1], a.shape), id="broadcast"),
        pytest.param(lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape), id="read-only"),
    ],
)
@pytest.mark.parametrize("name", ["int32", "float64", "complex64", "bool", "bfloat16"])
def test_arrays_are_stored_by_value_whatever_their_layout(tmp_path, name, change):
    values = np.arange(-6, 6).reshape(3, 4).astype(stored.dtype(name))
    changed = change(values)
    [found] = declared(tmp_path, (name, (3, 4)), changed)
    equal(found, np.asarray(changed).astype(stored.dtype(name)))


def test_misaligned_arrays_are_stored_by_value(tmp_path):
    values = np.frombuffer(b"." + np.arange(5, dtype=np.int64).tobytes(), np.int64, offset=1)
    assert not values.flags.aligned
    [found] = stored.samples(write(tmp_path, [sample(x=values)]))
    equal(found["x"], np.arange(5))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,) * 32], ids=str)
def test_arrays_without_axes_or_elements_keep_their_shape(tmp_path, shape):
    values = np.full(shape, 7, np.float32)
    path = write(tmp_path, [sample(x=values, y=np.int8(1))])
    [found] = stored.samples(path)
    equal(found["x"], values)
    equal(found["y"], np.int8(1))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(True, np.bool_(True), id="bool"),
        pytest.param(7, np.int64(7), id="int"),
        pytest.param(2.5, np.float64(2.5), id="float"),
        pytest.param(1j, np.complex128(1j), id="complex"),
        pytest.param([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]]), id="list"),
        pytest.param((1.5, 2), np.array([1.5, 2.0]), id="tuple"),
        pytest.param(np.float32(3), np.float32(3), id="numpy-scalar"),
        pytest.param(array.array("h", [1, -1]), np.array([1, -1], np.int16), id="array.array"),
        pytest.param(memoryview(bytearray(24)).cast("f", (2, 3)), np.zeros((2, 3), np.float32), id="memoryview"),
    ],
)
def test_numbers_are_what_numpy_makes_of_them(tmp_path, value, expected):
    [found] = stored.samples(write(tmp_path, [sample(x=value)]))
    assert found["x"].dtype == expected.dtype
    equal(found["x"], expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("uint8", 255), ("float32", 3), ("float16", [0.5, 1]), ("bfloat16", [1.0, 2]), ("complex64", 2), ("int8", [])],
)
def test_python_numbers_take_the_dtype_of_their_field(tmp_path, dtype, value):
    [found] = declared(tmp_path, (dtype, np.shape(value)), value)
    equal(found, np.asarray(value, stored.dtype(dtype)))


@pytest.mark.parametrize(
    ("dtype", "value", "part"),
    [
        pytest.param("uint8", 256, "beyond uint8", id="too-large"),
        pytest.param("uint8", [1, -1], "beyond uint8", id="negative"),
        pytest.param("int32", 1.0, "float64 ()", id="float-for-int"),
        pytest.param("int32", True, "bool ()", id="bool-for-int"),
        pytest.param("bool", 1, "int64 ()", id="int-for-bool"),
        pytest.param("float32", 1j, "complex128 ()", id="complex-for-float"),
        pytest.param("float32", np.float64(1), "float64 ()", id="numpy-scalar"),
    ],
)
def test_python_numbers_of_another_kind_are_refused(tmp_path, dtype, value, part):
    message = put_refused(tmp_path, one_field((dtype, np.shape(value)), value))
    assert message.startswith(f"sample 0: payload field `x`: expected {dtype} (")
    assert part in message


@pytest.mark.parametrize("value", [b"jpeg", bytearray(b"jpeg"), memoryview(b"jpeg"), memoryview(b".jpeg")[1:]])
def test_bytes_are_a_field_of_any_length(tmp_path, value):
    path = write(tmp_path, [sample(x=value), sample(x=b""), sample(x=np.frombuffer(b"ab", np.uint8))])
    assert [fields["x"] for fields in stored.samples(path)] == [b"jpeg", b"", b"ab"]
    assert manifest(path)["payload"] == {"fields": [{"name": "x", "dtype": "bytes", "shape": [None]}]}
    assert manifest(path)["format_version"] == 4


def test_fields_of_all_sorts_lie_in_name_order_behind_their_extents(tmp_path):
    schema = {"ä": ("int16", (None, 2)), "z": ("uint8", (2,)), "a": bytes, "m": ("float32", (None, 1, None))}
    fields: dict[str, Any] = {"z": np.array([1, 2], np.uint8), "ä": np.full((3, 2), 5, np.int16), "a": b"abc"}
    fields["m"] = np.full((2, 1, 4), 0.5, np.float32)
    path = put(tmp_path, Declared("train", [(fields, {"n": 1})], payload_schema=schema))
    [(metadata, payload)] = stored.records(path)
    assert metadata == b'{"n":1}'
    extents = np.array([3, 2, 4, 3], "<u8").tobytes()
    assert payload == extents + b"abc" + fields["m"].tobytes() + b"\x01\x02" + fields["ä"].tobytes()
    [found] = stored.samples(path)
    assert found.keys() == fields.keys()
    assert [field["name"] for field in manifest(path)["payload"]["fields"]] == ["a", "m", "z", "ä"]


@pytest.mark.parametrize("mapping", [dict, UserDict, MappingProxyType, lambda fields: dict(reversed(fields.items()))])
def test_any_mapping_in_any_order_gives_the_fields(tmp_path, mapping):
    fields = {"a": np.int8(1), "b": np.int8(2)}
    path = write(tmp_path, [(fields, {}), (mapping(fields), {})])
    assert stored.payloads(path) == [b"\x01\x02", b"\x01\x02"]


def test_an_array_that_the_source_reuses_is_copied_before_the_next_sample(tmp_path):
    buffer = np.zeros(3000, np.int16)

    def items():
        for n in range(100):
            buffer[:] = n
            yield sample(x=buffer)

    path = write(tmp_path, items(), prefetch_size=8)
    assert [set(fields["x"].tolist()) for fields in stored.samples(path)] == [{n} for n in range(100)]


def test_typed_payloads_are_compressed_like_any_other(tmp_path):
    items = [sample(x=np.full(5000, n, np.uint16), y=b"a" * n) for n in range(20)]
    path = write(tmp_path, items, shard_compression=ShardCompression(algo="lz4", ratio=2.0))
    assert manifest(path)["shards"][0]["uncompressed_byte_len"] == sum(8 + 10_000 + n for n in range(20))
    assert manifest(path)["shards"][0]["byte_len"] < 20_000


# Declarations


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param("float32", ("float32", []), id="name"),
        pytest.param(np.float32, ("float32", []), id="class"),
        pytest.param(np.dtype(">f4"), ("float32", []), id="big-endian"),
        pytest.param(("<f4", ()), ("float32", []), id="code"),
        pytest.param((ml_dtypes.bfloat16, (None, 2)), ("bfloat16", [None, 2]), id="extension"),
        pytest.param(("float8_e4m3fn", [3]), ("float8_e4m3fn", [3]), id="extension-name"),
        pytest.param(("int8", None), ("int8", []), id="no-shape"),
        pytest.param(("int8", 3), ("int8", [3]), id="one-axis"),
        pytest.param(("int8", (np.int64(3),)), ("int8", [3]), id="numpy-axis"),
        pytest.param(bytes, ("bytes", [None]), id="bytes"),
        pytest.param("bytes", ("bytes", [None]), id="bytes-name"),
        pytest.param(("bytes", (None,)), ("bytes", [None]), id="bytes-shape"),
    ],
)
def test_fields_are_declared_by_dtype_and_shape(tmp_path, schema, expected):
    name, shape = expected
    value = b"" if name == "bytes" else np.zeros([axis or 1 for axis in shape], stored.dtype(name))
    path = put(tmp_path, one_field(schema, value))
    assert manifest(path)["payload"] == {"fields": [{"name": "x", "dtype": name, "shape": shape}]}


@pytest.mark.parametrize(
    ("schema", "parts"),
    [
        pytest.param({"x": object}, ["field `x`", "object"], id="object"),
        pytest.param({"x": [("a", "u1")]}, ["structured"], id="structured"),
        pytest.param({"x": "U3"}, ["str dtype", "encode"], id="str"),
        pytest.param({"x": "M8[s]"}, ["dates"], id="datetime"),
        pytest.param({"x": "nonsense"}, ["'nonsense'", "no dtype"], id="no-dtype"),
        pytest.param({"x": ("int4", ())}, ["int4"], id="narrow"),
        pytest.param({"x": ("float8_e9m9", ())}, ["float8_e9m9", "not stored"], id="unknown-float8"),
        pytest.param({"x": ("int8", (-1,))}, ["(-1,)", "None where samples differ"], id="negative"),
        pytest.param({"x": ("int8", ("a",))}, ["axis"], id="axis"),
        pytest.param({"x": ("bytes", (3,))}, ["`x` of bytes"], id="bytes-shape"),
        pytest.param({"x": ("int64", (1 << 40,))}, ["`x`", "bytes"], id="too-long"),
        pytest.param({1: "int8"}, ["name of type int"], id="key"),
        pytest.param({}, ["0 payload fields"], id="empty"),
        pytest.param([], ["type list", "mapping"], id="no-mapping"),
    ],
)
def test_impossible_declarations_are_refused(tmp_path, schema, parts):
    message = put_refused(tmp_path, Declared("train", [sample(x=1)], payload_schema=schema))
    assert message.startswith("its payload_schema ")
    assert all(part in message for part in parts), message


# Refusals


def test_a_sample_that_differs_is_refused_with_what_to_do(tmp_path):
    first = np.zeros((3, 64, 64), np.uint8)
    declare = 'payload_schema = {"x": ("uint8", (3, None, 64))}'
    for value, words in [
        (
            np.zeros((3, 32, 64), np.uint8),
            f"found uint8 (3, 32, 64); where samples differ, declare the axis as None: {declare}",
        ),
        (np.zeros((3, 64, 64), np.int8), "found int8 (3, 64, 64); convert it to uint8"),
        (np.zeros((64, 64), np.uint8), "found uint8 (64, 64); every value of a field needs as many axes"),
        (b"jpeg", "found bytes"),
    ]:
        message = refuse(tmp_path, [sample(x=first), sample(x=first), sample(x=value)])
        assert message == f"sample 2: payload field `x`: expected uint8 (3, 64, 64), {words}"


def test_open_axes_take_any_extent_and_fixed_ones_only_theirs(tmp_path):
    values = [np.ones((n, 2), np.int32) for n in (0, 5, 1)]
    for found, value in zip(declared(tmp_path, ("int32", (None, 2)), *values), values, strict=True):
        equal(found, value)
    assert "int32 (None, 2), found int32 (1, 3)" in put_refused(
        tmp_path / "second", one_field(("int32", (None, 2)), np.ones((1, 3), np.int32))
    )


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        pytest.param(np.array([object()]), ["object dtype"], id="object"),
        pytest.param(np.array([(1, 2)], dtype=[("a", "u1"), ("b", "u1")]), ["structured dtype"], id="structured"),
        pytest.param(np.array(["a"]), ["str dtype", "encode text"], id="str-array"),
        pytest.param(np.array([b"a"]), ["byte string dtype"], id="bytes-array"),
        pytest.param(np.array(["2026-01-01"], "M8[D]"), ["dates", "int64"], id="datetime"),
        pytest.param(np.array([1], "m8[s]"), ["time differences"], id="timedelta"),
        pytest.param(np.array([b"abc"], "V3"), ["uint8"], id="void"),
        pytest.param(np.ones(2, np.longdouble), ["longdouble", "64 bits"], id="longdouble"),
        pytest.param(np.ones(2, np.clongdouble), ["longdouble"], id="clongdouble"),
        pytest.param(np.ones(2, ml_dtypes.int4), ["int4"], id="int4"),
        pytest.param(np.ma.array([1, 2], mask=[False, True]), ["masked"], id="masked"),
        pytest.param("text", ["found str", "encode text"], id="str"),
        pytest.param(["a", "b"], ["str dtype"], id="list-of-str"),
        pytest.param([[1], [1, 2]], ["list that is no array"], id="uneven-list"),
        pytest.param(None, ["object dtype"], id="none"),
        pytest.param(10**30, ["object dtype"], id="huge-int"),
        pytest.param({"a": 1}, ["object dtype"], id="nested"),
    ],
)
def test_other_values_are_refused_with_row_and_field(tmp_path, value, parts):
    for rows in ([sample(a=1, x=value)], [sample(a=1, x=np.zeros(2, np.int8)), sample(a=1, x=value)]):
        message = refuse(tmp_path, rows)
        assert message.startswith(f"sample {len(rows) - 1}: payload field `x`: expected ")
        assert all(part in message for part in parts), message


@pytest.mark.parametrize("value", ["text", 5, np.zeros(3, np.int16), np.zeros((2, 2), np.uint8), None])
def test_a_field_of_bytes_takes_bytes_only(tmp_path, value):
    message = refuse(tmp_path, [sample(x=b""), sample(x=value)])
    assert message.startswith("sample 1: payload field `x`: expected bytes (None,), found ")


def test_every_sample_needs_the_same_fields(tmp_path):
    first = sample(a=1, b=2)
    for fields, words in [
        ({"a": 1}, "payload field `b` is missing"),
        ({"a": 1, "b": 2, "c": 3}, "payload field `c` is unexpected"),
        ({"a": 1, "c": 3}, "payload field `b` is missing and `c` is unexpected"),
    ]:
        message = refuse(tmp_path, [first, sample(**fields)])
        assert message == f"sample 1: {words}; every sample needs the fields that the first sample gave"
    assert refuse(tmp_path, [({}, {})]) == "sample 0: data is an empty mapping, expected at least one field"
    assert "key is of type int" in refuse(tmp_path, [({1: 1}, {})])


def test_plain_bytes_and_fields_do_not_mix(tmp_path):
    message = refuse(tmp_path, [(b"", {}), sample(x=1)])
    assert message.startswith("sample 1: data is of type dict, expected bytes")
    assert "plain bytes or mappings of fields" in message
    message = refuse(tmp_path, [sample(x=1), (b"", {})])
    assert message == (
        "sample 1: data is of type bytes, expected a mapping of payload fields, as the first sample gave"
    )


def test_a_declared_source_that_gives_plain_bytes_is_refused(tmp_path):
    message = put_refused(tmp_path, Declared("train", [(b"", {})], payload_schema={"x": bytes}))
    assert message.endswith("expected a mapping of payload fields, as the source declares")


def test_an_exception_of_a_value_reaches_the_result_with_its_row(tmp_path):
    class Bad:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("out of film")

    assert refuse(tmp_path, [sample(x=1), sample(x=Bad())]) == "sample 1: RuntimeError: out of film"


# Around it


def test_typed_sources_are_reused(tmp_path):
    source = Source("train", [sample(x=np.arange(3))])
    for passes in (1, 1):
        result = CachedDataset.from_cache_sources(
            source, tmp_path, reader_config=reader_config(), writer_config=writer()
        )
        assert isinstance(result, CacheSourcesDatasetSuccess)
        assert len(source.passes) == passes


def test_arrays_need_no_cache_input(tmp_path):
    class Bare:
        name = "bare"

        def __iter__(self):
            yield {"x": np.int8(1)}, {"n": 1}
            yield CacheInput({"x": np.int8(2)}, {"n": 2})

    assert stored.payloads(put(tmp_path, Bare())) == [b"\x01", b"\x02"]


def test_tensors_of_pytorch_are_fields(tmp_path):
    torch = pytest.importorskip("torch")
    tensors = {
        "a": torch.arange(6).reshape(2, 3).T,
        "b": torch.ones(2, 2, dtype=torch.bfloat16).T,
        "c": torch.ones((), dtype=torch.float8_e4m3fn),
        "d": torch.tensor([True, False]),
    }
    path = write(tmp_path, [sample(**tensors)])
    assert [(field["dtype"], field["shape"]) for field in manifest(path)["payload"]["fields"]] == [
        ("int64", [3, 2]),
        ("bfloat16", [2, 2]),
        ("float8_e4m3fn", []),
        ("bool", [2]),
    ]
    [found] = stored.samples(path)
    assert found["a"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found["b"].astype(np.float32).tolist() == [[1, 1], [1, 1]]
    assert float(found["c"]) == 1
    assert "requires grad" in refuse(tmp_path / "second", [sample(x=torch.ones(2, requires_grad=True))])
