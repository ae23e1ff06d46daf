"""MosaicML Streaming: MDS shards on the local disk, read item by item."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import TYPE_CHECKING

import numpy as np

from stores.base import Base


def _stand_in(name: str, **names: object) -> None:
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__dict__.update(names)
    sys.modules[name] = module


# The build of torchvision on PyPI does not load beside a CPU build of PyTorch. Streaming imports it for classes that
# nothing here uses.
for _name in ("torchvision", "torchvision.transforms"):
    _stand_in(_name)
_stand_in("torchvision.datasets", VisionDataset=object)
_stand_in("torchvision.transforms.functional", to_tensor=None)

from streaming import MDSWriter, StreamingDataset  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from reference import Reference


def columns(reference: Reference) -> dict[str, str]:
    """Return how records are encoded: arrays of a fixed shape without a header, others as bytes."""
    if reference.ragged:
        return {"data": "bytes"}
    return {"data": f"ndarray:uint8:{','.join(map(str, reference.shape))}"}


class Store(Base):
    """`form`: raw; compressed shards are unpacked to the disk before they are read."""

    def __init__(self, path: Path, reference: Reference, form: str) -> None:
        super().__init__(path, reference, form)
        self.dataset = StreamingDataset(local=str(path / "records"), shuffle=False, batch_size=256)

    @staticmethod
    def write(reference: Reference, path: Path, form: str) -> None:  # noqa: ARG004
        """Write record by record."""
        with MDSWriter(out=str(path / "records"), columns=columns(reference)) as writer:
            for row in range(len(reference)):
                record = reference.record(row)
                writer.write({"data": record.tobytes() if reference.ragged else np.ascontiguousarray(record)})

    def gather(self, rows: np.ndarray) -> object:
        """Read each item and stack them."""
        found = [self.dataset[row]["data"] for row in rows.tolist()]
        return found if self.reference.ragged else np.stack(found)
