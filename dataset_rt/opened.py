"""The open caches of a dataset, which another process opens for itself when it first needs them."""

from __future__ import annotations

import os
import warnings
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from dataset_rt import _dataset_rt as native
from dataset_rt.errors import FallBackWarning
from dataset_rt.rows import typed_columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from dataset_rt.config import ReaderConfig

__all__ = ["Opened", "checked_generations", "checked_paths", "identity_and_weight"]

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=native.after_fork_in_child)

_Parts: TypeAlias = "tuple[NDArray[np.uint64] | None, NDArray[np.uint64] | None, str]"
"""Chosen rows, bits of the weights, and state as JSON."""


class Opened:
    """A dataset of Rust, with what it takes to open it again.

    Args:
        paths: Cache directories.
        config: Seed and reading options.
        generations: Which generation of each cache, or of all the newest.
        dataset: The open dataset, if there is one already.
    """

    def __init__(
        self,
        paths: list[str],
        config: ReaderConfig,
        generations: list[int | None] | None = None,
        dataset: native.CachedDataset | None = None,
    ) -> None:
        self.paths = paths
        self.config = config
        self._generations = generations
        self._unpickled: _Parts | None = None
        self._opening = Lock()
        self.ready: native.CachedDataset | None = self._open() if dataset is None else dataset
        """The dataset, unless this came from another process and nobody asked for it yet."""

    def _open(self) -> native.CachedDataset:
        return native.CachedDataset(self.paths, self.config.model_dump_json(), self._generations)

    @property
    def dataset(self) -> native.CachedDataset:
        """The dataset; one that came from another process opens its caches now."""
        if self.ready is not None:
            return self.ready
        with self._opening:
            if self.ready is None:
                opened = self._open()
                if self._unpickled is not None:
                    opened.restore(*self._unpickled)
                self.ready = opened
        return self.ready

    def warn_of_older_generations(self, stacklevel: int) -> None:
        """Warn of each cache whose newest generation was damaged, so that an older one is read."""
        for path, (number, defect) in zip(self.paths, self.dataset.generations(), strict=True):
            if defect is not None:
                warnings.warn(FallBackWarning(path, number, defect), stacklevel=stacklevel + 1)

    def view(self, frame: pl.DataFrame) -> Opened:
        """Return the rows that a frame names, over the same open caches."""
        dataset = self.dataset.select(identity_and_weight(frame))
        return Opened(self.paths, self.config, self._generations, dataset)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: paths, configuration, chosen rows, weights and position; no open file."""
        rows, weights, state = self.dataset.parts()
        return {
            "paths": [os.path.abspath(path) for path in self.paths],  # noqa: PTH100 (10,000 paths, no links resolved)
            "config": self.config,
            "_generations": [number for number, _ in self.dataset.generations()],
            "_unpickled": (rows, weights, state),
            "ready": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what `__getstate__` returned; caches are opened when first used."""
        self.__dict__.update(state)
        self._opening = Lock()


def checked_paths(paths: Sequence[str | Path]) -> list[str]:
    """Return the paths of a list.

    Raises:
        TypeError: It is one path.
    """
    if isinstance(paths, str | os.PathLike):
        raise TypeError(f"paths must be a list of cache directories, found one path: {os.fspath(paths)!r}")
    return [os.fspath(path) for path in paths]


def checked_generations(generations: Sequence[int | None] | None, caches: int) -> list[int | None] | None:
    """Return the generations of so many caches.

    Raises:
        TypeError: They are one number.
        ValueError: There are more or fewer than caches, or one is negative.
    """
    if generations is None:
        return None
    if isinstance(generations, int):
        raise TypeError(f"generations must be a list with one number for each cache, found {generations!r}")
    if len(generations) != caches:
        raise ValueError(f"generations must name one of each of {caches} caches, found {len(generations)}")
    lowest = min((number for number in generations if number is not None), default=0)
    if lowest < 0:
        raise ValueError(f"generations are numbered from 0, found {lowest}")
    return list(generations)


def identity_and_weight(frame: pl.DataFrame) -> list[pl.Series | pl.DataFrame]:
    """Return the columns of a frame that Rust reads."""
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(f"expected a Polars DataFrame, found {type(frame).__name__}")
    return typed_columns(frame, ("cache_id", "sample_id", "weight"))
