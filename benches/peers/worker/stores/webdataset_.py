"""WebDataset: tar shards; it has no random access, so that it is a loader only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import webdataset as wds

from stores.base import Base

if TYPE_CHECKING:
    from pathlib import Path

    from reference import Reference

SHARD = 1250  # records: some shards for each worker


class Store(Base):
    """`form`: raw."""

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:  # noqa: ARG004
        """Write record by record."""
        with wds.ShardWriter(str(path / "%04d.tar"), maxcount=SHARD, verbose=0) as sink:
            for row in range(len(reference)):
                sink.write({"__key__": f"{row:08}", "bin": reference.record(row).tobytes()})
