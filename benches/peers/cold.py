"""Drop files from memory, see that they are gone, and ask fio what the disk can do."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GIB = 1024**3
SECONDS = 0.8  # of each fio run


class FioUnavailableError(Exception):
    """fio cannot be run here; the message says why."""


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 0)


def evict(folder: Path) -> None:
    """Write back and drop all files below a folder from the page cache."""
    for path in _files(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def warm(folder: Path) -> None:
    """Read all files below a folder once, so that they are in memory."""
    for path in _files(folder):
        with path.open("rb", buffering=0) as file:
            while file.read(8 * 1024 * 1024):
                pass


def resident(folder: Path) -> float:
    """Return which part of the pages below a folder is in memory."""
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    pages = found = 0
    for path in _files(folder):
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as area,
        ):
            state = ctypes.create_string_buffer(-(-len(area) // mmap.PAGESIZE))
            place = ctypes.addressof(anchor := ctypes.c_char.from_buffer(area))
            if mincore(place, len(area), state) != 0:
                raise OSError(ctypes.get_errno(), f"mincore failed for {path}")
            del anchor
            pages += len(state)
            found += sum(byte & 1 for byte in state.raw)
    return found / max(1, pages)


def fio(file: Path, access: str, block: str, depth: int) -> float:
    """Return the GiB a second that fio reads from a file past the page cache at one queue depth."""
    program = shutil.which("fio")
    if program is None:
        raise FioUnavailableError("fio is not installed (Debian: apt-get install fio)")
    reason = ""
    for engine in ("io_uring", "libaio"):
        command = [
            program,
            "--name=bench",
            f"--filename={file}",
            "--readonly",
            "--direct=1",
            f"--rw={access}",
            f"--bs={block}",
            f"--iodepth={depth}",
            f"--ioengine={engine}",
            "--time_based",
            f"--runtime={SECONDS}",
            "--output-format=json",
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        start = done.stdout.find("{")
        if done.returncode == 0 and start >= 0:
            return json.loads(done.stdout[start:])["jobs"][0]["read"]["bw_bytes"] / GIB
        reason = " ".join((done.stderr or done.stdout).split())[:200]
    raise FioUnavailableError(f"fio does not run here: {reason}")
