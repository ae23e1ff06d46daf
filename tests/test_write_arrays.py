"""`write_arrays`: what is stored, from every layout in memory, and the guarantees of `write_cache`."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dataset_rt.arrays
from dataset_rt import CacheWriteError, CacheWriteSuccess, ShardCompression, WriterProfilerConfig, write_arrays
from tests import stored
from tests.support import PATIENCE, hear, manifest, open_in_order, own_threads, start, write, writer


def put(base: Path, arrays: Any, metadata: Any = None, name: str = "train", **changes: Any) -> Path:
    """Write arrays and return the cache."""
    result = write_arrays(name, arrays, base, metadata=metadata, writer_config=writer(**changes))
    assert isinstance(result, CacheWriteSuccess), result
    assert result == (name, base / name)
    return result.path


def put_refused(base: Path, arrays: Any, metadata: Any = None, name: Any = "train") -> str:
    """Try to write arrays and return why they were refused; checks that nothing is left of them."""
    result = write_arrays(name, arrays, base, metadata=metadata, writer_config=writer())
    assert isinstance(result, CacheWriteError), result
    assert not base.exists() or list(base.iterdir()) == []
    return result.message


def random(shape: tuple[int, ...], name: str = "float32") -> np.ndarray[Any, Any]:
    """Return an array of random bits; of random truths for bool."""
    dtype = stored.dtype(name)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    bits = np.random.default_rng(0).integers(0, 2 if name == "bool" else 256, count, np.uint8)
    return bits.view(dtype).reshape(shape)


def files(path: Path) -> dict[str, bytes]:
    """Return every file of a cache but the name of its writer."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*.*"))}


# What is stored


@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "float16", "complex128", "bfloat16", "float8_e4m3fn"])
def test_arrays_of_every_dtype_are_stored_row_by_row(tmp_path, name):
    array = random((7, 2, 3), name)
    path = put(tmp_path, {"x": array})
    assert manifest(path)["payload"] == {"fields": [{"name": "x", "dtype": name, "shape": [2, 3]}]}
    assert manifest(path)["format_version"] == 2
    assert stored.records(path) == [(b"{}", row.tobytes()) for row in array]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: a[::2], id="strided"),
        pytest.param(lambda a: a[::-1], id="reversed"),
        pytest.param(lambda a: a[:, 1:3], id="columns"),
        pytest.param(np.asfortranarray, id="fortran"),
        pytest.param(lambda a: a.astype(a.dtype.newbyteorder(">")), id="big-endian"),
        pytest.param(lambda a: np.broadcast_to(a[:1], a.shape), id="broadcast"),
        pytest.param(lambda a: a[:, 0, 0], id="scalars"),
        pytest.param(lambda a: a[3:9], id="part"),
        pytest.param(lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape), id="read-only"),
        pytest.param(lambda a: a[:, :0], id="empty-values"),
        pytest.param(lambda a: a[:, 1].tolist(), id="lists"),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_arrays_are_stored_by_value_whatever_their_layout(tmp_path, monkeypatch, change, block_bytes):
    monkeypatch.setattr(dataset_rt.arrays, "_BLOCK_BYTES", block_bytes)
    array = change(np.arange(20 * 12, dtype=np.int64).reshape(20, 4, 3))
    other = random((len(array), 2), "bfloat16")
    path = put(tmp_path, {"x": array, "b": other})
    expected = np.ascontiguousarray(array, np.dtype("<i8"))
    assert stored.payloads(path) == [b.tobytes() + a.tobytes() for a, b in zip(expected, other, strict=True)]


def test_the_files_are_those_of_write_cache(tmp_path):
    count = 70_000
    image, scores = random((count, 3, 5), "uint8"), np.arange(count) / 7
    names = [None if n % 5 == 0 else f"sample {n}" for n in range(count)]
    even = [n % 2 == 0 for n in range(count)]
    frame = pl.DataFrame({"score": scores, "name": names, "n": range(count), "even": even})
    compression = ShardCompression(algo="lz4", ratio=2.0)
    one = put(tmp_path / "one", {"image": image}, frame, max_shard_bytes=1 << 20, shard_compression=compression)
    items = (({"image": image[n]}, row) for n, row in enumerate(frame.iter_rows(named=True)))
    two = write(tmp_path / "two", items, max_shard_bytes=1 << 20, shard_compression=compression, prefetch_size=5000)
    assert files(one) == files(two)
    assert len(manifest(one)["shards"]) > 1


