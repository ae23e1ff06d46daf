"""Ranks: global batches first, then slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_rt import ReaderConfig, errors
from tests.order_support import MODES, batch_ids, ids, opened, order, through_json, written

if TYPE_CHECKING:
    from pathlib import Path

WORLDS = [1, 2, 3, 4, 6, 8]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return written(tmp_path_factory.mktemp("ranks"), 50)


def job(cache: Path, world: int, batch_size: int, *, state: Any = None, remainder: Any = "keep", **config: Any):
    """Return the batches of every rank, each rank opened as its own process would."""
    ranks, epochs = [], config.pop("epochs", 1)
    for rank in range(world):
        dataset = opened(cache, rank=rank, world_size=world, **{"num_workers": 1, **config})
        if state is not None:
            dataset.load_state_dict(state)
        ranks.append(list(dataset.batches(batch_size, remainder=remainder, epochs=epochs)))
    return ranks


def joined(ranks):
    """Join the ranks' batches step by step."""
    return [who for step in zip(*ranks, strict=True) for batch in step for who in batch_ids(batch)]


@pytest.mark.filterwarnings("ignore:no batch of")
@settings(max_examples=150, deadline=None)
@given(
    mode=st.sampled_from(sorted(MODES)),
    world=st.sampled_from(WORLDS),
    rows=st.integers(0, 50),
    batch_size=st.integers(1, 7),
    remainder=st.sampled_from(["keep", "drop", "pad"]),
)
def test_joined_batches_are_the_order_and_all_ranks_make_equal_steps(cache, mode, world, rows, batch_size, remainder):
    ranks = job(cache, world, batch_size, rows=rows, remainder=remainder, **MODES[mode])
    expected = order(opened(cache, rows, **MODES[mode]))
    rows_of_step = world * batch_size
    kept = rows // rows_of_step * rows_of_step if remainder == "drop" else rows
    assert joined(ranks) == expected[:kept]
    assert {len(rank) for rank in ranks} == {-(-kept // rows_of_step)}
    for rank, batches in enumerate(ranks):
        for step, batch in enumerate(batches):
            assert (batch.epoch, batch.step) == (0, step)
            whole = (step + 1) * rows_of_step <= rows
            if whole or remainder == "pad":
                assert len(batch) == batch_size
            assert batch_ids(batch, padded=True) == [expected[place] for place in batch.position.tolist()]
            if whole:
                first = step * rows_of_step + rank * batch_size
                assert batch.position.tolist() == list(range(first, first + batch_size))
        sizes = [len(batch) for batch in batches]
        assert sizes[:-1] == [batch_size] * len(sizes[:-1])


@pytest.mark.parametrize("count", range(97, 104))
@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
def test_four_ranks_make_equal_steps_at_awkward_counts(tmp_path_factory, count, remainder):
    cache = written(tmp_path_factory.mktemp("awkward"), count)
    steps = [
        opened(cache, rank=rank, world_size=4).batches(4, remainder=remainder, epochs=3).remaining()
        for rank in range(4)
    ]
    assert steps == [3 * (count // 16 if remainder == "drop" else -(-count // 16))] * 4


@pytest.mark.parametrize("remainder", ["keep", "pad"])
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("rows", [0, 1, 2, 5, 23])
def test_evaluation_sees_every_row_once_over_all_ranks(cache, world, rows, remainder):
    ranks = job(cache, world, 3, rows=rows, remainder=remainder, shuffle=False)
    seen = [who for batches in ranks for batch in batches for who in batch_ids(batch)]
    assert sorted(seen) == [(0, n) for n in range(rows)]
    assert len({len(batches) for batches in ranks}) == 1
    if remainder == "pad" and rows:
        padding = sum(int((~batch.valid).sum()) for batches in ranks for batch in batches)
        assert padding == -rows % (3 * world)


def test_a_rest_smaller_than_the_world_is_split_in_rank_order(cache):
    ranks = job(cache, 4, 5, rows=22, shuffle=False)
    assert [[len(batch) for batch in batches] for batches in ranks] == [[5, 1], [5, 1], [5, 0], [5, 0]]


@pytest.mark.parametrize("mode", MODES)
def test_single_samples_are_dealt_out_in_turns(cache, mode):
    expected = order(opened(cache, 23, **MODES[mode]))
    for world in WORLDS:
        for rank in range(world):
            dataset = opened(cache, 23, rank=rank, world_size=world, **MODES[mode])
            assert ids(dataset) == expected[rank::world]


@pytest.mark.parametrize("mode", MODES)
def test_a_job_resumes_with_any_other_number_of_ranks(cache, mode):
    whole = [who for epoch in (0, 1) for who in order(opened(cache, 47, **MODES[mode]), epoch)]
    for before in WORLDS:
        ranks = job(cache, before, 2, rows=47, epochs=2, **MODES[mode])
        for stop in (0, 1, len(ranks[0]) // 3, len(ranks[0]) // 2, len(ranks[0])):
            states = [
                through_json(batches[stop - 1].state_dict() if stop else opened(cache, 47, **MODES[mode]).state_dict())
                for batches in ranks
            ]
            assert all(state == states[0] for state in states)
            done = joined([batches[:stop] for batches in ranks])
            for after in (1, 3, 8):
                rest = job(cache, after, 5, rows=47, state=states[-1], epochs=2, **MODES[mode])
                assert len({len(batches) for batches in rest}) == 1
                assert (done + joined(rest))[: len(whole)] == whole


def test_going_from_one_rank_to_two_loses_nothing(cache):
    [batches] = job(cache, 1, 4, rows=16, replacement=False)
    rest = job(cache, 2, 4, rows=16, replacement=False, state=batches[0].state_dict())
    assert sorted(batch_ids(batches[0]) + joined(rest)) == [(0, n) for n in range(16)]


def test_samples_of_one_rank_continue_as_batches_of_three(cache):
    dataset = opened(cache, rank=1, world_size=2)
    iterator = iter(dataset)
    for _ in range(5):
        next(iterator)
    assert iterator.state_dict()["position"] == 10
    rest = job(cache, 3, 4, state=iterator.state_dict())
    assert joined(rest) == order(opened(cache), 0, 10)
    iterator.close()


def test_ranks_that_share_a_data_rank_get_the_same_bytes(cache):
    def bytes_of(rank):
        dataset = opened(cache, rank=rank, world_size=2)
        return [(batch.data.values.tobytes(), batch.sample_id.tolist()) for batch in dataset.batches(4)]

    assert bytes_of(1) == bytes_of(1)
    assert bytes_of(0) != bytes_of(1)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_fewer_rows_than_ranks_leave_no_rank_behind(cache, rows):
    for remainder, total in [("keep", rows), ("pad", 8 * 4 if rows else 0), ("drop", 0)]:
        if remainder == "drop":
            continue
        ranks = job(cache, 8, 4, rows=rows, remainder=remainder, shuffle=False)
        assert {len(batches) for batches in ranks} == {1 if rows else 0}
        assert sum(len(batch) for batches in ranks for batch in batches) == total
        assert sorted(joined(ranks)) == [(0, n) for n in range(rows)]


def test_a_batch_larger_than_the_data_with_drop_says_that_nothing_comes(cache):
    with pytest.warns(UserWarning, match="no batch of 51 rows on each of 1 ranks fits into 50 positions"):
        batches = opened(cache).batches(51, remainder="drop")
    assert list(batches) == []
    with pytest.warns(UserWarning, match="no batch of"):
        assert list(opened(cache).batches(51, remainder="drop", epochs=None)) == []


def test_what_is_dropped_does_not_come_back(cache):
    dataset = opened(cache, 10, shuffle=False)
    batches = list(dataset.batches(4, remainder="drop", epochs=2))
    assert [batch.sample_id.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2
    assert batches[1].state_dict()["epoch"] == 1
    assert batches[1].state_dict()["position"] == 0


@pytest.mark.parametrize(("rank", "world"), [(1, 1), (-1, 2), (0, 0), (5, 4)])
def test_ranks_that_do_not_exist_are_refused(rank, world):
    with pytest.raises(ValueError, match=r"rank|world_size"):
        ReaderConfig(seed=1, rank=rank, world_size=world)


@pytest.mark.parametrize(("batch_size", "remainder"), [(0, "keep"), (1, "wrap")])
def test_batches_that_do_not_exist_are_refused(cache, batch_size, remainder):
    with pytest.raises(errors.ConfigError):
        opened(cache).batches(batch_size, remainder=remainder)


def test_the_printed_form_names_the_place(cache):
    assert "rank=2, world_size=4" in repr(opened(cache, rank=2, world_size=4))
