"""`CachedDataset.gather` and typed batches against NumPy: every kind of rows, field, destination and damage."""

from __future__ import annotations

import gc
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dataset_rt import CachedDataset, CacheInput, CacheWriteSuccess, ShardCompression, errors, write_arrays, write_cache
from dataset_rt.values import Ragged
from tests.support import numbered, reader, write, writer

COMPRESSIONS = [
    ShardCompression(),
    ShardCompression(algo="lz4"),
    ShardCompression(algo="zstd"),
    ShardCompression(algo="zstd", dictionary_bytes=1024),
]
SCHEMA = {"image": ("uint8", (3, 8, 8)), "mask": ("bool", ()), "tokens": ("int32", (None, 2)), "jpeg": "bytes"}


class Typed:
    """A source of images, flags, tokens of any number, and opaque bytes."""

    name = "typed"
    payload_schema = SCHEMA

    def __init__(self, items: list[dict[str, Any]]) -> None:
        self.items = items

    def __iter__(self) -> Any:
        for row, item in enumerate(self.items):
            yield CacheInput(item, {"n": row, "name": f"sample {row}"})


def items(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    return [
        {
            "image": rng.integers(0, 4, (3, 8, 8), dtype=np.uint8),
            "mask": np.bool_(row % 3 == 0),
            "tokens": np.arange(2 * (row % 5), dtype=np.int32).reshape(-1, 2) + row,
            "jpeg": b"j" * (row % 7),
        }
        for row in range(count)
    ]


def write_typed(base: Path, samples: list[dict[str, Any]], **changes: Any) -> Path:
    [result] = write_cache(Typed(samples), base, writer_config=writer(**changes))
    assert isinstance(result, CacheWriteSuccess), result
    return result.path


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("compression", COMPRESSIONS, ids=str)
def test_every_field_of_a_gather_is_what_was_written(tmp_path: Path, io: Any, compression: ShardCompression) -> None:
    samples = items(300)
    path = write_typed(tmp_path, samples, shard_compression=compression, max_shard_bytes=8192)
    dataset = CachedDataset([path], reader_config=reader(io=io))
    rows = np.random.default_rng(5).integers(-300, 300, 500)
    batch = dataset.gather(rows)
    assert list(batch.data) == ["image", "jpeg", "mask", "tokens"]
    assert (batch["image"] == np.stack([samples[row]["image"] for row in rows])).all()
    assert (batch["mask"] == np.array([samples[row]["mask"] for row in rows])).all()
    assert [bytes(value) for value in batch["jpeg"]] == [samples[row]["jpeg"] for row in rows]
    assert isinstance(batch["tokens"], Ragged)
    for value, row in zip(batch["tokens"], rows, strict=True):
        assert value.dtype == np.int32
        assert np.array_equal(value, samples[row]["tokens"])
    assert batch.sample_id.tolist() == (rows % 300).tolist()
    assert batch["n"].tolist() == (rows % 300).tolist()
    assert batch["name"].to_list() == [f"sample {row % 300}" for row in rows]


def test_a_sample_by_itself_is_the_dict_that_the_source_gave(tmp_path: Path) -> None:
    samples = items(20)
    dataset = CachedDataset([write_typed(tmp_path, samples)], reader_config=reader(shuffle=False))
    for row, sample in enumerate(dataset):
        for name, value in samples[row].items():
            assert np.array_equal(sample.data[name], value), name
            assert type(sample.data[name]) is (bytes if name == "jpeg" else np.ndarray)
        sample.data["image"][:] = 9  # the sample owns its memory
    assert (dataset[3].data["image"] == samples[3]["image"]).all()


def test_batches_of_typed_payloads_are_the_order_gathered(tmp_path: Path) -> None:
    samples = items(50)
    dataset = CachedDataset([write_typed(tmp_path, samples)], reader_config=reader(num_workers=3))
    rows = dataset.rows()
    start = 0
    for batch in dataset.batches(16):
        own = rows[start : start + 16]
        start += 16
        gathered = dataset.gather(own)
        assert (batch["image"] == gathered["image"]).all()
        assert np.array_equal(batch["tokens"].values, gathered["tokens"].values)
        assert np.array_equal(batch["tokens"].shapes, gathered["tokens"].shapes)
        assert batch.metadata.equals(gathered.metadata)


def plain(tmp_path: Path) -> CachedDataset:
    return CachedDataset([write(tmp_path, numbered(100))], reader_config=reader())


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (7, [7]),
        (np.int8(-1), [99]),
        (slice(90, None, 4), [90, 94, 98]),
        (slice(None, None, -50), [99, 49]),
        ([], []),
        ((3, 3, -100), [3, 3, 0]),
        (np.array([5, 1], np.uint64), [5, 1]),
        (np.arange(100) % 40 == 1, [1, 41, 81]),
        (np.array([[4, 2], [0, 0]])[:, 0], [4, 0]),
        (pl.Series([9, 8]), [9, 8]),
        (np.array([3], ">i4"), [3]),
        (np.array(3), [3]),
        ([-1, np.uint64(1)], [99, 1]),
        (pl.DataFrame({"cache_id": [], "sample_id": []}), []),
        (pl.DataFrame({"cache_id": [0, 0], "sample_id": [44, 2]}).cast(pl.UInt64), [44, 2]),
    ],
    ids=lambda rows: type(rows).__name__ + str(rows)[:12],
)
def test_rows_may_come_in_any_form(tmp_path: Path, rows: Any, expected: list[int]) -> None:
    batch = plain(tmp_path).gather(rows)
    assert batch.sample_id.tolist() == expected
    assert [bytes(payload) for payload in batch.data] == [b"payload %d" % row for row in expected]
    assert batch.metadata["n"].to_list() == expected
    assert len(batch) == len(expected)


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([0, 100], IndexError),
        ([-101], IndexError),
        ([2**63], IndexError),
        ([2**80], IndexError),
        ([1, 2**63], IndexError),
        ([-1, 2**64 - 1], IndexError),
        (pl.Series([1, None]), TypeError),
        (np.array(0.5), TypeError),
        ((row for row in range(3)), TypeError),
        ({3, 1}, TypeError),
        ({0: 1}, TypeError),
        (None, TypeError),
        (np.ones(99, bool), IndexError),
        ([0.5], TypeError),
        (["0"], TypeError),
        (np.zeros((2, 2), int), TypeError),
        (pl.DataFrame({"cache_id": [0], "sample_id": [100]}).cast(pl.UInt64), errors.WeightsError),
        (pl.DataFrame({"sample_id": [1]}).cast(pl.UInt64), errors.WeightsError),
    ],
    ids=str,
)
def test_rows_that_are_not_there_are_refused_before_anything_is_written(tmp_path: Path, rows: Any, error: Any) -> None:
    out = np.full(10_000, 7, np.uint8)
    with pytest.raises(error):
        plain(tmp_path).gather(rows, out)
    assert (out == 7).all()


