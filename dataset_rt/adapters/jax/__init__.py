"""JAX: batches on its devices, sharded over those of all processes, in the global order.

Each process is one rank: `place = ranks.from_jax()` and `ReaderConfig(rank=place.rank, world_size=place.world_size)`.
Importing this module does not import JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dataset_rt.adapters.jax.loading import DeviceBatches
    from dataset_rt.batch import CachedBatch
    from dataset_rt.dataset import CachedDataset

__all__ = ["batches", "to_jax"]


def batches(
    dataset: CachedDataset,
    batch_size: int,
    *,
    sharding: Any = None,
    remainder: Literal["drop", "pad"] = "drop",
    epochs: int | None = 1,
    columns: Sequence[str] | None = None,
    transform: Callable[[CachedBatch], Any] | None = None,
    prefetch: int = 2,
) -> DeviceBatches:
    """Start the next epoch in batches of global arrays on the devices of all processes.

    Row `i` of a global array is position `i` of its global batch, whatever the number of processes and devices.

    Args:
        dataset: The dataset to read. Its `rank` and `world_size` are the index and number of the processes, unless
            `sharding` says otherwise.
        batch_size: Rows of a batch on this process, a multiple of its number of devices.
        sharding: A `jax.sharding.Sharding` for every array, of which the first axis is the batch; `None` splits the
            batch over all devices. With one that gives several processes the same rows, these have equal ranks.
        remainder: What happens to positions that do not fill a global batch: `"drop"` leaves them out; `"pad"` fills up
            with the first positions of the epoch, and the arrays have one more, `valid`, which is `False` there.
            Batches thus have one shape, for which JAX compiles once. With `on_corrupt="skip"` there is a `valid` too,
            which is `False` for damaged samples.
        epochs: Epochs to deliver; `None` never ends.
        columns: Payload fields and metadata columns to read; `None` is all of them.
        transform: Called with each `CachedBatch`; returns a tree of arrays of `batch_size` rows, which is what is
            delivered then. `None` takes all payload fields, and metadata columns of numbers and booleans.
        prefetch: Batches that are on the devices ahead of the one handed out.

    Returns:
        An iterator of dicts of `jax.Array`, with `state_dict`, `load_state_dict` and `close`.

    Raises:
        ImportError: JAX is not installed.
        ConfigError: The ranks, the batch size or a payload field do not fit the devices.
    """
    return _part("loading").DeviceBatches(
        dataset,
        batch_size,
        sharding=sharding,
        remainder=remainder,
        epochs=epochs,
        columns=columns,
        transform=transform,
        prefetch=prefetch,
    )


def to_jax(batch: CachedBatch, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Do what `CachedBatch.to_jax` says."""
    return _part("arrays").to_jax(batch, names)


def _part(name: str) -> Any:
    try:
        import_module("jax")
    except ImportError as error:
        raise ImportError("the JAX adapters need JAX: install the package `jax`") from error
    return import_module(f"{__name__}.{name}")
