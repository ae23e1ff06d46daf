"""Rank and world size of this process, from whoever started it.

place = ranks.detect()
ReaderConfig(seed=1, rank=place.rank, world_size=place.world_size)
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from dataset_rt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Ranks", "detect", "from_environment", "from_jax", "from_torch"]

_LAUNCHERS = (
    ("torchrun", ("RANK",), ("WORLD_SIZE",)),
    ("Open MPI", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
    ("MVAPICH", ("MV2_COMM_WORLD_RANK",), ("MV2_COMM_WORLD_SIZE",)),
    ("PMI", ("PMI_RANK",), ("PMI_SIZE",)),
    # A batch script itself has the task count of the whole job, but only one task: the step's own count comes first.
    ("Slurm", ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)
"""Launchers in order of trust, with the variables of rank and world size. MPI programs often run below Slurm."""


class Ranks(NamedTuple):
    """A place among the consumers that share one order.

    Example:
        >>> Ranks(5, 8, "torchrun").shared(2)
        Ranks(rank=2, world_size=4, source='torchrun, 2 ranks share one data rank')
    """

    rank: int
    """Number of this consumer."""

    world_size: int
    """Number of consumers."""

    source: str
    """Where the two numbers were found."""

    def shared(self, size: int) -> Ranks:
        """Return the data rank of this process when `size` neighbouring ranks work on the same samples.

        Ranks of one tensor or pipeline parallel group need equal samples: with equal data ranks they get equal bytes.

        Args:
            size: Ranks of a group; ranks `0` to `size - 1` are the first one.

        Raises:
            ConfigError: The ranks cannot be divided into such groups.
        """
        if size < 1 or self.world_size % size:
            raise ConfigError(
                f"size: expected a divisor of the {self.world_size} ranks, found {size}",
                option="size",
                expected=f"a divisor of {self.world_size}",
                found=size,
            )
        return Ranks(self.rank // size, self.world_size // size, f"{self.source}, {size} ranks share one data rank")


def detect() -> Ranks:
    """Return the place of this process: from `torch.distributed` or JAX if one is initialized, else from the launcher.

    Neither is imported; a process that nobody launched is rank 0 of 1.

    Raises:
        ConfigError: A launcher's variables are incomplete or no numbers.
    """
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return from_torch()
    jax = sys.modules.get("jax")
    if jax is not None and _is_jax_distributed(jax):
        return from_jax()
    return from_environment()


def from_torch(group: Any = None) -> Ranks:
    """Return the place of this process in a `torch.distributed` process group, by default the group of all.

    Args:
        group: The group that the data is split over; with a device mesh, `mesh["data"].get_group()`.

    Raises:
        ConfigError: `torch.distributed` is not initialized, or this process is not in `group`.
    """
    import torch.distributed as dist  # noqa: PLC0415 (PyTorch is optional and slow to import)

    if not dist.is_initialized():
        raise ConfigError(
            "torch.distributed: not initialized; call init_process_group first", option="torch.distributed"
        )
    rank = dist.get_rank(group)
    if rank < 0:
        raise ConfigError("group: this process does not belong to it", option="group")
    return Ranks(rank, dist.get_world_size(group), "torch.distributed")


def from_jax() -> Ranks:
    """Return the place of this process among the processes of JAX."""
    import jax  # noqa: PLC0415 (JAX is optional and slow to import)

    return Ranks(int(jax.process_index()), int(jax.process_count()), "jax")


def from_environment(environ: Mapping[str, str] = os.environ) -> Ranks:
    """Return the place that a launcher wrote into the environment: torchrun, Open MPI, MVAPICH, PMI or Slurm.

    Args:
        environ: The environment.

    Returns:
        The place, or rank 0 of 1 where no launcher left one.

    Raises:
        ConfigError: A rank without a world size or the other way round, or values that are no such numbers.
    """
    for launcher, rank_names, size_names in _LAUNCHERS:
        rank, size = _first(environ, rank_names), _first(environ, size_names)
        if rank is None and size is None:
            continue
        if rank is None and launcher == "Slurm":
            continue  # an allocation without a task: nothing was launched
        if rank is None or size is None:
            there, missing = (size_names, rank_names) if rank is None else (rank_names, size_names)
            raise ConfigError(
                f"{missing[0]}: expected beside {there[0]}, found none; set both or neither", option=missing[0]
            )
        return _place(launcher, rank, size)
    return Ranks(0, 1, "no launcher")


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str] | None:
    return next(((name, environ[name]) for name in names if environ.get(name)), None)


def _place(launcher: str, rank: tuple[str, str], size: tuple[str, str]) -> Ranks:
    numbers = []
    for name, text in (rank, size):
        if not text.strip().isdecimal():
            raise ConfigError(
                f"{name}: expected a number, found {text!r}", option=name, expected="a number", found=text
            )
        numbers.append(int(text))
    number, count = numbers
    if number >= count:
        raise ConfigError(
            f"{rank[0]}: expected 0 to {count - 1}, below {size[0]}={count}, found {number}",
            option=rank[0],
            expected=f"0 to {count - 1}",
            found=number,
        )
    return Ranks(number, count, launcher)


def _is_jax_distributed(jax: Any) -> bool:
    is_initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    return bool(is_initialized is not None and is_initialized())
