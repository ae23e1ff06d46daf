"""Batches of global arrays, a few of them on the devices ahead of their use."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dataset_rt.adapters.jax.arrays import narrowed
from dataset_rt.adapters.parts import parts
from dataset_rt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from dataset_rt.batch import CachedBatch
    from dataset_rt.dataset import CachedDataset

_VALID = "valid"
"""What the array is called that tells rows from padding and from damaged samples."""


class DeviceBatches:
    """An iterator of trees of `jax.Array`; made by `batches`."""

    def __init__(
        self,
        dataset: CachedDataset,
        batch_size: int,
        *,
        sharding: Any,
        remainder: Literal["drop", "pad"],
        epochs: int | None,
        columns: Sequence[str] | None,
        transform: Callable[[CachedBatch], Any] | None,
        prefetch: int,
    ) -> None:
        if remainder not in ("drop", "pad"):
            raise _refusal("remainder", '"drop" or "pad", so that all batches have one shape', repr(remainder))
        if prefetch < 0:
            raise _refusal("prefetch", "at least 0", str(prefetch))
        self._batch_size = batch_size
        self._world_size = dataset.reader_config.world_size
        self._sharding = _over_all_devices(dataset, batch_size) if sharding is None else sharding
        self._has_mask = remainder == "pad" or dataset.reader_config.on_corrupt == "skip"
        if transform is None:
            _check_columns(dataset, columns, has_mask=self._has_mask)
        self._transform = transform
        self._depth = prefetch
        self._ahead: deque[tuple[Any, str | None]] = deque()
        self._source = dataset.batches(batch_size, remainder=remainder, epochs=epochs, columns=columns)
        self._state: str | None = json.dumps(self._source.state_dict())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next batch, having started the transfer of those after it."""
        while len(self._ahead) <= self._depth and (batch := next(self._source, None)) is not None:
            self._ahead.append((self._transferred(batch), batch._state))  # noqa: SLF001 (the adapter is one of us)
        if not self._ahead:
            raise StopIteration
        arrays, self._state = self._ahead.popleft()
        return arrays

    def state_dict(self) -> dict[str, Any]:
        """Return where to resume after the last batch received; what was only on its way comes again.

        It is the state of the dataset's own iterators, for any number of processes and any batch size.
        """
        return json.loads(self._state or "")

    def load_state_dict(self, state: Mapping[str, Any], *, ignore: Sequence[str] = ()) -> None:
        """Start again where `state` was taken; `ignore` names fields that may differ.

        Raises:
            StateMismatchError: The state belongs to other contents, rows, weights, seed or recipe.
        """
        self._source.load_state_dict(state, ignore=ignore)
        self._ahead.clear()
        self._state = json.dumps(self._source.state_dict())

    def close(self) -> None:
        """Stop reading and let go of what is on its way; closing twice does nothing."""
        self._source.close()
        self._ahead.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _arrays(self, batch: CachedBatch) -> dict[str, Any]:
        arrays = parts(batch, None)
        return arrays | {_VALID: batch.valid} if self._has_mask else arrays

    def _transferred(self, batch: CachedBatch) -> Any:
        tree = self._arrays(batch) if self._transform is None else self._transform(batch)
        leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
        local = [self._checked(path, leaf) for path, leaf in leaves]
        shapes = [(self._batch_size * self._world_size, *array.shape[1:]) for array in local]
        arrays = jax.make_array_from_process_local_data(self._sharding, local, shapes)
        return jax.tree_util.tree_unflatten(structure, arrays)

    def _checked(self, path: Any, local: Any) -> NDArray[Any]:
        array, name = np.asarray(local), jax.tree_util.keystr(path)
        if array.ndim == 0 or len(array) != self._batch_size:
            raise ValueError(f"transform: expected arrays of {self._batch_size} rows, found {name} of {array.shape}")
        return narrowed(array, name)


def _over_all_devices(dataset: CachedDataset, batch_size: int) -> NamedSharding:
    """Return the sharding of a batch over all devices, in rank order."""
    config = dataset.reader_config
    ours = (jax.process_index(), jax.process_count())
    if (config.rank, config.world_size) != ours:
        raise ConfigError(
            f"rank, world_size: expected {ours[0]}, {ours[1]}, as JAX counts its processes, found {config.rank}, "
            f"{config.world_size}; take them from ranks.from_jax(), or give the sharding that they belong to",
            option="world_size",
            expected=str(ours[1]),
            found=str(config.world_size),
        )
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    count = jax.local_device_count()
    if batch_size % count:
        raise _refusal("batch_size", f"a multiple of the {count} devices of this process", str(batch_size))
    return NamedSharding(Mesh(np.array(devices), ("batch",)), PartitionSpec("batch"))


def _check_columns(dataset: CachedDataset, columns: Sequence[str] | None, *, has_mask: bool) -> None:
    """Refuse what cannot be cut into shards, and a column that the mask of the padding would hide."""
    known = dataset._columns  # noqa: SLF001 (the adapter is one of us)
    chosen = known if columns is None else known.select(columns)
    payload = ["data"] if chosen.native != [] and "data" not in chosen.metadata else []
    open_fields = payload if chosen.fields is None else [field.name for field in chosen.fields if not field.is_dense]
    if open_fields:
        hint = "give a transform that makes arrays of one shape of them, or choose others with columns="
        raise _refusal("columns", f"fields of fixed shape ({hint})", ", ".join(open_fields))
    if has_mask and _VALID in chosen.names:
        raise _refusal("columns", "none called 'valid' beside the mask of that name; give a transform", _VALID)


def _refusal(option: str, expected: str, found: str) -> ConfigError:
    message = f"{option}: expected {expected}, found {found}"
    return ConfigError(message, option=option, expected=expected, found=found)
