"""Files in memory and not: read them, drop them, look which are."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
