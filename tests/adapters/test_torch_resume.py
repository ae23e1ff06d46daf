"""PyTorch: loaders resume exactly where they were, and refuse the states of others."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import pytest

from dataset_rt import errors
from dataset_rt.adapters import torch as adapter
from tests.order_support import opened, order

pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.adapters.torch_support import BATCH, KINDS, QUIET, loader, who

pytestmark = QUIET


@pytest.fixture(scope="module")
def stateful():
    return pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed").StatefulDataLoader


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stateful_loader_resumes_at_every_step(cache, stateful, kind, workers):
    expected = [order(opened(cache, 22), epoch) for epoch in range(2, 5)]
    dataset = opened(cache, 22)
    dataset.set_epoch(2)
    loaded = loader(kind, dataset, workers=workers, cls=stateful)
    states, items = [pickle.dumps(loaded.state_dict())], []
    for item in loaded:
        items.append(item)
        states.append(pickle.dumps(loaded.state_dict()))
    assert who(items) == expected[0]
    for step in (0, 1, 4, 5, 6) if workers else range(7):
        again = loader(kind, opened(cache, 22), workers=workers, cls=stateful)
        again.load_state_dict(pickle.loads(states[step]))
        rest = who(again)
        assert who(items[:step]) + rest == expected[0]
        assert who(again) == expected[1]
    states.append(pickle.dumps(loaded.state_dict()))
    again = loader(kind, opened(cache, 22), workers=workers, cls=stateful)
    again.load_state_dict(pickle.loads(states[-1]))
    assert [who(again), who(again)] == expected[1:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_resumes_twice_in_one_epoch_between_snapshots(cache, stateful, workers):
    state, seen = None, []
    for steps in (3, 2, 4):
        loaded = loader("samples", opened(cache), workers=workers, cls=stateful, snapshot_every_n_steps=3)
        if state is not None:
            loaded.load_state_dict(state)
        seen += who(itertools.islice(loaded, steps))
        state = loaded.state_dict()
        del loaded
    assert seen == order(opened(cache), 0, 0, 9 * BATCH)


@pytest.mark.parametrize("kind", ["samples", "batches"])
def test_a_loader_resumes_with_another_number_of_workers(cache, stateful, kind):
    dataset, seen = opened(cache), []
    for workers in [0, 4, 0, 3]:
        loaded = loader(kind, dataset, workers=workers, cls=stateful, snapshot_every_n_steps=2)
        seen += who(itertools.islice(loaded, 3))
        state = loaded.state_dict()
        del loaded
        dataset = opened(cache)
        adapter.load_loader_state(dataset, state)
    with dataset.batches(7, epochs=2) as batches:
        seen += who(batches)
    assert seen == order(opened(cache), 0) + order(opened(cache), 1)


@pytest.mark.filterwarnings("ignore:.*some ranks get")
@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_state_after_each_step_is_that_of_the_batches(cache, stateful, kind, remainder, workers):
    """Also after the last full step, where `drop` leaves positions out."""
    config = {"rank": 1, "world_size": 3, "num_workers": 1}
    loaded = loader(kind, opened(cache, **config), workers=workers, cls=stateful, remainder=remainder)
    found, batches = [], list(opened(cache, **config).batches(BATCH, remainder=remainder))

    def place(state):
        return state["epoch"], state["position"]

    for _ in itertools.islice(loaded, len(batches) if kind == "samples" else None):
        again = opened(cache, rank=0, world_size=2)
        adapter.load_loader_state(again, loaded.state_dict())
        found.append(place(again.state_dict()))
    if kind == "samples":  # of which a rank gets 16, whatever is done with the last two positions
        assert found[:4] == [(0, 12), (0, 24), (0, 36), (1, 0) if remainder == "drop" else (0, 48)]
    else:
        assert found == [place(batch.state_dict()) for batch in batches]
        assert found[-1] == (1, 0)


@pytest.mark.parametrize("steps", [0, 5, 13])
def test_a_batch_sampler_takes_the_state_of_other_ranks(cache, steps):
    before: Any = iter(adapter.batch_sampler(opened(cache, rank=1, world_size=2), 2))
    for _ in itertools.islice(before, steps):
        pass
    after = opened(cache)
    again: Any = iter(adapter.batch_sampler(after, 5))
    again.load_state_dict(before.state_dict())
    assert [row for rows in again for row in rows] == after.rows(0, min(4 * steps, 50)).tolist()


def test_an_iterator_moves_to_a_loaded_state_and_ends_when_closed(cache):
    for data in (adapter.iterable_dataset(opened(cache)), adapter.batch_dataset(opened(cache), 3)):
        iterator: Any = iter(data)
        items = [next(iterator) for _ in range(5)]
        state = iterator.state_dict()
        assert state["received"] == 5
        rest = list(iterator)
        done = iterator.state_dict()
        assert done["received"] == 5 + len(rest) == len(data)
        iterator.load_state_dict(state)
        assert len(list(iterator)) == len(rest)
        iterator.load_state_dict(done)
        assert list(iterator) == []
        assert data.dataset.state_dict()["epoch"] == 1
        iterator.load_state_dict(state)
        iterator.close()
        assert iterator.state_dict() == state
        assert len(items) == 5


def test_batch_tokens_resume_any_loader_with_any_workers(cache):
    loaded = loader("batches", opened(cache), workers=4)
    iterator = iter(loaded)
    used = [next(iterator) for _ in range(5)]
    del iterator
    dataset = opened(cache)
    dataset.load_state_dict(json.loads(json.dumps(used[3].state_dict())))  # the fifth batch was not used
    assert who(used[:4]) + who(loader("samples", dataset, workers=2, size=6)) == order(opened(cache))


def test_a_state_of_other_ranks_is_refused_by_the_loader(cache, stateful):
    state = loader("batches", opened(cache, rank=0, world_size=2), cls=stateful).state_dict()
    with pytest.raises(errors.StateMismatchError, match="world_size was 2 and is 1"):
        next(iter(_loaded(loader("batches", opened(cache), cls=stateful), state)))


def test_a_state_of_another_loader_is_refused(cache, stateful):
    state = loader("samples", opened(cache), cls=stateful).state_dict()
    with pytest.raises(errors.StateMismatchError, match="kind was 'samples' and is 'batches'"):
        next(iter(_loaded(loader("batches", opened(cache), cls=stateful), state)))
    with pytest.raises(errors.StateMismatchError, match="seed"):
        next(iter(_loaded(loader("samples", opened(cache, seed=5), cls=stateful), state)))
    with pytest.raises(errors.StateMismatchError, match="seed"):
        adapter.load_loader_state(opened(cache, seed=5), state)
    with pytest.raises(ValueError, match="StatefulDataLoader"):
        adapter.load_loader_state(opened(cache), {"epoch": 1})


def _loaded(loaded, state):
    loaded.load_state_dict(state)
    return loaded