def test_values_go_to_memory_of_the_caller(tmp_path: Path) -> None:
    samples = items(40)
    dataset = CachedDataset([write_typed(tmp_path, samples)], reader_config=reader())
    rows = [5, 1, 5]
    whole = dataset.gather(rows)
    out = {
        "image": np.zeros((3, 3, 8, 8), np.uint8),
        "mask": np.zeros(3, bool),
        "tokens": np.zeros(100, np.int32),
        "jpeg": np.zeros(100, np.uint8),
    }
    batch = dataset.gather(rows, out)
    assert batch["image"] is out["image"]
    assert (out["image"] == whole["image"]).all()
    assert np.array_equal(out["mask"], whole["mask"])
    assert np.shares_memory(batch["tokens"].values, out["tokens"])
    assert [value.tolist() for value in batch["tokens"]] == [value.tolist() for value in whole["tokens"]]
    assert [bytes(value) for value in batch["jpeg"]] == [bytes(value) for value in whole["jpeg"]]
    one = np.zeros((3, 3, 8, 8), np.uint8)
    assert (dataset.gather(rows, one, columns=["image"])["image"] == whole["image"]).all()
    assert (one == whole["image"]).all()


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (np.zeros((2, 3, 8, 8), np.uint8), "shape (3, 3, 8, 8)"),
        (np.zeros((3, 3, 8, 8), np.int8), "uint8"),
        (np.zeros((3, 3, 8, 8), np.uint8, order="F"), "C order"),
        (np.zeros((3, 3, 8, 16), np.uint8)[..., ::2], "C order"),
        (np.broadcast_to(np.uint8(0), (3, 3, 8, 8)), "C order"),
        (b"1" * 576, "shape"),
        (object(), "buffer protocol"),
        ({"mask": np.zeros(3, bool)}, "image"),
    ],
    ids=["shape", "type", "fortran", "strided", "read-only", "bytes", "object", "field"],
)
def test_destinations_that_do_not_fit_are_refused_by_field(tmp_path: Path, out: Any, words: str) -> None:
    dataset = CachedDataset([write_typed(tmp_path, items(10))], reader_config=reader())
    with pytest.raises(errors.ConfigError, match="out") as caught:
        dataset.gather([1, 2, 3], out, columns=["image"])
    assert words in str(caught.value)


