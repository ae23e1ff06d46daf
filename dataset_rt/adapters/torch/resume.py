"""From the state of a `StatefulDataLoader`, which knows workers, to a state of the dataset, which does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dataset_rt.dataset import CachedDataset


def load_loader_state(dataset: CachedDataset, state: Mapping[str, Any]) -> None:
    """Do what `dataset_rt.adapters.torch.load_loader_state` says."""
    states = list(_iterator_states(state))
    if not states:
        raise ValueError(
            "expected what state_dict() of a StatefulDataLoader over iterable_dataset, batch_dataset or batch_sampler "
            f"returned, found {sorted(state)}"
        )
    first = states[0]
    start = dict(first["start"])
    block = next((found["batch_size"] for found in states if found["batch_size"]), 1)
    received = sum(found["received"] for found in states)
    # Between two snapshots of its workers a loader counts the batches it has handed out itself.
    since = state.get("_steps_since_snapshot", 0)
    samples = received + since * block if first["kind"] == "samples" else (received + since) * block
    length = dataset._native.epoch_length()  # noqa: SLF001
    world = first["world_size"]
    passed = start["position"] + samples * world
    # Where the last step is left out when it is not full, the epoch ends before it.
    step = world if first["kind"] == "samples" else block * world
    needed = step if first["remainder"] == "drop" else 1
    if samples and length - passed < needed:
        start |= {"epoch": start["epoch"] + 1, "position": 0}
    else:
        start["position"] = passed
    dataset.load_state_dict(start)


def _iterator_states(state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the states of the iterators that a loader's state holds: one, or one per worker."""
    snapshot = state.get("_snapshot", state)
    places = [snapshot, snapshot.get("_main_snapshot") or {}, *(snapshot.get("_worker_snapshots") or {}).values()]
    for place in places:
        for found in ((place.get("fetcher_state") or {}).get("dataset_iter_state"), place.get("_sampler_iter_state")):
            if isinstance(found, dict) and {"kind", "start", "received"} <= found.keys():
                yield found