def test_memory_mapped_arrays_are_written_from_the_map(tmp_path):
    array = random((50, 9), "float32")
    np.save(tmp_path / "array.npy", array)
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r")
    path = put(tmp_path / "base", {"x": mapped})
    assert stored.payloads(path) == [row.tobytes() for row in array]


def test_ragged_fields_are_values_and_offsets(tmp_path, monkeypatch):
    values, offsets = random((10, 2), "int16"), np.array([1, 4, 4, 10])
    for number, change in enumerate([lambda a: a, lambda a: a.astype(">i2"), np.asfortranarray]):
        for block_bytes in (1, 16 << 20):
            monkeypatch.setattr(dataset_rt.arrays, "_BLOCK_BYTES", block_bytes)
            arrays = {"t": (change(values), offsets.astype(["i4", ">i8", "u2"][number])), "n": np.arange(3)}
            path = put(tmp_path, arrays, name=f"{number} {block_bytes}")
            assert manifest(path)["format_version"] == 4
            found = stored.samples(path)
            parts = [values[1:4].tolist(), [], values[4:10].tolist()]
            assert [fields["t"].tolist() for fields in found] == parts
            assert [fields["n"].item() for fields in found] == [0, 1, 2]


BYTES = [b"a", b"", b"more than twelve bytes"]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(BYTES, id="list"),
        pytest.param(pl.Series(BYTES), id="polars"),
        pytest.param(pl.concat([pl.Series(BYTES[:1]), pl.Series(BYTES[1:])], rechunk=False), id="chunks"),
        pytest.param(pa.array(BYTES), id="arrow"),
        pytest.param(pa.chunked_array([BYTES[:2], BYTES[2:]], pa.large_binary()), id="chunked-arrow"),
    ],
)
def test_columns_of_bytes_are_fields_of_bytes(tmp_path, column):
    path = put(tmp_path, {"jpeg": column, "n": np.arange(3)}, pl.DataFrame({"m": [1, 2, 3]}))
    found = stored.samples(path)
    assert [fields["jpeg"] for fields in found] == BYTES
    assert [fields["n"].item() for fields in found] == [0, 1, 2]
    assert [json.loads(metadata) for metadata, _ in stored.records(path)] == [{"m": 1}, {"m": 2}, {"m": 3}]
    plain = put(tmp_path, {"data": column}, name="plain")
    assert "payload" not in manifest(plain)
    assert [sample.data for sample in open_in_order(plain)] == BYTES


# Metadata


def test_metadata_of_every_type_comes_back(tmp_path):
    frame = pl.DataFrame(
        {
            "flag": [True, None, False],
            "int": pl.Series([1, -2, 3], dtype=pl.Int8),
            "unsigned": pl.Series([1, 2, 2**63 - 1], dtype=pl.UInt64),
            "float": pl.Series([0.5, float("nan"), None], dtype=pl.Float32),
            "text": ["a", "ü" * 20, None],
            "category": pl.Series(["x", None, "x"], dtype=pl.Categorical),
            "enum": pl.Series(["y", "z", "y"], dtype=pl.Enum(["z", "y"])),
            "nothing": [None, None, None],
        }
    )
    dataset = open_in_order(put(tmp_path, {"data": [b"a", b"b", b"c"]}, frame))
    table = dataset.samples_metadata()
    for name in frame.columns:
        expected = frame[name].cast(pl.String) if name in ("category", "enum") else frame[name]
        assert [str(value) for value in table[name]] == [str(value) for value in expected], name
    assert [sample.metadata["text"] for sample in dataset] == ["a", "ü" * 20, None]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(pa.table({"n": [0, 1, 2, 3]}), id="arrow"),
        pytest.param(pa.record_batch({"n": pa.array([0, 1, 2, 3])}), id="arrow-batch"),
        pytest.param({"n": np.arange(4)}, id="dict"),
        pytest.param(pl.concat([pl.DataFrame({"n": [0]}), pl.DataFrame({"n": [1, 2, 3]})], rechunk=False), id="chunks"),
    ],
)
def test_metadata_is_whatever_polars_makes_a_frame_of(tmp_path, frame):
    dataset = open_in_order(put(tmp_path, {"x": np.arange(4)}, frame))
    assert dataset.samples_metadata()["n"].to_list() == [0, 1, 2, 3]


