"""Resume: a small state that continues anywhere, and refuses what it does not belong to."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_rt import CachedDataset, ReaderConfig, errors
from tests.order_support import MODES, batch_ids, differing, ids, opened, order, through_json, written

PINNED = Path(__file__).parent / "data" / "states"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return written(tmp_path_factory.mktemp("resume"), 40)


@pytest.mark.parametrize("mode", MODES)
def test_at_every_sample_of_two_epochs_the_joined_stream_is_the_unbroken_one(cache, mode):
    whole = [who for epoch in range(3) for who in order(opened(cache, **MODES[mode]), epoch)]
    dataset = opened(cache, prefetch_size=64, **MODES[mode])
    taken = []
    for _ in range(2):
        for sample in dataset:
            taken += ids([sample])
            if len(taken) % 3 and len(taken) % 40:
                continue
            again = opened(cache, **MODES[mode])
            again.load_state_dict(through_json(dataset.state_dict()))
            rest = ids(again)
            assert taken + rest == whole[: len(taken) + len(rest)]
            assert len(rest) == (-len(taken) % 40 or 40)


@pytest.mark.parametrize("mode", MODES)
def test_at_every_batch_the_joined_stream_is_the_unbroken_one(cache, mode):
    whole = [who for epoch in range(3) for who in order(opened(cache, **MODES[mode]), epoch)]
    taken = []
    for batch in opened(cache, **MODES[mode]).batches(7, epochs=2):
        taken += batch_ids(batch)
        again = opened(cache, num_workers=1, **MODES[mode])
        again.load_state_dict(through_json(batch.state_dict()))
        rest = [who for later in itertools.islice(again.batches(5, epochs=None), 4) for who in batch_ids(later)]
        assert taken + rest == whole[: len(taken) + len(rest)]


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(sorted(MODES)),
    stops=st.lists(st.tuples(st.integers(0, 25), st.sampled_from(["samples", 1, 3, 7, 50])), min_size=1, max_size=6),
)
def test_any_chain_of_resumes_continues_the_same_stream(cache, mode, stops):
    """Second, third and later resumes in one epoch, at its ends, and over several."""
    whole = [who for epoch in range(30) for who in order(opened(cache, **MODES[mode]), epoch)]
    state, taken = None, []
    for count, kind in stops:
        dataset = opened(cache, **MODES[mode])
        if state is not None:
            dataset.load_state_dict(state)
            assert dataset.state_dict() == state
        if kind == "samples":
            with iter(dataset) as iterator:
                taken += ids(itertools.islice(iterator, count))
                state = through_json(iterator.state_dict())
        else:
            with dataset.batches(kind, epochs=None) as batches:
                for batch in itertools.islice(batches, count // kind):
                    taken += batch_ids(batch)
                state = through_json(batches.state_dict())
        assert taken == whole[: len(taken)]
        assert state["epoch"] * 40 + state["position"] == len(taken)


def test_a_state_at_the_end_of_an_epoch_is_the_start_of_the_next(cache):
    dataset = opened(cache)
    ids(dataset)
    state = through_json(dataset.state_dict())
    assert (state["epoch"], state["position"]) == (1, 0)
    again = opened(cache)
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert [ids(again), ids(again)] == [order(opened(cache), 1), order(opened(cache), 2)]


def test_the_last_sample_is_enough_to_end_an_epoch(cache):
    dataset = opened(cache)
    with iter(dataset) as iterator:
        ids(itertools.islice(iterator, 40))
        assert (iterator.state_dict()["epoch"], iterator.state_dict()["position"]) == (1, 0)


def test_after_a_break_the_next_iterator_is_the_next_epoch_every_time(cache):
    """Leaving an epoch early does not resume it; a state does. It is so also after a state was loaded."""
    dataset = opened(cache)
    dataset.load_state_dict({**dataset.state_dict(), "position": 5})
    starts = []
    for _ in range(4):
        for sample in dataset:
            starts += ids([sample])
            break
    assert starts == [order(opened(cache), epoch)[5 if epoch == 0 else 0] for epoch in range(4)]


def test_a_break_keeps_the_state_of_what_was_received(cache):
    dataset = opened(cache, prefetch_size=64)
    for received, _ in enumerate(dataset, 1):
        if received == 3:
            break
    state = dataset.state_dict()
    assert (state["epoch"], state["position"]) == (0, 3)
    dataset.load_state_dict(state)
    assert ids(dataset) == order(opened(cache), 0, 3)


def test_prefetched_batches_do_not_count(cache):
    with opened(cache, prefetch_size=64).batches(1) as batches:
        tokens = [next(batches).state_dict() for _ in range(3)]
        assert [token["position"] for token in tokens] == [1, 2, 3]
        assert batches.state_dict() == tokens[-1]
    again = opened(cache)
    again.load_state_dict(tokens[1])  # the third batch was received, but only two were used
    assert ids(again) == order(opened(cache), 0, 2)


def test_a_running_iterator_moves_to_a_loaded_state(cache):
    dataset = opened(cache)
    with iter(dataset) as iterator:
        state = iterator.state_dict()
        first = ids(itertools.islice(iterator, 9))
        iterator.load_state_dict(state)
        assert ids(itertools.islice(iterator, 9)) == first
    with dataset.batches(4, epochs=None) as batches:
        next(batches)
        batches.load_state_dict({**state, "epoch": 7, "position": 12})
        batch = next(batches)
        assert (batch.epoch, batch.step) == (7, 3)
        assert batch_ids(batch) == order(dataset, 7, 12, 16)


def test_set_epoch_starts_an_epoch_whatever_was_loaded(cache):
    dataset = opened(cache)
    dataset.load_state_dict({**dataset.state_dict(), "epoch": 2, "position": 8})
    dataset.set_epoch(5)
    assert dataset.state_dict()["position"] == 0
    assert ids(dataset) == order(dataset, 5)


def test_state_is_small_plain_and_equal_on_all_ranks(cache):
    states = []
    for rank in range(3):
        with opened(cache, weighted=True, rank=rank, world_size=3, num_workers=rank + 1).batches(4) as batches:
            next(batches)
            states.append(batches.state_dict())
    assert states[0] == states[1] == states[2]
    assert through_json(states[0]) == states[0]
    assert len(json.dumps(states[0])) < 512


DIFFERENT = {
    "seed": {"seed": 12},
    "order": {"replacement": False},
    "epoch_length": {"epoch_length": 17},
    "weights": {"weighted": True},
    "rows": {"rows": 39},
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_a_state_of_another_recipe_is_refused_by_name_and_changes_nothing(cache, field):
    state = opened(cache).state_dict()
    other = opened(cache, **DIFFERENT[field])
    before = other.state_dict()
    with pytest.raises(errors.StateMismatchError) as caught:
        other.load_state_dict(state)
    [(name, saved, now)] = vars(caught.value)["fields"]
    assert name == field
    assert str(saved) in str(caught.value)
    assert str(now) in str(caught.value)
    assert other.state_dict() == before
    if field != "epoch_length":
        other.load_state_dict(state, ignore=[field])


@pytest.mark.parametrize("change", ["bytes", "metadata", "count", "list"])
def test_a_state_of_other_contents_is_refused(cache, tmp_path, change):
    state = opened(cache).state_dict()
    if change == "list":
        other = opened([cache, written(tmp_path, 1)])
    elif change == "bytes":
        other = opened(written(tmp_path, 40, salt="x"))
    else:
        other = opened(written(tmp_path, 20 if change == "count" else 41))
    with pytest.raises(errors.StateMismatchError) as caught:
        other.load_state_dict(state)
    assert "contents" in differing(caught.value)


def test_every_difference_is_listed_at_once(cache):
    other = opened(cache, seed=99, replacement=False, epoch_length=7, rows=20, weighted=True)
    with pytest.raises(errors.StateMismatchError) as caught:
        other.load_state_dict(opened(cache).state_dict())
    assert differing(caught.value) == ["seed", "order", "epoch_length", "rows", "weights"]
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: {},
        lambda state: {**state, "more": 1},
        lambda state: {**state, "position": -1},
        lambda state: {**state, "position": "3"},
        lambda state: {**state, "epoch": 1 << 32},
        lambda state: {**state, "version": 2},
        lambda state: {name: value for name, value in state.items() if name != "rows"},
    ],
    ids=["empty", "unknown field", "negative", "text", "epoch too large", "later version", "missing field"],
)
def test_what_is_no_state_is_refused(cache, spoil):
    dataset = opened(cache)
    with pytest.raises(errors.StateMismatchError):
        dataset.load_state_dict(spoil(dataset.state_dict()))
    assert dataset.state_dict() == opened(cache).state_dict()


def test_a_position_beyond_the_epoch_is_refused(cache):
    dataset = opened(cache)
    with pytest.raises(errors.RowIndexError):
        dataset.load_state_dict({**dataset.state_dict(), "position": 41})


def test_only_known_fields_can_be_ignored(cache):
    dataset = opened(cache)
    with pytest.raises(errors.ConfigError, match="ignore"):
        dataset.load_state_dict(dataset.state_dict(), ignore=["weight"])


def test_moving_or_linking_a_cache_does_not_change_its_identity(tmp_path):
    path = written(tmp_path, 20)
    dataset = opened(path)
    with iter(dataset) as iterator:
        first = ids(itertools.islice(iterator, 7))
        state = iterator.state_dict()
    link = tmp_path / "link"
    link.symlink_to(path, target_is_directory=True)
    linked = opened(link)
    linked.load_state_dict(state)
    rest = ids(linked)
    link.unlink()
    moved = opened(path.rename(tmp_path / "elsewhere"))
    moved.load_state_dict(state)
    assert ids(moved) == rest
    assert first + rest == order(moved)


def test_resuming_far_into_an_epoch_reads_nothing_that_came_before(cache):
    """The first records are damaged: a resume that touched them would fail."""
    dataset = opened(cache, shuffle=False, epoch_length=10_000_000, prefetch_size=1, num_workers=1)
    dataset.load_state_dict({**dataset.state_dict(), "position": 9_999_999})
    assert ids(dataset) == [(0, 9_999_999 % 40)]


def test_damaged_records_before_the_resumed_position_are_never_read(tmp_path):
    path = written(tmp_path, 20)
    dataset = opened(path, shuffle=False)
    state = {**dataset.state_dict(), "position": 15}
    shard = path / "shards" / "000000.bin"
    data = bytearray(shard.read_bytes())
    data[:40] = bytes(40)
    shard.write_bytes(data)
    dataset = opened(path, shuffle=False)
    dataset.load_state_dict(state)
    assert ids(dataset) == [(0, n) for n in range(15, 20)]
    with pytest.raises(errors.CorruptRecordError):
        list(dataset)


def test_a_state_of_the_first_release_still_resumes():
    """The cache and the states were written by release 1.0; what followed then must follow now."""
    expected = json.loads((PINNED / "expected.json").read_text(encoding="utf-8"))
    for name, kept in expected.items():
        config = dict(kept["config"])
        weighted = config.pop("weighted")
        dataset = CachedDataset([PINNED / "cache"], reader_config=ReaderConfig(**config))
        if weighted:
            table = dataset.samples_metadata()
            dataset.set_samples_metadata(table.with_columns(weight=1.0 + pl.col("n") % 4))
        dataset.load_state_dict(kept["state"])
        assert dataset.state_dict() == kept["state"], name
        assert [sample.sample_id for sample in dataset] == kept["rest"], name
        assert [sample.sample_id for sample in dataset] == kept["next_epoch"], name


def test_after_an_endless_iterator_comes_the_epoch_that_it_has_not_begun(cache):
    dataset = opened(cache)
    endless = dataset.batches(8, epochs=None)
    epochs = [next(endless).epoch for _ in range(12)]
    assert epochs[-1] == 2
    assert ids(dataset) == order(opened(cache), 3)


def test_a_state_loaded_into_an_iterator_moves_the_epochs_of_its_dataset(cache):
    later = opened(cache)
    later.set_epoch(5)
    samples = iter(later)
    next(samples)
    dataset = opened(cache)
    resumed = iter(dataset)
    resumed.load_state_dict(samples.state_dict())
    assert ids(resumed) == order(opened(cache), 5)[1:]
    assert ids(dataset) == order(opened(cache), 6)


def test_batches_of_several_epochs_end_with_the_same_epoch_after_a_resume(cache):
    whole = list(opened(cache).batches(16, epochs=3))
    resumed = opened(cache).batches(16, epochs=3)
    resumed.load_state_dict(whole[4].state_dict())
    rest = list(resumed)
    assert [(batch.epoch, batch.step) for batch in rest] == [(batch.epoch, batch.step) for batch in whole[5:]]


def test_no_epoch_at_all_is_refused_and_costs_none(cache):
    dataset = opened(cache)
    with pytest.raises(errors.ConfigError, match="epochs"):
        dataset.batches(8, epochs=0)
    assert ids(dataset) == order(opened(cache), 0)


def test_the_state_of_an_empty_view_stays_where_it_is(cache):
    empty = opened(cache).filter(pl.lit(value=False))
    state = empty.state_dict()
    empty.load_state_dict(state)
    assert empty.state_dict() == state
    assert list(empty) == []
    assert empty.state_dict()["epoch"] == 1


def test_numbers_out_of_range_are_named_and_never_overflow(cache):
    dataset = opened(cache)
    for call, error in [
        (lambda: dataset.batches(-1), errors.ConfigError),
        (lambda: dataset.batches(2**80), errors.ConfigError),
        (lambda: dataset.batches(4, epochs=-1), errors.ConfigError),
        (lambda: dataset.set_epoch(-1), errors.ConfigError),
        (lambda: dataset.set_epoch(2**32), errors.ConfigError),
        (lambda: dataset[2**200], errors.RowIndexError),
        (lambda: dataset[-(2**200)], errors.RowIndexError),
        (lambda: dataset.rows(0, -1), errors.RowIndexError),
        (lambda: dataset.order(0, 0, 41), errors.RowIndexError),
        (lambda: next(dataset.batches(1 << 50, remainder="pad")), errors.OutOfMemoryError),
    ]:
        with pytest.raises(error):
            call()
