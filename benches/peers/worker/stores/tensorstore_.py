"""TensorStore over its zarr 3 driver, one record per chunk in shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorstore as ts

from stores.base import Base

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from reference import Reference

SHARD = 512
CODECS = {
    "raw": [],
    "zstd": [{"name": "zstd", "configuration": {"level": 3}}],
    "lz4": [{"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle"}}],
}


def _spec(path: Path) -> dict[str, object]:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path / "records")}}


class Store(Base):
    """`form`: raw, zstd or lz4 (Blosc)."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        context = ts.Context({"data_copy_concurrency": {"limit": 2}})
        self.array = ts.open(_spec(path), open=True, read=True, recheck_cached_data=False, context=context).result()

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Write shard by shard, without syncing each file."""
        shape = list(reference.shape)
        inner = {"chunk_shape": [1, *shape], "codecs": [{"name": "bytes"}, *CODECS[form]]}
        spec = _spec(path) | {
            "metadata": {
                "shape": list(reference.values.shape),
                "data_type": "uint8",
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [SHARD, *shape]}},
                "codecs": [{"name": "sharding_indexed", "configuration": inner}],
            }
        }
        context = ts.Context({"file_io_sync": False})
        array = ts.open(spec, create=True, context=context).result()
        for start in range(0, len(reference), SHARD):
            stop = min(start + SHARD, len(reference))
            array[start:stop].write(reference.values[start:stop]).result()

    def gather(self, rows: np.ndarray) -> object:
        """Index with an array of row numbers and wait."""
        return self.array[rows].read().result()
