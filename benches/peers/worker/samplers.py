"""Makers of functions that draw a batch of row numbers: `maker(path, length, size)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def randint(path: str, length: int, size: int) -> Callable[[], np.ndarray]:  # noqa: ARG001
    """NumPy's older interface."""
    draw = np.random.RandomState(42).randint
    return lambda: draw(0, length, size)


def default_rng(path: str, length: int, size: int) -> Callable[[], np.ndarray]:  # noqa: ARG001
    """NumPy's newer interface."""
    draw = np.random.default_rng(42).integers
    return lambda: draw(0, length, size)


def loaderx_old(path: str, length: int, size: int) -> Callable[[], np.ndarray]:  # noqa: ARG001
    """The sampler of loaderx 0.5, with replacement; it returns a copy."""
    from loaderx._sampler import Sampler  # noqa: PLC0415 - what the benchmark of loaderx itself measures

    return Sampler(length, size, Sampler.Mode.IID).next


def loaderx_new(path: str, length: int, size: int) -> Callable[[], np.ndarray]:  # noqa: ARG001
    """The sampler of loaderx 2, with replacement; it returns its own buffer, overwritten by the next draw."""
    from loaderx.sampler import Sampler  # noqa: PLC0415

    return Sampler(length, size, Sampler.Mode.IID).next


def ours(path: str, length: int, size: int) -> Callable[[], Any]:
    """`CachedDataset.rows`, walking through the positions of an epoch."""
    from dataset_rt import CachedDataset, ReaderConfig  # noqa: PLC0415

    dataset = CachedDataset([f"{path}/records"], reader_config=ReaderConfig(seed=42, num_workers=2))
    rows, at = dataset.rows, 0

    def draw() -> np.ndarray:
        nonlocal at
        start, at = at, at + size
        if at > length:
            start, at = 0, size
        return rows(0, start, at)

    return draw
