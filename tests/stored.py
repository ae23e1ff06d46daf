"""What a cache has on disk, read with NumPy alone: a second opinion on the writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tests.support import manifest

if TYPE_CHECKING:
    from pathlib import Path


def records(path: Path) -> list[tuple[bytes, bytes]]:
    """Return embedded metadata and stored payload of every record."""
    shards = [(path / "shards" / shard["name"]).read_bytes() for shard in manifest(path)["shards"]]
    found = []
    for shard, offset, byte_len in np.fromfile(path / "index.bin", "<u8").reshape(-1, 3).tolist():
        record = shards[shard][offset : offset + byte_len]
        head = 8 + int.from_bytes(record[:8], "little")
        found.append((record[8:head], record[head:]))
    return found


def payloads(path: Path) -> list[bytes]:
    """Return the stored payload of every record."""
    return [payload for _, payload in records(path)]


def dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a field, little-endian."""
    extension = getattr(ml_dtypes, name, None)
    return np.dtype(extension or name) if extension else np.dtype(name).newbyteorder("<")


def samples(path: Path) -> list[dict[str, Any]]:
    """Return the payload fields of every record, as the storage format describes them."""
    fields = manifest(path)["payload"]["fields"]
    assert [field["name"] for field in fields] == sorted(field["name"] for field in fields)
    found = []
    for payload in payloads(path):
        extents = 8 * sum(field["shape"].count(None) for field in fields)
        head = iter(np.frombuffer(payload[:extents], "<u8").tolist())
        rest, values = payload[extents:], {}
        for field in fields:
            shape = [next(head) if axis is None else axis for axis in field["shape"]]
            kind = np.dtype(np.uint8) if field["dtype"] == "bytes" else dtype(field["dtype"])
            length = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
            bytes_of, rest = rest[:length], rest[length:]
            array = np.frombuffer(bytes_of, kind).reshape(shape)
            values[field["name"]] = bytes_of if field["dtype"] == "bytes" else array
        assert rest == b""
        found.append(values)
    return found
