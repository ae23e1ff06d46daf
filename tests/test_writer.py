"""Writing caches from Python sources: what is taken, what is refused, and what is left behind."""

from __future__ import annotations

import array
import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dataset_rt import (
    CachedDataset,
    CacheInput,
    CacheWriteError,
    CacheWriteSuccess,
    ReaderConfig,
    ShardCompression,
    WriterConfig,
    WriterProfilerConfig,
    write_cache,
)
from dataset_rt.errors import SourceNameError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

QUIET = WriterConfig(show_progress=False)


class Source:
    """A source of given items, with any further attributes."""

    def __init__(self, name: Any, items: Iterable[Any], **attributes: Any) -> None:
        self.name = name
        self.items = items
        for key, value in attributes.items():
            setattr(self, key, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def write_one(path: Path, items: Iterable[Any], config: WriterConfig = QUIET, **attributes: Any) -> Any:
    """Write one cache named `train` and return its outcome."""
    (result,) = write_cache(Source("train", items, **attributes), path, writer_config=config)
    return result


def samples_of(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Return all samples of a cache in order."""
    dataset = CachedDataset([path], reader_config=ReaderConfig(seed=0, shuffle=False))
    return [(sample.data, sample.metadata) for sample in dataset]


def names_in(path: Path) -> list[str]:
    """Return the sorted names in a directory."""
    return sorted(entry.name for entry in path.iterdir())


def fault_of(path: Path, items: Iterable[Any], **attributes: Any) -> str:
    """Write one cache that must fail and leave nothing; return the message."""
    result = write_one(path, items, **attributes)
    assert isinstance(result, CacheWriteError)
    assert names_in(path) == []
    return result.message


def test_every_kind_of_payload_is_stored_byte_for_byte(tmp_path: Path) -> None:
    payloads: list[Any] = [
        b"",
        b"bytes",
        bytearray(b"array"),
        bytearray(),
        memoryview(b"xviewx")[1:5],
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.zeros((0, 3)),
        array.array("d", [1.0, 2.0]),
        np.array([(1, 2.0)], dtype=[("a", "<u2"), ("b", ">f8")]),
    ]
    items = [CacheInput(payload, {"n": n}) for n, payload in enumerate(payloads)]
    result = write_one(tmp_path, items)
    assert result == CacheWriteSuccess("train", tmp_path / "train")
    assert samples_of(result.path) == [
        (bytes(memoryview(payload).tobytes()), {"n": n}) for n, payload in enumerate(payloads)
    ]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("text", "data is of type str, expected bytes"),
        (None, "data is of type NoneType"),
        (7, "data is of type int"),
        (memoryview(b"abcdef")[::2], "buffer with gaps"),
        (np.asfortranarray(np.zeros((2, 3))), "buffer with gaps"),
        (np.array([object()]), "buffer of Python objects"),
    ],
)
def test_a_payload_that_is_no_contiguous_buffer_is_refused_with_its_row(
    tmp_path: Path, payload: Any, reason: str
) -> None:
    message = fault_of(tmp_path, [(b"", {}), (payload, {})])
    assert message.startswith("sample 1: ")
    assert reason in message


def test_items_may_be_pairs_or_have_attributes(tmp_path: Path) -> None:
    class Item:
        metadata = MappingProxyType({"a": 3})
        data = b"z"

    items = [(b"x", {"a": 1}), CacheInput(b"y", OrderedDict(a=2)), Item()]
    assert samples_of(write_one(tmp_path, items).path) == [
        (b"x", {"a": 1}),
        (b"y", {"a": 2}),
        (b"z", {"a": 3}),
    ]


@pytest.mark.parametrize("item", [b"bytes", (b"x",), (b"x", {}, 1), None])
def test_other_items_are_refused(tmp_path: Path, item: Any) -> None:
    assert "sample 0: expected CacheInput(data, metadata), found" in fault_of(tmp_path, [item])


def test_values_of_all_types_and_numpy_scalars_come_back_as_builtins(tmp_path: Path) -> None:
    class Number(int):
        pass

    metadata = {
        "a_bool": np.bool_(True),
        "b_int": np.uint64(2**63 - 1),
        "c_int": np.int8(-1),
        "d_float": np.float32(0.1),
        "e_float": np.float16(0.1),
        "f_float": math.inf,
        "g_str": np.str_("é"),
        "h_none": None,
        "i_int": Number(5),
        "j_bool": False,
        "k_float": np.float64(-0.0),
    }
    ((_, found),) = samples_of(write_one(tmp_path, [(b"", metadata)]).path)
    expected = {
        "a_bool": True,
        "b_int": 2**63 - 1,
        "c_int": -1,
        "d_float": float(np.float32(0.1)),
        "e_float": float(np.float16(0.1)),
        "f_float": math.inf,
        "g_str": "é",
        "h_none": None,
        "i_int": 5,
        "j_bool": False,
        "k_float": -0.0,
    }
    assert found == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (2**63, "an int beyond 64 bits"),
        (-(2**63) - 1, "an int beyond 64 bits"),
        (np.uint64(2**63), "an int beyond 64 bits"),
        (b"x", "found bytes"),
        ([1], "found list"),
        (1j, "found complex"),
        (np.longdouble(1), "longdouble"),
        (np.timedelta64(1, "ns"), "timedelta64"),
        (np.datetime64(1, "ns"), "datetime64"),
        (np.arange(1), "ndarray"),
        ("\ud800", "lone surrogates"),
        (1.5, "expected int or null, found float 1.5"),
        (True, "expected int or null, found bool true"),
    ],
)
def test_other_values_are_refused_by_column_and_row(tmp_path: Path, value: Any, reason: str) -> None:
    message = fault_of(tmp_path, [(b"", {"col": 1}), (b"", {"col": value})])
    assert message.startswith("sample 1: metadata column `col`: ")
    assert reason in message


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"a": 1}, "`b` is missing"),
        ({"a": 1, "b": 1, "c": 1}, "`c` is unexpected"),
        ({"a": 1, "c": 1}, "`b` is missing and `c` is unexpected"),
        ({"a": 1, 2: 1}, "a metadata key is of type int"),
        ([("a", 1)], "metadata is of type list"),
    ],
)
def test_other_keys_than_the_first_samples_are_refused(tmp_path: Path, metadata: Any, reason: str) -> None:
    message = fault_of(tmp_path, [(b"", {"b": 1, "a": 1}), (b"", metadata)])
    assert message.startswith("sample 1: ")
    assert reason in message


def test_a_declared_schema_decides_types_and_nulls(tmp_path: Path) -> None:
    schema = {"a": float, "b": int | None, "c": "string", "d": "bool | None"}
    items = [(b"", {"a": 1, "b": None, "c": "x", "d": None})]
    result = write_one(tmp_path / "good", items, schema=schema)
    assert samples_of(result.path) == [(b"", {"a": 1.0, "b": None, "c": "x", "d": None})]
    manifest = json.loads((result.path / "manifest.json").read_bytes())
    assert manifest["metadata_schema"] == [
        {"name": "a", "kind": "float"},
        {"name": "b", "kind": "int", "nullable": True},
        {"name": "c", "kind": "string"},
        {"name": "d", "kind": "bool", "nullable": True},
    ]
    bad = [(b"", {"a": None, "b": 1, "c": "x", "d": True})]
    assert "column `a`: expected float, found null" in fault_of(tmp_path / "bad", bad, schema=schema)
    (tmp_path / "worse").mkdir()
    assert "column `a` as <class 'list'>" in fault_of(tmp_path / "worse", bad, schema={"a": list})


def test_a_bad_source_never_stops_the_others(tmp_path: Path) -> None:
    class Nameless:
        def __iter__(self) -> Iterator[Any]:
            return iter([])

    def raising() -> Iterator[Any]:
        yield b"x", {"a": 1}
        yield b"y", {"a": 2}
        raise ValueError("no more")

    sources: list[Any] = [
        Source("one", [(b"1", {})]),
        Nameless(),
        Source(7, []),
        Source("../up", []),
        Source("raising", raising()),
        Source("empty", []),
        object(),
        Source("version", [(b"", {})], version=1.5),
        Source("two", [(b"2", {})]),
    ]
    results = write_cache(sources, tmp_path, writer_config=QUIET)
    assert [type(result) is CacheWriteSuccess for result in results] == [True, *[False] * 7, True]
    labels = ["one", "source[1]", "source[2]", "../up", "raising", "empty", "source[6]", "version", "two"]
    assert [result.source_name for result in results] == labels
    messages = {result.source_name: result.message for result in results if isinstance(result, CacheWriteError)}
    assert "without the attribute `name`" in messages["source[1]"]
    assert "of type int, expected str" in messages["source[2]"]
    assert "invalid source name" in messages["../up"]
    assert messages["raising"] == "sample 2: ValueError: no more"
    assert "yielded no samples" in messages["empty"]
    assert "its version is of type float" in messages["version"]
    assert names_in(tmp_path) == ["one", "two"]


def test_two_sources_of_one_name_raise_before_anything_is_written(tmp_path: Path) -> None:
    sources = [Source("a", [(b"", {})]), Source("b", [(b"", {})]), Source("a", [(b"", {})])]
    with pytest.raises(SourceNameError):
        write_cache(sources, tmp_path / "base", writer_config=QUIET)
    assert not (tmp_path / "base").exists()


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit])
def test_interrupts_in_a_source_reach_the_caller_and_leave_nothing(
    tmp_path: Path, exception: type[BaseException]
) -> None:
    raised = exception("now")

    def items() -> Iterator[Any]:
        for _ in range(1000):
            yield bytes(10_000), {"a": 1}
        raise raised

    with pytest.raises(exception) as caught:
        write_cache([Source("a", [(b"", {})]), Source("b", items())], tmp_path, writer_config=QUIET)
    assert caught.value is raised
    assert names_in(tmp_path) == ["a"]


def test_ctrl_c_ends_a_source_that_never_runs_python_code(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    child = f"""
import itertools, sys
from dataset_rt import WriterConfig, WriterProfilerConfig, write_cache
class Source:
    name = "endless"
    def __iter__(self):
        print("go", flush=True)
        return itertools.repeat((bytes(100_000), {{"a": 1}}))
config = WriterConfig(show_progress=False, profiler=WriterProfilerConfig(enabled=True, path={str(profile)!r}))
try:
    write_cache(Source(), {str(tmp_path / "base")!r}, writer_config=config)
except KeyboardInterrupt:
    sys.exit(42)
"""
    with subprocess.Popen([sys.executable, "-P", "-c", child], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 42
    assert names_in(tmp_path / "base") == []
    assert json.loads(profile.read_bytes())["status"] == "interrupted"


def test_an_existing_cache_is_an_error_for_write_and_reused_for_from_cache_sources(tmp_path: Path) -> None:
    assert isinstance(write_one(tmp_path, [(b"old", {})], version="v1"), CacheWriteSuccess)
    again = write_one(tmp_path, [(b"new", {})])
    assert isinstance(again, CacheWriteError)
    assert "a cache exists here already" in again.message

    def reuse(version: Any, *, validate: bool = False) -> Any:
        source = Source("train", [(b"new", {})], version=version)
        config = QUIET.model_copy(update={"validate_cache": validate})
        reader = ReaderConfig(seed=0, shuffle=False)
        return CachedDataset.from_cache_sources(source, tmp_path, reader_config=reader, writer_config=config)

    for version in [None, "v1"]:
        assert reuse(version, validate=True).dataset[0].data == b"old"
    (refused,) = reuse("v2").results
    assert "'v1'" in refused.message.replace('"', "'")
    assert "'v2'" in refused.message.replace('"', "'")

    shard = tmp_path / "train" / "shards" / "000000.bin"
    damaged = bytearray(shard.read_bytes())
    damaged[-1] ^= 1
    shard.write_bytes(damaged)
    assert reuse(None).results[0].source_name == "train"
    (damage,) = reuse(None, validate=True).results
    assert isinstance(damage, CacheWriteError)


def test_a_cache_being_written_is_an_error_for_write_and_waited_for_otherwise(tmp_path: Path) -> None:
    go_on = threading.Event()
    begun = threading.Event()

    def slow() -> Iterator[Any]:
        begun.set()
        assert go_on.wait(60)
        yield b"first", {}

    outcomes: list[Any] = []
    first = threading.Thread(target=lambda: outcomes.append(write_one(tmp_path, slow())))
    first.start()
    assert begun.wait(60)
    locked = write_one(tmp_path, [(b"second", {})])
    assert isinstance(locked, CacheWriteError)
    assert f"pid {os.getpid()}" in locked.message

    reader = ReaderConfig(seed=0, shuffle=False)

    def wait_for_it() -> None:
        source = Source("train", [(b"third", {})])
        outcomes.append(CachedDataset.from_cache_sources(source, tmp_path, reader_config=reader, writer_config=QUIET))

    second = threading.Thread(target=wait_for_it)
    second.start()
    go_on.set()
    first.join(60)
    second.join(60)
    (dataset,) = [outcome.dataset for outcome in outcomes if not isinstance(outcome, CacheWriteSuccess)]
    assert dataset[0].data == b"first"


def test_the_profile_tells_stages_and_sources_whatever_happened(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "profile.json"
    config = WriterConfig(show_progress=False, profiler=WriterProfilerConfig(enabled=True, path=path))
    sources = [Source("good", [(bytes(10), {})] * 100), Source("bad", [(1, {})])]
    write_cache(sources, tmp_path / "base", writer_config=config)
    report = json.loads(path.read_bytes())
    assert report["status"] == "failed"
    assert report["samples"] == 100
    assert [source["status"] for source in report["sources"]] == ["written", "error"]
    assert report["stages"]["source_wait"]["count"] > 0
    assert report["stages"]["fsync"]["count"] > 0


def test_a_profile_that_cannot_be_written_warns_and_hides_no_result(tmp_path: Path) -> None:
    config = WriterConfig(show_progress=False, profiler=WriterProfilerConfig(enabled=True, path=tmp_path))
    with pytest.warns(RuntimeWarning, match="cannot write the profile"):
        result = write_one(tmp_path / "base", [(b"", {})], config)
    assert isinstance(result, CacheWriteSuccess)


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_many_samples_in_many_shards_come_back_in_order(tmp_path: Path, algo: Any) -> None:
    config = WriterConfig(
        show_progress=False,
        max_shard_bytes=20_000,
        prefetch_size=7,
        shard_compression=ShardCompression(algo=algo),
    )
    items = [(bytes([n % 256]) * (n % 500), {"n": n, "text": f"row {n}"}) for n in range(1000)]
    result = write_one(tmp_path, items, config)
    assert samples_of(result.path) == items
    assert len(names_in(result.path / "shards")) > 1
