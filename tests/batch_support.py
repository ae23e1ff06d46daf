"""What the tests of batches in frameworks share: a cache with every kind of field, and its contents said twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import ml_dtypes
import numpy as np

from dataset_rt import CacheInput, CacheWriteSuccess, write_cache
from tests.order_support import opened
from tests.support import write, writer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dataset_rt import CachedDataset

DENSE = ["image", "row"]
RAGGED = ["boxes", "jpeg"]


def fields(n: int) -> dict[str, Any]:
    """Return the payload of row `n`: dense, of a type that NumPy lacks, ragged, and bytes with zeros at the end."""
    rng = np.random.default_rng(n)
    return {
        "image": rng.integers(0, 256, (3, 4, 5), np.uint8),
        "row": rng.normal(size=6).astype(ml_dtypes.bfloat16),
        "boxes": rng.normal(size=(n % 4, 2)).astype(np.float32),
        "jpeg": f"jpeg {n}".encode() + b"\0" * (n % 3),
    }


def metadata(n: int) -> dict[str, Any]:
    return {
        "label": n % 10,
        "score": n / 8,
        "is_even": n % 2 == 0,
        "name": f"sample {n}",
        "maybe": n if n % 2 else None,
    }


class Typed:
    """A source of typed payloads."""

    name = "typed"
    payload_schema: ClassVar[dict[str, Any]] = {
        "image": (np.uint8, (3, 4, 5)),
        "row": (ml_dtypes.bfloat16, (6,)),
        "boxes": (np.float32, (None, 2)),
        "jpeg": bytes,
    }

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[CacheInput]:
        return (CacheInput(fields(n), metadata(n)) for n in range(self.count))


def typed_cache(base: Path, count: int) -> Path:
    """Write `count` rows with every kind of field."""
    [result] = write_cache(Typed(count), base, writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result
    return result.path


def dense_cache(base: Path, count: int, dtype: Any = np.int32) -> Path:
    """Write rows of one dense field, `x`: row `n` is 256 times `n`."""
    rows = ({"x": np.full(256, n, dtype)} for n in range(count))
    return write(base, [(row, {"n": n}) for n, row in enumerate(rows)], name="dense")


def plain_order(path: Path, **config: Any) -> CachedDataset:
    """Open a cache in the order of its rows."""
    return opened(path, shuffle=False, **config)
