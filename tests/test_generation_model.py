"""Random sequences of changes and readings of one cache, against a twin that is nothing but lists in memory.

A seed gives the same sequence on every run; a failure names it.
"""

from __future__ import annotations

import os
import random
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from dataset_rt import (
    CachedDataset,
    ShardCompression,
    append_cache,
    compact_cache,
    delete_samples,
    vacuum_cache,
)
from dataset_rt.errors import GenerationNotFoundError, RowIndexError
from tests.support import Source, pairs, reader, write, writer

SEEDS = [int(os.environ["DATASET_RT_MODEL_SEED"])] if "DATASET_RT_MODEL_SEED" in os.environ else list(range(6))
STEPS = int(os.environ.get("DATASET_RT_MODEL_STEPS", "400"))

Sample = tuple[bytes, dict[str, Any]]


class Twin:
    """A cache, and what it should be."""

    def __init__(self, base: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.ids = 0
        first = self.samples(20)
        self.path = write(base, first, **self.options())
        self.ids = len(first)
        self.generations = [dict(enumerate(first))]
        self.kept = [0]
        self.opened: list[tuple[int, CachedDataset]] = []

    def samples(self, count: int) -> list[Sample]:
        return [self.sample(self.ids + n) for n in range(count)]

    def sample(self, n: int) -> Sample:
        payload = self.random.randbytes(self.random.choice([0, 1, 30, 500]))
        text = self.random.choice([None, "", "é", f"sample {n}"])
        return payload, {"n": n, "ratio": self.random.choice([None, n / 3]), "text": text}

    def options(self) -> dict[str, Any]:
        store = ShardCompression.model_validate({"algo": self.random.choice(["none", "lz4", "zstd"])})
        shard = self.random.choice([300, 2000, 1 << 20])
        return {"shard_compression": store, "max_shard_bytes": shard}

    @property
    def newest(self) -> int:
        return len(self.generations) - 1

    def publish(self, change: Any, contents: dict[int, Sample]) -> None:
        if change.changed:
            self.generations.append(contents)
            self.kept.append(self.newest)
        assert (change.generation, change.samples) == (self.newest, len(self.generations[-1]))
        assert self.generations[-1] == contents

    def append(self) -> None:
        added = self.samples(self.random.randrange(9))
        arrays, frame = {"data": [payload for payload, _ in added]}, _frame(added)
        source, metadata = self.random.choice([(Source(items=added), None), (arrays, frame)])
        change = append_cache(source, self.path, metadata=metadata, writer_config=writer(**self.options()))
        assert change.added == len(added)
        new = {self.ids + n: sample for n, sample in enumerate(added)}
        self.publish(change, self.generations[-1] | new)
        self.ids += len(added)

    def delete(self) -> None:
        wanted = [self.random.randrange(self.ids) for _ in range(self.random.randrange(6))]
        ways = [wanted, np.array(wanted, np.int64), pl.DataFrame({"sample_id": wanted}), pl.col("n").is_in(wanted)]
        change = delete_samples(self.path, self.random.choice(ways))
        left = {key: sample for key, sample in self.generations[-1].items() if key not in wanted}
        assert change.deleted == len(self.generations[-1]) - len(left)
        self.publish(change, left)
        with pytest.raises(RowIndexError):
            delete_samples(self.path, [self.ids])

    def compact(self) -> None:
        change = compact_cache(self.path, min_dead_fraction=self.random.choice([0.0, 0.2]))
        self.publish(change, self.generations[-1])

    def vacuum(self) -> None:
        report = vacuum_cache(self.path, grace=timedelta(0))
        self.kept = list(report.kept)
        # Datasets open files when they first need them.
        self.opened = [(number, dataset) for number, dataset in self.opened if number in self.kept]
        gone = [number for number in range(self.newest) if number not in self.kept]
        if gone:
            with pytest.raises(GenerationNotFoundError):
                CachedDataset([self.path], reader_config=reader(), generations=[self.random.choice(gone)])

    def open(self) -> None:
        number = self.random.choice([*self.kept, self.newest])
        config = reader(
            shuffle=False, io=self.random.choice(["mmap", "pread"]), validate_cache=self.random.random() < 0.3
        )
        dataset = CachedDataset([self.path], reader_config=config, generations=[number])
        assert dataset.generations == [number]
        self.opened = [*self.opened[-3:], (number, dataset)]

    def any(self) -> tuple[CachedDataset, dict[int, Sample]]:
        if not self.opened:
            self.open()
        number, dataset = self.random.choice(self.opened)
        return dataset, self.generations[number]

    def iterate(self) -> None:
        dataset, expected = self.any()
        samples = list(dataset)
        assert [sample.sample_id for sample in samples] == list(expected)
        assert pairs(samples) == list(expected.values())

    def gather(self) -> None:
        dataset, expected = self.any()
        if not expected:
            return
        rows = [self.random.randrange(len(expected)) for _ in range(self.random.randrange(9))]
        keys = list(expected)
        batch = dataset.gather(rows)
        assert batch.sample_id.tolist() == [keys[row] for row in rows]
        assert [bytes(value) for value in batch["data"]] == [expected[keys[row]][0] for row in rows]
        assert batch.metadata.to_dicts() == [expected[keys[row]][1] for row in rows]

    def metadata(self) -> None:
        dataset, expected = self.any()
        table = dataset.samples_metadata()
        assert table["sample_id"].to_list() == list(expected)
        assert table.select("n", "ratio", "text").to_dicts() == [metadata for _, metadata in expected.values()]


def _frame(samples: list[Sample]) -> pl.DataFrame:
    schema = {"n": pl.Int64, "ratio": pl.Float64, "text": pl.String}
    return pl.DataFrame([metadata for _, metadata in samples], schema=schema)


STEP_NAMES = (
    ["append"] * 3 + ["delete"] * 3 + ["open"] * 4 + ["iterate", "gather", "metadata"] * 2 + ["compact", "vacuum"]
)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_done_to_a_cache_it_stays_what_its_twin_is(tmp_path, seed):
    twin = Twin(tmp_path, seed)
    done = []
    for _ in range(STEPS):
        name = twin.random.choice(STEP_NAMES)
        done.append(name)
        try:
            getattr(twin, name)()
        except BaseException as error:
            error.add_note(f"seed {seed}, step {len(done)} of {done}")
            raise
    assert twin.newest > STEPS // 8
