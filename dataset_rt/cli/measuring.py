"""Reading a cache and the same files plainly, a little at a time, so that both meet the same state of the machine."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataset_rt import CachedDataset

__all__ = ["Measured", "Plan", "measured"]

_BLOCK = 4 << 20

Work: TypeAlias = Iterator[tuple[int, int]]
"""Work in small pieces: samples and bytes of each."""


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    cache: str
    shards: Sequence[str]
    sample_bytes: int
    """Stored bytes of an average sample."""

    batch_size: int
    seconds: float
    rounds: int
    cold: bool


@dataclass(frozen=True)
class Measured:
    """Medians over the rounds."""

    name: str
    state: str
    """`"cold"`: read from the disk; `"warm"`: from memory."""

    samples_per_second: float | None
    bytes_per_second: float
    first_seconds: float
    """Until the first piece was there, opening included."""


def measured(plan: Plan, waiting: Callable[[str], object]) -> list[Measured]:
    """Return how fast a cache and its files are read, in rounds through all cases."""
    cases: dict[str, Callable[[Plan], Work]] = {
        "files, in order": _plain_in_order,
        "cache, in order": _in_order,
        "files, at random": _plain_at_random,
        "cache, gathers": _gathers,
        "cache, samples": _samples,
    }
    states = ["cold", "warm"] if plan.cold and hasattr(os, "posix_fadvise") else ["warm"]
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for number in range(plan.rounds):
        for name, case in cases.items():
            for state in states:
                waiting(f"round {number + 1} of {plan.rounds}: {name}, {state}")
                if state == "cold":
                    _forget(plan.shards)
                found.setdefault((name, state), []).append(_timed(case, plan, once=state == "cold"))
    rows = []
    for (name, state), rounds in found.items():
        samples, size, first = (median(values) for values in zip(*rounds, strict=True))
        rows.append(Measured(name, state, samples if name.startswith("cache") else None, size, first))
    return sorted(rows, key=lambda row: states.index(row.state))


def _timed(case: Callable[[Plan], Work], plan: Plan, *, once: bool) -> tuple[float, float, float]:
    """Return samples and bytes a second, and the seconds until the first.

    What was read from the disk is in memory then, so that a second pass would be another measurement.
    """
    samples = size = 0
    now = first = 0.0
    start = time.perf_counter()
    while now < plan.seconds:
        for more_samples, more_bytes in case(plan):
            now = time.perf_counter() - start
            first = first or now
            samples, size = samples + more_samples, size + more_bytes
            if now > plan.seconds:
                break
        if once:
            break
    elapsed = max(time.perf_counter() - start, 1e-9)
    return samples / elapsed, size / elapsed, first


def _forget(paths: Sequence[str]) -> None:
    """Ask the system to drop files from memory; what is mapped or not yet written stays."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _plain_in_order(plan: Plan) -> Work:
    block = bytearray(_BLOCK)
    for path in plan.shards:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (unbuffered, and thousands of them)
            while length := file.readinto(block):
                yield 0, length


def _plain_at_random(plan: Plan) -> Work:
    """Read as many bytes as a sample has, anywhere, one read after the other."""
    generator = random.Random(7)  # noqa: S311 (where to read is no secret)
    sizes = [os.path.getsize(path) for path in plan.shards]  # noqa: PTH202 (thousands of them)
    for _ in range(max(sum(sizes) // plan.sample_bytes // 64, 1)):
        [shard] = generator.choices(range(len(sizes)), sizes)
        with open(plan.shards[shard], "rb", buffering=0) as file:  # noqa: PTH123 (as above)
            for _ in range(64):
                file.seek(generator.randrange(max(sizes[shard] - plan.sample_bytes, 0) + 1))
                yield 0, len(file.read(plan.sample_bytes))


def _in_order(plan: Plan) -> Work:
    dataset = _opened(plan)
    with dataset.batches(plan.batch_size, columns=_payload(dataset)) as batches:
        for batch in batches:
            yield len(batch), len(batch) * plan.sample_bytes


def _gathers(plan: Plan) -> Work:
    dataset = _opened(plan)
    rows = np.random.default_rng(7).permutation(len(dataset))
    for start in range(0, len(rows), plan.batch_size):
        chosen = rows[start : start + plan.batch_size]
        dataset.gather(chosen, columns=_payload(dataset))
        yield len(chosen), len(chosen) * plan.sample_bytes


def _samples(plan: Plan) -> Work:
    with iter(_opened(plan)) as samples:
        for _ in samples:
            yield 1, plan.sample_bytes


def _opened(plan: Plan) -> CachedDataset:
    """Open the cache anew: what was verified for another dataset is verified again."""
    from dataset_rt import CachedDataset, ReaderConfig

    return CachedDataset([plan.cache], reader_config=ReaderConfig(seed=7, shuffle=False))


def _payload(dataset: CachedDataset) -> list[str]:
    fields = dataset.payload_fields
    return ["data"] if fields is None else [field.name for field in fields]