def test_destinations_that_share_memory_or_are_too_short_are_refused(tmp_path: Path) -> None:
    dataset = CachedDataset([write_typed(tmp_path, items(10))], reader_config=reader())
    memory = np.zeros(1000, np.uint8)
    with pytest.raises(errors.ConfigError, match="share no memory"):
        dataset.gather([1, 2], {"jpeg": memory[:100], "tokens": memory[:40].view(np.int32)}, columns=["jpeg", "tokens"])
    with pytest.raises(errors.ConfigError, match=r"tokens.*at least 64 bytes"):
        dataset.gather([4, 4], np.zeros(3, np.int32), columns=["tokens"])


def test_columns_leave_fields_out(tmp_path: Path) -> None:
    dataset = CachedDataset([write_typed(tmp_path, items(30))], reader_config=reader())
    for batch in (dataset.gather([1, 2], columns=["mask", "n"]), next(dataset.batches(2, columns=["mask", "n"]))):
        assert list(batch.data) == ["mask"]
        assert batch.metadata.columns == ["n"]
        assert batch.keys() == ["mask", "n"]
        with pytest.raises(KeyError, match="image"):
            batch["image"]
    with pytest.raises(errors.ConfigError, match="'picture'"):
        dataset.batches(2, columns=["picture"])
    nothing = dataset.gather([3], columns=[])
    assert (nothing.data, nothing.metadata.columns, len(nothing)) == ({}, [], 1)


def test_kept_batches_slices_and_gathers_are_never_overwritten(tmp_path: Path) -> None:
    samples = items(64)
    dataset = CachedDataset([write_typed(tmp_path, samples)], reader_config=reader(num_workers=2))
    kept = []
    for number, batch in enumerate(dataset.batches(8, epochs=40)):
        row = int(batch.sample_id[3])
        if number % 9 == 0:
            kept.append((row, batch["image"][3:4]))
            kept.append((row, dataset.gather([row])["image"]))
    gc.collect()
    for row, view in kept:
        assert (view[0] == samples[row]["image"]).all()


def test_damage_is_found_by_a_gather_and_names_the_sample(tmp_path: Path) -> None:
    path = write_typed(tmp_path, items(40))
    shard = next((path / "shards").iterdir())
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    dataset = CachedDataset([path], reader_config=reader())
    with pytest.raises(errors.CorruptRecordError) as caught:
        dataset.gather(slice(None))
    bad = caught.value.sample_id
    others = [row for row in range(40) if row != bad]
    assert len(dataset.gather(others)) == 39
    with pytest.raises(errors.CorruptRecordError):
        dataset.gather([bad], columns=["mask"])