def test_a_frame_without_columns_is_no_metadata(tmp_path):
    path = put(tmp_path, {"x": np.arange(4)}, pl.DataFrame())
    assert [metadata for metadata, _ in stored.records(path)] == [b"{}"] * 4


# Refusals


@pytest.mark.parametrize(
    ("arrays", "metadata", "parts"),
    [
        pytest.param({}, None, ["no arrays"], id="nothing"),
        pytest.param({1: np.arange(3)}, None, ["field 1", "type str", "int"], id="key"),
        pytest.param({"x": np.array(3)}, None, ["`x`", "axis 0"], id="no-axes"),
        pytest.param({"x": np.array([None, 1])}, None, ["`x`", "object dtype"], id="objects"),
        pytest.param({"x": np.array(["a"])}, None, ["`x`", "encode"], id="text"),
        pytest.param({"x": np.zeros(3, "u1,u2")}, None, ["`x`", "structured"], id="structured"),
        pytest.param({"x": np.zeros(3, ml_dtypes.int4)}, None, ["`x`", "int4"], id="int4"),
        pytest.param({"x": np.ma.array([1, 2], mask=[False, True])}, None, ["`x`", "masked"], id="masked"),
        pytest.param({"x": [[1], [1, 2]]}, None, ["`x`", "no array"], id="uneven"),
        pytest.param({"x": np.arange(3), "y": np.arange(4)}, None, ["`x` has 3", "`y` 4"], id="lengths"),
        pytest.param({"x": np.arange(3)}, pl.DataFrame({"n": [1]}), ["`x` has 3", "metadata 1"], id="metadata-length"),
        pytest.param({"x": np.arange(3)}, pl.LazyFrame({"n": [1]}), ["lazy", "collect"], id="lazy"),
        pytest.param({"x": np.arange(3)}, 5, ["metadata is of type int"], id="no-frame"),
        pytest.param({"x": (np.arange(3), np.array([0, 2, 1]))}, None, ["`x`", "ascend"], id="descending"),
        pytest.param({"x": (np.arange(3), np.array([0, 4]))}, None, ["`x`", "3, the number"], id="beyond"),
        pytest.param({"x": (np.arange(3), np.array([-1, 3]))}, None, ["`x`", "ascend"], id="negative"),
        pytest.param({"x": (np.arange(3), np.array([0.0, 3.0]))}, None, ["`x`", "float64"], id="float-offsets"),
        pytest.param({"x": (np.arange(3), np.zeros((1, 2), int))}, None, ["`x`", "(1, 2)"], id="shaped-offsets"),
        pytest.param({"x": (np.array(3), np.array([0, 1]))}, None, ["`x`", "axis 0"], id="values-without-axes"),
        pytest.param({"x": np.zeros((0, 3))}, None, ["yielded no samples"], id="no-samples"),
        pytest.param({"x": pl.Series([b"a", None])}, None, ["sample 1", "`x`", "null"], id="null"),
        pytest.param({"x": pl.Series(["a", "b"])}, None, ["`x`", "Utf8", "binary"], id="text-column"),
        pytest.param({"x": np.arange(1)}, pl.DataFrame({"n": [[1]]}), ["`n`", "cast"], id="list-metadata"),
        pytest.param({"x": np.arange(1)}, pl.DataFrame({"weight": [1]}), ["`weight`", "rename"], id="reserved"),
        pytest.param({"x": np.arange(2)}, {"n": np.array([0, 1 << 63], np.uint64)}, ["sample 1", "`n`"], id="uint64"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_name(tmp_path, arrays, metadata, parts):
    message = put_refused(tmp_path, arrays, metadata)
    assert all(part in message for part in parts), message


def test_text_too_long_for_a_record_is_refused_with_its_row(tmp_path):
    frame = pl.DataFrame({"t": ["a", "b" * (17 << 20)]})
    assert put_refused(tmp_path, {"x": np.arange(2)}, frame).startswith("sample 1: metadata of ")


def test_arrays_that_are_no_mapping_raise(tmp_path):
    with pytest.raises(TypeError, match="ndarray, expected a mapping"):
        write_arrays("train", np.arange(3), tmp_path)  # pyrefly: ignore[bad-argument-type]
    for name in ("a/b", "", None):
        message = put_refused(tmp_path, {"x": np.arange(3)}, name=name)
        assert "name" in message


# Guarantees


def test_a_cache_that_exists_stays_as_it_is(tmp_path):
    path = put(tmp_path, {"x": np.arange(3)})
    before = files(path)
    result = write_arrays("train", {"x": np.arange(4)}, tmp_path, writer_config=writer())
    assert isinstance(result, CacheWriteError)
    assert "exists here already" in result.message
    assert files(path) == before


def test_buffers_are_released_and_threads_ended_with_the_call(tmp_path):
    memory = bytearray(1000)
    put(tmp_path, {"x": np.frombuffer(memory, np.uint8).reshape(10, 100)})
    memory.append(1)  # refused while anybody holds the buffer
    assert own_threads() == []
    nulls = pl.Series([None] * len(memory), dtype=pl.Binary)
    put_refused(tmp_path / "bad", {"x": np.frombuffer(memory, np.uint8), "y": nulls})
    memory.append(1)
    assert own_threads() == []


def test_other_threads_run_meanwhile(tmp_path):
    array, running = random((2000, 4096), "uint8"), threading.Event()
    thread = threading.Thread(target=running.set)
    thread.start()
    put(tmp_path, {"x": array})
    thread.join(PATIENCE)
    assert running.is_set()


ENDLESS = """
    import os, signal, sys, threading
    import numpy as np
    from dataset_rt import WriterConfig, write_arrays

    def end_once_it_writes(number):
        while not any(name.startswith(".train.tmp-") for name in os.listdir(sys.argv[1])):
            pass
        os.kill(os.getpid(), number)

    number = getattr(signal, sys.argv[2])
    array = np.broadcast_to(np.zeros(1 << 20, np.uint8), (1 << 20, 1 << 20))  # a terabyte
    threading.Thread(target=end_once_it_writes, args=[number], daemon=True).start()
    try:
        write_arrays("train", {"x": array}, sys.argv[1], writer_config=WriterConfig(show_progress=False))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_discards_the_cache(tmp_path):
    with start(ENDLESS, tmp_path, "SIGINT") as child:
        assert hear(child) == "interrupted"
        assert child.wait(PATIENCE) == 0
    assert list(tmp_path.glob("*")) == []


def test_a_killed_writer_leaves_no_cache_and_the_next_one_cleans_up(tmp_path):
    with start(ENDLESS, tmp_path, "SIGKILL") as child:
        assert child.wait(PATIENCE) == -signal.SIGKILL
    assert not (tmp_path / "train").exists()
    assert len(list(tmp_path.glob(".train.tmp-*"))) == 1
    path = put(tmp_path, {"x": np.arange(3)})
    assert list(tmp_path.glob(".train.tmp-*")) == []
    assert len(open_in_order(path)) == 3


def test_the_profile_tells_of_arrays(tmp_path):
    report = tmp_path / "profile.json"
    profiler = WriterProfilerConfig(enabled=True, path=report)
    put(tmp_path / "base", {"x": random((3000, 100), "uint8")}, profiler=profiler)
    found = json.loads(report.read_text())
    assert found["samples"] == 3000
    assert found["payload_bytes"] == 300_000
