"""Which epoch the worker processes of a `DataLoader` deliver.

A `DataLoader` starts new worker processes for every pass over an iterable dataset and tells the original nothing about
it, so that copies would all deliver one and the same epoch. The workers therefore agree among themselves, on a small
board in an unnamed file that they inherit from the original: the first of a pass opens it, the others join.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import threading
import weakref
import zlib
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import TYPE_CHECKING, Any, NamedTuple

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

if TYPE_CHECKING:
    from collections.abc import Generator

_KEPT = 64
"""Passes remembered: more than can be starting at one time."""

_HEADER = struct.Struct("<QQI")
"""Before each record of the passes: its number, its length, and a checksum of those two and the record."""

_SLOT = 1 << 24
"""Where the second of two records begins. They are written in turns, so that a writer that is killed spoils only the
older one; this is far more than a record needs, and the gap takes no room."""

_threads = threading.Lock()
"""Keeps threads of one process apart, which the lock on the file does not do."""


def _forget_threads() -> None:
    """Free the lock in a forked child: the thread that held it is not there."""
    global _threads  # noqa: PLW0603 (a lock cannot be reset)
    _threads = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


class Pass(NamedTuple):
    """What a pass is known by: the seed that its `DataLoader` drew, and how often its workers have been reused."""

    seed: int
    reuse: int


class EpochBoard:
    """Passes of worker processes over copies of one dataset. Nothing of it outlives the processes."""

    __slots__ = ("__weakref__", "_file")

    def __init__(self) -> None:
        self._adopt(_unnamed_file())

    def _adopt(self, descriptor: int) -> None:
        self._file = descriptor
        weakref.finalize(self, os.close, descriptor)

    def __getstate__(self) -> Any:
        """Return the file for a process that is being started; anywhere else a copy gets a board of its own."""
        return DupFd(self._file) if get_spawning_popen() is not None else "new"

    def __setstate__(self, state: Any) -> None:
        self._adopt(_unnamed_file() if state == "new" else state.detach())

    def join(self, this: Pass, worker: int, moves: int, start: tuple[int, int]) -> tuple[int, int]:
        """Return epoch and position where a worker starts.

        Args:
            this: The pass.
            worker: Number of the worker.
            moves: How often the original dataset had chosen an epoch when the worker was started.
            start: Where the original stood then: the first pass after a choice starts there, later ones at the epochs
                after it.
        """
        with self._entries() as entries:
            for entry in reversed(entries):
                if entry["pass"] == list(this) and entry["moves"] == moves and worker not in entry["workers"]:
                    entry["workers"].append(worker)
                    return entry["epoch"], entry["position"]
            epoch, position = start
            if entries and entries[-1]["moves"] == moves:
                epoch, position = entries[-1]["epoch"] + 1, 0
            entries.append(
                {"pass": list(this), "moves": moves, "workers": [worker], "epoch": epoch, "position": position}
            )
            return epoch, position

    def correct(self, this: Pass, moves: int, epoch: int) -> None:
        """Note that a pass resumed in `epoch`, so that the next one is the epoch after it."""
        with self._entries() as entries:
            for entry in entries:
                if entry["pass"] == list(this) and entry["moves"] == moves:
                    entry["epoch"] = epoch

    def last_epoch(self, moves: int) -> int | None:
        """Return the epoch of the last pass since the dataset chose one, or `None` without a pass since then."""
        if fcntl is None:
            return None
        with self._entries() as entries:
            return entries[-1]["epoch"] if entries and entries[-1]["moves"] == moves else None

    @contextmanager
    def _entries(self) -> Generator[list[dict[str, Any]]]:
        """Give the passes, oldest first, to be changed in place; one process at a time."""
        if fcntl is None:
            raise RuntimeError(
                "worker processes of an iterable dataset cannot agree on an epoch on this platform; "
                "use num_workers=0, or map_dataset with batch_sampler"
            )
        with _threads:
            # The system drops this lock with the process that holds it, so that a killed worker blocks nobody.
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                number, entries = self._read()
                yield entries
                data = json.dumps(entries[-_KEPT:]).encode()
                place = _HEADER.pack(number + 1, len(data), _checksum(number + 1, data))
                os.pwrite(self._file, place + data, (number + 1) % 2 * _SLOT)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _read(self) -> tuple[int, list[dict[str, Any]]]:
        """Return number and passes of the newest whole record; number 0 stands for none."""
        newest: tuple[int, bytes] = (0, b"[]")
        for slot in (0, _SLOT):
            header = os.pread(self._file, _HEADER.size, slot)
            if len(header) < _HEADER.size:
                continue
            number, length, checksum = _HEADER.unpack(header)
            data = os.pread(self._file, min(length, _SLOT - _HEADER.size), slot + _HEADER.size)
            if number > newest[0] and len(data) == length and _checksum(number, data) == checksum:
                newest = (number, data)
        return newest[0], json.loads(newest[1])


def _checksum(number: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(b"%d %d" % (number, len(data))))


def _unnamed_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dataset_rt-epochs")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