def test_both_engines_name_the_place_of_what_cannot_be_decoded(tmp_path: Path) -> None:
    texts = [(b"some text %d " % n * 20, {}) for n in range(10)]
    path = write(tmp_path, texts, shard_compression=ShardCompression(algo="lz4"))
    shard = path / "shards" / "000000.bin"
    _, offset, length = np.fromfile(path / "index.bin", "<u8").reshape(-1, 3)[7].tolist()
    content = bytearray(shard.read_bytes())
    content[offset + length - 10 : offset + length] = b"\xff" * 10
    shard.write_bytes(content)
    engines: tuple[Any, ...] = ("mmap", "pread")
    for io in engines:
        dataset = CachedDataset([path], reader_config=reader(io=io, verify="never", shuffle=False))
        for read in (lambda: dataset.gather([2, 7]), lambda: list(dataset.batches(4)), lambda: dataset[7]):  # noqa: B023
            with pytest.raises(errors.CorruptRecordError) as caught:
                read()
            assert (caught.value.path, caught.value.sample_id, caught.value.offset) == (shard, 7, offset), io


def test_views_and_several_caches_gather_their_own_rows(tmp_path: Path) -> None:
    paths = [write(tmp_path, numbered(30, 100 * k), f"c{k}") for k in range(3)]
    dataset = CachedDataset(paths, reader_config=reader())
    view = dataset.filter(pl.col("n") % 2 == 1)
    rows = [0, 15, 44, -1]
    expected = [view[row] for row in rows]
    batch = view.gather(rows)
    assert [bytes(payload) for payload in batch.data] == [sample.data for sample in expected]
    assert batch.cache_id.tolist() == [sample.cache_id for sample in expected]
    assert batch["n"].tolist() == [sample.metadata["n"] for sample in expected]
    assert view.gather(view.samples_metadata()[[3, 1]]).sample_id.tolist() == [view[3].sample_id, view[1].sample_id]
    with pytest.raises(errors.WeightsError):
        view.gather(dataset.samples_metadata()[:1])


def test_caches_of_different_fields_do_not_open_together(tmp_path: Path) -> None:
    typed, plain_path = write_typed(tmp_path, items(3)), write(tmp_path, [(b"x", {"n": 1, "name": "a"})])
    with pytest.raises(errors.SchemaMismatchError, match="payload field `image`"):
        CachedDataset([typed, plain_path], reader_config=reader())


def test_batches_are_pickled_with_all_their_parts(tmp_path: Path) -> None:
    dataset = CachedDataset([write_typed(tmp_path, items(30))], reader_config=reader())
    for batch in (next(dataset.batches(4)), dataset.gather([1, 2])):
        copy = pickle.loads(pickle.dumps(batch))
        assert (copy["image"] == batch["image"]).all()
        assert np.array_equal(copy["tokens"][1], batch["tokens"][1])
        assert copy.metadata.equals(batch.metadata)
        assert (copy.epoch, copy.step, copy.valid.tolist()) == (batch.epoch, batch.step, batch.valid.tolist())


