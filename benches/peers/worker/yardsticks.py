"""What the machine can do at most, without a store or a loader.

Copies in order, plain threads that gather whole batches, zstd that decompresses them, a file that is written and made
durable.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from reference import Reference

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1024**3
TURN = 0.15  # seconds each thread works for
TURNS = 3
PIECE = 4 * 1024 * 1024  # bytes handed to the system at once


def _timed(work: Callable[[int], int], threads: int) -> float:
    """Return units of work a second of `threads` threads that each call `work(thread)` until the time is over."""
    done = [0] * threads
    ready = threading.Barrier(threads + 1)
    stop = 0.0

    def run(thread: int) -> None:
        ready.wait()
        while time.perf_counter() < stop:
            done[thread] += work(thread)

    workers = [threading.Thread(target=run, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    started = time.perf_counter()
    stop = started + TURN
    ready.wait()
    for worker in workers:
        worker.join()
    return sum(done) / (time.perf_counter() - started)


def memcpy(data: str, path: str, threads: int) -> Callable[[], dict[str, float]]:  # noqa: ARG001 - all have a path
    """Copy the data set in order, 3 MiB at a time, from memory into memory that is used again; GiB a second."""
    source = np.array(Reference(data).values).reshape(-1)
    size = min(3 * 1024 * 1024, source.nbytes)
    outs = [np.ones(size, np.uint8) for _ in range(threads)]
    places = [thread * (source.nbytes // threads) for thread in range(threads)]

    def work(thread: int) -> int:
        at = places[thread] if places[thread] + size <= source.nbytes else 0
        np.copyto(outs[thread], source[at : at + size])
        places[thread] = at + size
        return size

    return lambda: {"rate": median(_timed(work, threads) for _ in range(TURNS)) / GIB}


def threads(data: str, path: str, threads: int) -> Callable[[], dict[str, float]]:
    """Take whole batches from a mapped file into memory that is used again; batches a second, handed to no one."""
    reference = Reference(data)
    array = np.asarray(np.load(f"{path}/values.npy", mmap_mode="r"))
    outs = [np.ones((reference.rows.shape[1], *reference.shape), np.uint8) for _ in range(threads)]
    places = list(range(threads))

    def work(thread: int) -> int:
        rows = reference.rows[places[thread] % len(reference.rows)]
        places[thread] += threads
        np.take(array, rows, axis=0, out=outs[thread], mode="clip")
        return 1

    return lambda: {"rate": median(_timed(work, threads) for _ in range(TURNS))}


def zstd(data: str, path: str, level: int) -> Callable[[], dict[str, float]]:  # noqa: ARG001 - all have a path
    """Decompress records that were compressed one by one, in one thread; batches a second."""
    from zstandard import ZstdCompressor, ZstdDecompressor  # noqa: PLC0415

    reference = Reference(data)
    compress, decompress = ZstdCompressor(level=level).compress, ZstdDecompressor().decompress
    frames = [compress(reference.record(row).tobytes()) for row in range(len(reference))]

    def measure() -> dict[str, float]:
        done, started, took = 0, time.perf_counter(), 0.0
        while took < TURN * TURNS:
            for row in reference.rows[done % len(reference.rows)].tolist():
                decompress(frames[row])
            done += 1
            took = time.perf_counter() - started
        return {"rate": done / took}

    return measure


def file(data: str, path: str, *, durable: bool) -> Callable[[], dict[str, float]]:
    """Write the data set to one file, 4 MiB at a time, and with `durable` wait for the disk; GiB a second."""
    values = memoryview(np.ascontiguousarray(Reference(data).values).reshape(-1))
    target = Path(path) / f"plain-{os.getpid()}"

    def measure() -> dict[str, float]:
        os.sync()
        started = time.perf_counter()
        with target.open("wb", buffering=0) as out:
            for at in range(0, values.nbytes, PIECE):
                out.write(values[at : at + PIECE])
            if durable:
                os.fsync(out.fileno())
            took = time.perf_counter() - started
        target.unlink()
        os.sync()
        return {"write": values.nbytes / took / GIB}

    return measure
