"""What the tests of order, ranks and resume share: datasets of any size, their orders, and states through JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from dataset_rt import CachedDataset, CacheInput, CacheWriteSuccess, ReaderConfig, WriterConfig, write_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dataset_rt import CachedBatch, CachedSample

MODES: dict[str, dict[str, Any]] = {
    "physical": {"shuffle": False},
    "permutation": {"replacement": False},
    "quota": {"replacement": False, "weighted": True},
    "uniform": {},
    "weighted": {"weighted": True},
}
"""The five ways of an order, as arguments of `opened`."""

Id = tuple[int, int]


class Numbered:
    """Samples whose payload says which they are; every seventh is empty, sizes vary."""

    def __init__(self, count: int, name: str = "numbered", salt: str = "") -> None:
        self.count = count
        self.name = name
        self.salt = salt

    def __iter__(self) -> Iterator[CacheInput]:
        for n in range(self.count):
            yield CacheInput(payload(n, self.salt), {"n": n, "third": n % 3})


def payload(n: int, salt: str = "") -> bytes:
    return f"{salt}{n}:".encode() * (n % 7)


def written(base: Path, count: int, name: str = "numbered", salt: str = "") -> Path:
    [result] = write_cache(Numbered(count, name, salt), base, writer_config=WriterConfig(show_progress=False))
    assert isinstance(result, CacheWriteSuccess), result
    return result.path


def weights(frame: pl.DataFrame) -> pl.DataFrame:
    """Give rows weights from 1 to 3.5."""
    return frame.with_columns(weight=1.0 + (pl.col("sample_id") % 6) / 2)


def opened(paths: Path | list[Path], rows: int | None = None, **config: Any) -> CachedDataset:
    """Open caches with two reader threads; `rows` takes a view of the first ones, `weighted` gives them weights."""
    weighted = config.pop("weighted", False)
    config = {"seed": 11, "num_workers": 2, "prefetch_size": 8, **config}
    dataset = CachedDataset(paths if isinstance(paths, list) else [paths], reader_config=ReaderConfig(**config))
    if rows is not None:
        dataset = dataset.select(dataset.samples_metadata().head(rows))
    if weighted:
        dataset.set_samples_metadata(weights(dataset.samples_metadata()))
    return dataset


def order(dataset: CachedDataset, epoch: int = 0, start: int = 0, stop: int | None = None) -> list[Id]:
    frame = dataset.order(epoch, start, stop)
    return list(zip(frame["cache_id"].to_list(), frame["sample_id"].to_list(), strict=True))


def ids(samples: Iterable[CachedSample]) -> list[Id]:
    """Return who the samples are, and check that their bytes agree."""
    found = []
    for sample in samples:
        assert sample.data == payload(sample.sample_id)
        assert sample.metadata["n"] == sample.sample_id
        found.append((sample.cache_id, sample.sample_id))
    return found


def batch_ids(batch: CachedBatch, *, padded: bool = False) -> list[Id]:
    """Return who the rows of a batch are, and check that their bytes agree."""
    samples = batch.sample_id.tolist()
    assert [bytes(data) for data in batch.data] == [payload(n) for n in samples]
    assert batch.metadata["n"].to_list() == samples
    rows = zip(batch.cache_id.tolist(), samples, batch.valid.tolist(), strict=True)
    return [(cache, sample) for cache, sample, valid in rows if valid or padded]


def differing(error: Any) -> list[str]:
    """Return the names of the fields that a refused state differs in."""
    return [name for name, _, _ in error.fields]


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as it comes back from a checkpoint, and check its size."""
    text = json.dumps(state)
    assert len(text) < 4096
    return json.loads(text)


def delivered(dataset: CachedDataset) -> list[Id]:
    """Return what the next epoch of a dataset delivers: the work of child processes."""
    return ids(dataset)