def test_a_gather_of_many_megabytes_is_shared_by_threads_and_exact(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    images = rng.integers(0, 255, (200, 50_000), dtype=np.uint8)
    path = write(tmp_path, [({"image": image}, {}) for image in images])
    for workers in (1, 4):
        dataset = CachedDataset([path], reader_config=reader(num_workers=workers))
        rows = rng.integers(0, 200, 300)
        assert (dataset.gather(rows)["image"] == images[rows]).all()


def test_small_gathers_one_after_the_other_are_exact(tmp_path: Path) -> None:
    """Before and after it is known that the records lie evenly."""
    rng = np.random.default_rng(5)
    values = rng.integers(0, 256, (3000, 300), dtype=np.uint8)
    result = write_arrays("small", {"x": values}, tmp_path, writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result
    dataset = CachedDataset([result.path], reader_config=reader(num_workers=2))
    out = np.empty((200, 300), np.uint8)
    for size in rng.integers(100, 3000, 300):
        rows = rng.integers(0, 3000, size)
        assert np.array_equal(dataset.gather(rows)["x"], values[rows])
        dataset.gather(rows[:200], out=out[: len(rows[:200])])
        assert np.array_equal(out[: len(rows[:200])], values[rows[:200]])


def test_damage_is_found_by_every_small_gather_of_the_sample_and_by_no_other(tmp_path: Path) -> None:
    values = np.arange(3000 * 300, dtype=np.uint32).reshape(3000, 300).astype(np.uint8)
    result = write_arrays("small", {"x": values}, tmp_path, writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result
    shard = result.path / "shards" / "000000.bin"
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) * 2 // 3] ^= 1
    shard.write_bytes(damaged)
    dataset = CachedDataset([result.path], reader_config=reader(num_workers=2, verify="always"))
    bad = set()
    for _ in range(100):
        with pytest.raises(errors.CorruptRecordError) as caught:
            dataset.gather(np.arange(1800, 2200))
        bad.add(caught.value.sample_id)
        assert np.array_equal(dataset.gather(np.arange(1800))["x"], values[:1800])
    (sample,) = bad
    assert 1800 <= sample < 2200


def test_payloads_are_an_arrow_column_of_large_binary(tmp_path: Path) -> None:
    batch = plain(tmp_path).gather([2, 1])
    assert batch.data.to_polars().to_list() == [b"payload 2", b"payload 1"]
    assert plain(tmp_path / "b").gather([]).data.to_polars().to_list() == []


def test_verify_always_compares_records_of_every_gather(tmp_path: Path) -> None:
    path = write(tmp_path, numbered(30))
    dataset = CachedDataset([path], reader_config=reader(verify="always"))
    assert len(dataset.gather(slice(None))) == 30
    shard = next((path / "shards").iterdir())
    with shard.open("r+b") as file:
        file.seek(shard.stat().st_size - 1)
        file.write(b"!")
    assert len(dataset.gather(range(29))) == 29
    with pytest.raises(errors.CorruptRecordError):
        dataset.gather([29])


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_caches_of_published_releases_are_gathered_as_they_are_read(io: Any) -> None:
    published = Path(__file__).parent / "data" / "published"
    paths = sorted(path.parent for path in published.rglob("manifest.json"))
    assert paths
    for path in paths:
        dataset = CachedDataset([path], reader_config=reader(io=io, shuffle=False))
        samples = list(dataset)
        batch = dataset.gather(slice(None, None, -1))
        assert [bytes(payload) for payload in batch.data] == [sample.data for sample in reversed(samples)]
        assert batch.metadata.rows() == [tuple(sample.metadata.values()) for sample in reversed(samples)]


def test_no_rows_are_a_batch_of_nothing_in_every_field(tmp_path: Path) -> None:
    dataset = CachedDataset([write_typed(tmp_path, items(3))], reader_config=reader())
    batch = dataset.gather([])
    assert batch["image"].shape == (0, 3, 8, 8)
    assert (len(batch["tokens"]), len(batch["jpeg"]), batch.metadata.height) == (0, 0, 0)


def evict(path: Path) -> None:
    """Drop the shards of a cache from memory, where the file system can."""
    for shard in (path / "shards").iterdir():
        with shard.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system has no posix_fadvise")
@pytest.mark.parametrize("populate_bytes", [0, 1 << 30])
@pytest.mark.parametrize("max_shard_bytes", [1 << 20, 64 << 20])
def test_rows_that_are_not_in_memory_are_exact_in_order_and_scattered(
    tmp_path: Path, populate_bytes: int, max_shard_bytes: int
) -> None:
    values = np.random.default_rng(3).integers(0, 256, (600, 12_288), dtype=np.uint8)
    result = write_arrays("a", {"x": values}, tmp_path, writer_config=writer(max_shard_bytes=max_shard_bytes))
    assert isinstance(result, CacheWriteSuccess), result
    for shuffle in (False, True):
        evict(result.path)
        config = reader(populate_bytes=populate_bytes, shuffle=shuffle, replacement=False)
        dataset = CachedDataset([result.path], reader_config=config)
        for rows in np.array_split(dataset.rows(), 3):
            np.testing.assert_array_equal(dataset.gather(rows)["x"], values[rows])
        del dataset
        evict(result.path)
        dataset = CachedDataset([result.path], reader_config=config)
        found = np.concatenate([batch["x"] for batch in dataset.batches(100)])
        np.testing.assert_array_equal(found, values[dataset.rows(epoch=0)])
