"""Gathers of fields of fixed shape, which take shorter ways the more is known of a cache, against NumPy all the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from dataset_rt import CachedDataset, CacheWriteSuccess, ShardCompression, errors, write_arrays
from tests.support import reader, writer

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 500
GATHERS = 30
"""More than it takes until all index rows were looked at."""


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    return {
        "image": rng.integers(0, 256, (ROWS, 7, 13), dtype=np.uint8),
        "label": np.arange(ROWS, dtype=np.int64),
        "nothing": np.empty((ROWS, 0), np.float32),
    }


def put(base: Path, metadata: pl.DataFrame | None = None, name: str = "train", **changes: Any) -> Path:
    result = write_arrays(name, arrays(), base, metadata=metadata, writer_config=writer(**changes))
    assert isinstance(result, CacheWriteSuccess), result
    return result.path


def even() -> None:
    """No metadata: all records have one length."""


def uneven() -> pl.DataFrame:
    """Numbers of one to three digits in the records."""
    return pl.DataFrame({"n": range(ROWS)})


def stepped() -> pl.DataFrame:
    """Records of one length, and from the middle on of another."""
    return pl.DataFrame({"n": [1] * (ROWS // 2) + [22] * (ROWS - ROWS // 2)})


@pytest.mark.parametrize("verify", ["first", "always", "never"])
@pytest.mark.parametrize("metadata", [even, uneven, stepped])
@pytest.mark.parametrize("shard_bytes", [4096, 1 << 30])
def test_every_gather_is_what_numpy_takes(tmp_path: Path, verify: Any, metadata: Any, shard_bytes: int) -> None:
    path = put(tmp_path, metadata(), max_shard_bytes=shard_bytes)
    written = arrays()
    dataset = CachedDataset([path], reader_config=reader(verify=verify))
    rng = np.random.default_rng(1)
    for count in (0, 1, 40, 300, *[40] * GATHERS):
        rows = rng.integers(-ROWS, ROWS, count)
        batch = dataset.gather(rows)
        assert batch.sample_id.tolist() == (rows % ROWS).tolist()
        assert all(np.array_equal(batch[name], values[rows]) for name, values in written.items())
        image = dataset.gather(rows, columns=["image"])["image"]
        assert np.array_equal(image, written["image"][rows])
        label = np.empty(count, np.int64)
        dataset.gather(rows, out={"label": label}, columns=["label"])
        assert np.array_equal(label, rows % ROWS)


def test_caches_that_are_stored_otherwise_are_gathered_together(tmp_path: Path) -> None:
    kinds: list[dict[str, Any]] = [{}, {"shard_compression": ShardCompression(algo="zstd")}, {"max_shard_bytes": 4096}]
    paths = [put(tmp_path, None, f"c{number}", **kind) for number, kind in enumerate(kinds)]
    written = arrays()
    for chosen in (paths, paths[::2]):
        dataset = CachedDataset(chosen, reader_config=reader())
        rng = np.random.default_rng(2)
        for _ in range(GATHERS):
            rows = rng.integers(0, len(dataset), 100)
            batch = dataset.gather(rows)
            assert batch.cache_id.tolist() == (rows // ROWS).tolist()
            assert all(np.array_equal(batch[name], values[rows % ROWS]) for name, values in written.items())


def test_damage_is_named_however_well_a_cache_is_known(tmp_path: Path) -> None:
    path = put(tmp_path)
    dataset = CachedDataset([path], reader_config=reader(verify="always"))
    for _ in range(GATHERS):
        dataset.gather(slice(0, 100))
    (shard,) = (path / "shards").iterdir()
    length = shard.stat().st_size // ROWS
    with shard.open("r+b") as file:
        for row in (77, 33):
            file.seek(row * length + length // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
    others = [row for row in range(ROWS) if row not in (33, 77)]
    assert np.array_equal(dataset.gather(others)["label"], others)
    with pytest.raises(errors.CorruptRecordError) as caught:
        dataset.gather([5, 77, 33])
    assert caught.value.sample_id == 77


def test_a_gather_that_threads_share_is_what_numpy_takes(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 256, (3000, 4096), dtype=np.uint8)
    result = write_arrays("large", {"x": values}, tmp_path, writer_config=writer(max_shard_bytes=1 << 20))
    assert isinstance(result, CacheWriteSuccess), result
    dataset = CachedDataset([result.path], reader_config=reader(num_workers=4))
    for _ in range(6):
        rows = rng.integers(0, 3000, 1500)
        assert np.array_equal(dataset.gather(rows)["x"], values[rows])


def test_parts_of_a_batch_are_the_same_memory_for_all_who_ask(tmp_path: Path) -> None:
    batch = CachedDataset([put(tmp_path)], reader_config=reader()).gather([3, 1])
    first = batch.data["image"]
    del batch.__dict__["data"]  # as if another thread had asked at the same time
    second = batch.data["image"]
    assert np.shares_memory(first, second)
    assert np.array_equal(second, arrays()["image"][[3, 1]])
