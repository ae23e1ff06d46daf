"""What a worker can be asked to do: each action prepares and returns a function that measures once.

Times include what the library's user waits for and nothing else: imports, opening and the comparison with the reference
stay outside. Rates count payload bytes, never bytes on disk.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from reference import Reference, check
from yardsticks import file, memcpy, threads, zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Figures = dict[str, float]
GIB = 1024**3
CHECKED = 2  # batches compared byte for byte
PASS = 0.2  # seconds of whole passes over the row numbers that a measurement takes at least
CUT = 0.4  # seconds after which a slow contender's pass is cut short
LOADING = 0.4  # seconds of batches that a measurement of a loader takes
SKIPPED = 24  # batches a loader may have made before the clock starts
SIZES = (256, 1024, 8192)  # of batches of row numbers
COLD = 1.5  # seconds after which a slow contender's reads of cold files are cut short


def _store(kind: str) -> Any:
    return importlib.import_module(f"stores.{kind}").Store


def write(data: str, path: str, store: str, form: str) -> Callable[[], Figures]:
    """Write the store once, for others to read; the figure is its size on disk."""
    reference = Reference(data)

    def measure() -> Figures:
        target = Path(path)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        _store(store).write(reference, target, form)
        return {"bytes": float(sum(file.stat().st_blocks * 512 for file in target.rglob("*") if file.is_file()))}

    return measure


def rewrite(data: str, path: str, store: str, form: str) -> Callable[[], Figures]:
    """Time writing the whole data set into a fresh folder, then take it away; the first result is compared."""
    reference = Reference(data)
    kind = _store(store)
    count = 0

    def measure() -> Figures:
        nonlocal count
        count += 1
        target = Path(path) / f"{os.getpid()}-{count}"
        target.mkdir(parents=True)
        os.sync()
        try:
            started = time.perf_counter()
            kind.write(reference, target, form)
            took = time.perf_counter() - started
            if count == 1:
                opened = kind(target, reference, form)
                check(opened.shown(opened.gather(reference.rows[0])), reference, reference.rows[0])
                opened.close()
        finally:
            shutil.rmtree(target, ignore_errors=True)
            os.sync()
        return {"write": reference.values.nbytes / took / GIB}

    return measure


def gather(
    data: str,
    path: str,
    *,
    store: str,
    form: str,
    into: bool = False,
    rate: str = "GiB/s",
    batch: int | None = None,
) -> Callable[[], Figures]:
    """Time random batches, each into memory of the library's or, with `into`, into one array of ours."""
    reference = Reference(data)
    opened = _store(store)(Path(path), reference, form)
    rows = reference.rows
    batches = list(rows if batch is None else rows.reshape(-1)[: rows.size // batch * batch].reshape(-1, batch))
    if into:
        out = np.empty((len(batches[0]), *reference.shape), np.uint8)

        def fetch(rows: np.ndarray) -> object:
            opened.gather_into(rows, out)
            return out
    else:
        fetch = opened.gather
    sizes = np.array([reference.payload_bytes(rows) for rows in batches])
    for rows in batches[:CHECKED]:
        check(opened.shown(fetch(rows)), reference, rows)
    _passes(fetch, batches, CUT)  # everything is touched once

    def measure() -> Figures:
        taken = [
            (sizes[:done].sum() / GIB if rate == "GiB/s" else done * len(batches[0]) / 1e6) / took
            for done, took in _passes(fetch, batches, CUT)
        ]
        return {"rate": median(taken)}

    return measure


def _passes(fetch: Callable[[np.ndarray], object], batches: list[np.ndarray], cut: float) -> list[tuple[int, float]]:
    """Fetch all batches again and again; return how many were fetched in how many seconds, per pass."""
    passes: list[tuple[int, float]] = []
    began = time.perf_counter()
    while not passes or (passes[-1][0] == len(batches) and time.perf_counter() - began < PASS):
        done = 0
        started = time.perf_counter()
        for rows in batches:
            fetch(rows)
            done += 1
            if time.perf_counter() - started > cut:
                break
        passes.append((done, time.perf_counter() - started))
    return passes


def _skip(iterator: Iterator[object]) -> None:
    """Take what a loader made while nobody waited."""
    until = time.perf_counter() + LOADING
    for _ in range(SKIPPED):
        next(iterator)
        if time.perf_counter() > until:
            return


def load(data: str, path: str, loader: str, form: str, **options: object) -> Callable[[], Figures]:
    """Time the first batch from before opening, then a steady stream of batches."""
    reference = Reference(data)
    kind = importlib.import_module(f"loaders.{loader}").Loader
    kept: list[Any] = []
    firsts: list[float] = []

    def build() -> tuple[Any, Iterator[object], float]:
        started = time.perf_counter()
        built = kind(Path(path), reference, form, **options)
        iterator = iter(built)
        first = next(iterator)
        took = time.perf_counter() - started
        check(built.shown(first), reference)
        return built, iterator, took

    def measure() -> Figures:
        if not kept:
            built, iterator, took = build()
            firsts.append(took)
            kept.append((built, iterator))
        figures = {"first": firsts.pop() * 1e3} if firsts else {}
        built, iterator = kept[0]
        for _ in range(CHECKED):
            check(built.shown(next(iterator)), reference)
        _skip(iterator)
        done, started, now = 0, time.perf_counter(), 0.0
        while now < LOADING:
            next(iterator)
            done += 1
            now = time.perf_counter() - started
        figures["rate"] = done / now
        if not built.slow_start:
            iterator = None
            kept.clear()
            built.close()
        return figures

    built, iterator, took = build()  # the first of a process also pays for imports inside the library
    if built.slow_start:
        kept.append((built, iterator))
        firsts.append(took)
    else:
        del iterator
        built.close()
    return measure


def cold(
    data: str, path: str, *, store: str, form: str, ordered: bool = False, limit: float = COLD
) -> Callable[[], Figures]:
    """Time batches of distinct records that are not in memory, in random order or as stored."""
    reference = Reference(data)
    if ordered:
        reference.rows = np.arange(reference.rows.size).reshape(reference.rows.shape)
    opened = _store(store)(Path(path), reference, form)
    return _cold(opened.gather, opened.shown, reference, limit)


def cold_load(
    data: str, path: str, loader: str, form: str, limit: float = COLD, **options: object
) -> Callable[[], Figures]:
    """Time a loader's batches of records that are not in memory."""
    reference = Reference(data)
    built = importlib.import_module(f"loaders.{loader}").Loader(Path(path), reference, form, **options)
    iterator: list[Iterator[object]] = []

    def fetch(_: np.ndarray) -> object:
        if not iterator:
            iterator.append(iter(built))
        return next(iterator[0])

    return _cold(fetch, built.shown, reference, limit, ordered=False)


def _cold(
    fetch: Callable[[np.ndarray], object],
    shown: Callable[[Any], object],
    reference: Reference,
    limit: float,
    *,
    ordered: bool = True,
) -> Callable[[], Figures]:
    def measure() -> Figures:
        kept: list[tuple[object, np.ndarray]] = []
        done = 0
        started = time.perf_counter()
        for rows in reference.rows:
            batch = fetch(rows)
            done += 1
            if done <= CHECKED:
                kept.append((batch, rows))
            if time.perf_counter() - started > limit:
                break
        took = time.perf_counter() - started
        for batch, rows in kept:
            check(shown(batch), reference, rows if ordered else None)
        return {"rate": done * reference.rows.shape[1] * reference.size / took / GIB}

    return measure


def sample(data: str, path: str, sampler: str) -> Callable[[], Figures]:
    """Time drawing row numbers, in batches of each size; millions of rows a second."""
    make = getattr(importlib.import_module("samplers"), sampler)
    length = len(Reference(data))

    def measure() -> Figures:
        figures = {}
        for size in SIZES:
            draw = make(path, length, size)
            drawn = np.asarray(draw())
            if len(drawn) != size or int(drawn.min()) < 0 or int(drawn.max()) >= length:
                raise RuntimeError(f"expected {size} rows below {length}, found {len(drawn)}")
            count = max(20, 2_000_000 // size)
            started = time.perf_counter()
            for _ in range(count):
                draw()
            figures[str(size)] = count * size / (time.perf_counter() - started) / 1e6
        return figures

    return measure


def endless(data: str, path: str, loader: str, form: str, batches: int, **options: object) -> Callable[[], Figures]:
    """Measure by how much memory grows over many batches of an endless loader, after the first twentieth."""
    reference = Reference(data)
    built = importlib.import_module(f"loaders.{loader}").Loader(Path(path), reference, form, **options)

    def anonymous() -> float:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no RssAnon on this platform")

    def measure() -> Figures:
        iterator = iter(built)
        for _ in range(batches // 20):
            next(iterator)
        before = anonymous()
        peak = before
        for at in range(batches - batches // 20):
            next(iterator)
            if at % 500 == 0:
                peak = max(peak, anonymous())
        with contextlib.suppress(AttributeError):
            iterator.close()
        return {"growth": peak - before, "held": peak}

    return measure


ACTIONS = {
    action.__name__: action
    for action in (write, rewrite, gather, load, cold, cold_load, sample, endless, memcpy, threads, zstd, file)
}
