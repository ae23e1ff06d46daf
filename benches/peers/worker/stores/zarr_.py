"""Zarr 3, one record per chunk in shards, read by orthogonal selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zarr

from stores.base import Base

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from reference import Reference

SHARD = 512  # records of 12 KiB: 6 MiB


class Store(Base):
    """`form`: raw, zstd (its default) or lz4 (Blosc)."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        self.array = zarr.open_array(path / "records.zarr", mode="r")

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:
        """Write the whole array; zarr works shard by shard."""
        compressors = {
            "raw": None,
            "zstd": zarr.codecs.ZstdCodec(level=3),
            "lz4": zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="noshuffle"),
        }[form]
        array = zarr.create_array(
            path / "records.zarr",
            shape=reference.values.shape,
            dtype="uint8",
            chunks=(1, *reference.shape),
            shards=(SHARD, *reference.shape),
            compressors=compressors,
        )
        for start in range(0, len(reference), SHARD):
            array[start : start + SHARD] = reference.values[start : start + SHARD]

    def gather(self, rows: np.ndarray) -> object:
        """Select along the first axis."""
        return self.array.oindex[rows]
