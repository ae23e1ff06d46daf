"""The data that every contender stores: made once, the same on every machine, kept as plain NumPy files.

A data set is a folder with `values.npy` and `rows.npy` (batches of row numbers, the same for everybody), and
`offsets.npy` when its records differ in length. The first four bytes of every record are its row number, so that a
record out of any order can be compared with what was stored.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BATCH = 256
BATCHES = 200
IMAGE = (3, 64, 64)
BLOCK = 1000  # records made at a time


@dataclass(frozen=True)
class DataSet:
    """How many records of what shape; `kind` names the maker. Without a shape the records differ in length."""

    name: str
    records: int
    kind: str
    shape: tuple[int, ...] | None = IMAGE
    batch: int = BATCH
    once: bool = False  # row numbers without repetition, for reads that must not find a record in memory

    def smaller(self, factor: int) -> DataSet:
        """Return a data set for a smoke run."""
        records = max(self.batch * 8, self.records // factor)
        return DataSet(self.name, records, self.kind, self.shape, self.batch, self.once)


DATA_SETS = {
    each.name: each
    for each in (
        DataSet("12k", 20_000, "images"),
        DataSet("12k-runs", 20_000, "masks"),
        DataSet("256", 1_000_000, "noise", (256,)),
        DataSet("variable", 50_000, "lengths", None),
        DataSet("cold-12k", 40_000, "noise", IMAGE, once=True),
        DataSet("cold-32k", 20_000, "noise", (32 * 1024,), once=True),
    )
}


def _images(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> np.ndarray:
    """Pixels around a slope: a general compressor saves a sixth of them, lz4 nothing."""
    tone = rng.uniform(70.0, 180.0, (count, 1, 1, 1)).astype(np.float32)
    slope = np.linspace(-12.0, 12.0, shape[-1], dtype=np.float32)
    pixels = rng.standard_normal((count, *shape), dtype=np.float32)
    pixels *= 23.0
    pixels += tone
    pixels += slope
    return np.clip(pixels, 0, 255, out=pixels).astype(np.uint8)


def _masks(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> np.ndarray:
    """One plane of pixels and two of runs, as in segmentation: lz4 saves more than half."""
    records = _images(rng, count, shape)
    size = count * (shape[0] - 1) * shape[1] * shape[2]
    lengths = rng.geometric(1 / 24, size // 16)
    labels = rng.integers(0, 20, lengths.size, dtype=np.uint8)
    records[:, 1:] = np.repeat(labels, lengths)[:size].reshape(count, shape[0] - 1, *shape[1:])
    return records


def _noise(rng: np.random.Generator, count: int, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8)


MAKERS: dict[str, Callable[[np.random.Generator, int, tuple[int, ...]], np.ndarray]] = {
    "images": _images,
    "masks": _masks,
    "noise": _noise,
}


def lengths_of(count: int) -> np.ndarray:
    """Lognormal lengths from 1 KiB to 1 MiB: half are below 12 KiB, the mean is 20 KiB."""
    drawn = np.random.default_rng(11).lognormal(np.log(12 * 1024), 1.0, count)
    return np.clip(drawn, 1024, 1024 * 1024).astype(np.int64)


def made(data: DataSet, folder: Path) -> Path:
    """Make a data set in its folder below `folder`, unless it is there already; return its folder."""
    target = folder / data.name
    stamp = target / "ready.json"
    wanted = json.dumps(asdict(data), sort_keys=True)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return target
    target.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    if data.shape is None:
        _make_ragged(rng, data, target)
    else:
        values = np.lib.format.open_memmap(
            target / "values.npy", mode="w+", dtype=np.uint8, shape=(data.records, *data.shape)
        )
        flat = values.reshape(data.records, -1)
        for start in range(0, data.records, BLOCK):
            stop = min(start + BLOCK, data.records)
            flat[start:stop] = MAKERS[data.kind](rng, stop - start, data.shape).reshape(stop - start, -1)
            flat[start:stop, :4] = np.arange(start, stop, dtype="<u4").view(np.uint8).reshape(-1, 4)
        values.flush()
    if data.once:
        rows = rng.permutation(data.records)[: data.records // data.batch * data.batch].reshape(-1, data.batch)
    else:
        rows = rng.integers(0, data.records, (BATCHES, data.batch))
    np.save(target / "rows.npy", rows.astype(np.int64))
    stamp.write_text(wanted, encoding="utf-8")
    return target


def _make_ragged(rng: np.random.Generator, data: DataSet, target: Path) -> None:
    offsets = np.concatenate([[0], np.cumsum(lengths_of(data.records))])
    size = int(offsets[-1])
    values = np.lib.format.open_memmap(target / "values.npy", mode="w+", dtype=np.uint8, shape=(size,))
    step = 16 * 1024 * 1024
    for start in range(0, size, step):
        values[start : start + step] = rng.integers(0, 256, min(step, size - start), dtype=np.uint8)
    places = offsets[:-1, None] + np.arange(4)
    values[places] = np.arange(data.records, dtype="<u4").view(np.uint8).reshape(-1, 4)
    values.flush()
    np.save(target / "offsets.npy", offsets)
