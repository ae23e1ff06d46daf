"""Where the time goes: counts are exact, times fit the clock, and a consumer that starves is told once."""

from __future__ import annotations

import json
import pickle
import time
import warnings
from typing import Any

import numpy as np
import pytest

import dataset_rt.profile
from dataset_rt import CacheInput, CacheWriteSuccess, ReaderProfile, ShardCompression, write_cache
from dataset_rt.errors import ConsumerStarvedWarning
from tests.order_support import opened, payload, written
from tests.support import open_in_order, run, write, writer

COUNT = 300
BYTES = sum(len(payload(n)) for n in range(COUNT))
LOADING = ("disk", "plan", "locate", "verify", "decode", "copy")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return written(tmp_path_factory.mktemp("profile"), COUNT)


def counts(profile: ReaderProfile) -> tuple[int, int, int, int]:
    return profile.samples, profile.batches, profile.gathers, profile.payload_bytes


def loading(profile: ReaderProfile) -> float:
    return sum(getattr(profile, f"{name}_seconds") for name in LOADING)


def made(**seconds: float) -> ReaderProfile:
    """Return a profile with these times, and zeros."""
    names = ["elapsed", "waiting", "working", "gather", *LOADING, "room"]
    times: dict[str, Any] = {f"{name}_seconds": seconds.get(name, 0.0) for name in names}
    return ReaderProfile(samples=0, batches=0, gathers=0, payload_bytes=0, **times)


def starve(dataset: Any, waited: float = 12.0, worked: float = 4.0, batches: int = 400) -> None:
    dataset._native.pretend_consumer(int(waited * 1e9), int(worked * 1e9), batches)


def test_samples_of_a_whole_epoch_are_counted_exactly(cache):
    dataset = opened(cache, shuffle=False)
    assert counts(dataset.profile()) == (0, 0, 0, 0)
    assert len(list(dataset)) == COUNT
    assert counts(dataset.profile()) == (COUNT, 0, 0, BYTES)


def test_samples_taken_so_far_are_counted_exactly(cache):
    dataset = opened(cache, shuffle=False)
    samples, size = iter(dataset), 0
    for number in range(1, 100):
        size += len(next(samples).data)
        assert counts(dataset.profile()) == (number, 0, 0, size)
    samples.close()
    assert counts(dataset.profile()) == (99, 0, 0, size)


def test_an_iterator_that_is_left_counts_what_was_taken(cache):
    dataset = opened(cache, shuffle=False, prefetch_size=64)
    for number, _ in enumerate(dataset):
        if number == 49:
            break
    list(dataset.batches(256))
    assert dataset.profile().samples == 50 + COUNT


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_batches_and_their_bytes_are_counted_exactly(cache, io):
    dataset = opened(cache, shuffle=False, io=io)
    list(dataset.batches(64, epochs=2))
    assert counts(dataset.profile()) == (2 * COUNT, 10, 0, 2 * BYTES)
    list(dataset.batches(64, columns=["n"]))
    assert counts(dataset.profile()) == (3 * COUNT, 15, 0, 2 * BYTES)


def test_gathers_count_into_new_memory_and_into_ones_own(tmp_path):
    class Images:
        name = "images"

        def __iter__(self):
            return (CacheInput({"image": np.full((4, 4), n, np.uint8)}, {}) for n in range(20))

    [result] = write_cache(Images(), tmp_path, writer_config=writer())
    assert isinstance(result, CacheWriteSuccess)
    dataset = open_in_order(result.path)
    dataset.gather([1, 1, 5])
    dataset.gather([2, 3], out=np.empty((2, 4, 4), np.uint8))
    with pytest.raises(IndexError):
        dataset.gather([99])
    assert counts(dataset.profile()) == (5, 0, 2, 5 * 16)


def test_times_are_not_negative_and_fit_the_clock(cache):
    began = time.perf_counter()
    dataset = opened(cache, num_workers=1)
    list(dataset)
    list(dataset.batches(32))
    for _ in range(20):
        dataset.gather(slice(None))
    profile = dataset.profile()
    wall = time.perf_counter() - began
    assert all(value >= 0 for name, value in profile.to_dict().items() if name != "bottleneck")
    assert 0 < profile.waiting_seconds + profile.working_seconds + profile.gather_seconds <= wall
    assert profile.elapsed_seconds <= wall
    # One worker at a time, then the caller.
    assert 0 < loading(profile) + profile.room_seconds <= wall


def test_loading_is_told_apart(tmp_path):
    text = b"a text that shrinks, " * 3000
    items = [(text, {"n": n}) for n in range(64)]
    plain = open_in_order(write(tmp_path, items, "plain"), verify="always")
    packed = open_in_order(
        write(tmp_path, items, "packed", shard_compression=ShardCompression(algo="zstd", level=3)), verify="never"
    )
    for dataset in (plain, packed):
        for read in (list, lambda data: list(data.batches(16)), lambda data: data.gather([0, 1])):
            read(dataset)
            profile = dataset.profile(reset=True)
            assert profile.locate_seconds > 0
            if dataset is packed:
                assert profile.decode_seconds > profile.verify_seconds
            else:
                assert profile.verify_seconds > 0


def test_a_reset_begins_again(cache):
    dataset = opened(cache)
    list(dataset.batches(64))
    before = dataset.profile(reset=True)
    after = dataset.profile()
    assert counts(before)[:2] == (COUNT, 5)
    assert counts(after) == (0, 0, 0, 0)
    assert (after.waiting_seconds, after.working_seconds, loading(after)) == (0, 0, 0)
    list(dataset.batches(64))
    assert counts(dataset.profile())[:2] == (COUNT, 5)


def test_views_and_copies_count_for_themselves(cache):
    dataset = opened(cache)
    list(dataset.batches(64))
    view = dataset.select(dataset.samples_metadata().head(10))
    copy = pickle.loads(pickle.dumps(dataset))
    assert counts(view.profile()) == counts(copy.profile()) == (0, 0, 0, 0)
    list(view.batches(10))
    copy.gather([0])
    assert view.profile().samples == 10
    assert copy.profile().samples == 1
    assert dataset.profile().samples == COUNT


def test_a_forked_child_counts_for_itself(cache):
    answer = run(
        """
        import json, os, sys, warnings
        from pathlib import Path
        from tests.order_support import opened

        def counts():
            profile = dataset.profile()
            return [profile.samples, profile.batches, profile.gathers]

        warnings.simplefilter("ignore", DeprecationWarning)
        dataset = opened(Path(sys.argv[1]))
        batches = dataset.batches(64)
        next(batches)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                first = counts()
                dataset.gather([0, 1])
                os.write(writing, json.dumps([first, counts()]).encode())
            finally:
                os._exit(0)
        os.close(writing)
        answers = json.loads(os.fdopen(reading).read())
        os.waitpid(child, 0)
        batches.close()
        print(json.dumps([*answers, counts()]))
        """,
        cache,
    )
    assert answer == [[0, 0, 0], [2, 0, 1], [64, 1, 0]]


@pytest.mark.parametrize(
    ("seconds", "bottleneck"),
    [
        ({}, "balanced"),
        ({"waiting": 9.0, "working": 1.0, "disk": 6.0, "copy": 5.0}, "disk"),
        ({"waiting": 9.0, "working": 1.0, "verify": 3.0, "decode": 3.0, "copy": 5.0}, "decode"),
        ({"waiting": 9.0, "working": 1.0, "plan": 2.0, "locate": 2.0, "copy": 2.0, "disk": 5.0}, "copy"),
        ({"waiting": 9.0, "working": 1.0, "disk": 4.0, "decode": 4.0, "copy": 4.0}, "balanced"),
        ({"waiting": 0.9, "working": 9.1, "disk": 9.0}, "consumer"),
        ({"waiting": 1.1, "working": 8.9, "disk": 9.0}, "disk"),
        ({"gather": 9.0, "copy": 9.0}, "copy"),
    ],
)
def test_the_bottleneck_is_what_takes_the_time(seconds, bottleneck):
    assert made(**seconds).bottleneck == bottleneck


def test_a_profile_can_be_read_logged_and_not_changed():
    profile = made(elapsed=2.0, waiting=3.0, working=1.0, disk=3.0, copy=1.0)
    text = str(profile)
    assert "waiting        3.000 s    75%" in text
    assert "disk           3.000 s    75%" in text
    assert text.splitlines()[-1] == "bottleneck: disk"
    assert json.loads(json.dumps(profile.to_dict()))["waiting_share"] == 0.75
    with pytest.raises(AttributeError):
        setattr(profile, "samples", 1)  # noqa: B010 (the type checker knows that too)


@pytest.mark.parametrize("make", [iter, lambda dataset: dataset.batches(8)], ids=["samples", "batches"])
def test_a_consumer_that_starves_is_told_once_where_it_asks(cache, make):
    dataset = opened(cache)
    items = make(dataset)
    next(items)
    starve(dataset)
    with pytest.warns(ConsumerStarvedWarning, match=r"has waited 75% of 16 s .* num_workers") as caught:
        delivered = 1 + len(list(items))
    assert [warning.filename for warning in caught] == [__file__]
    assert delivered == (COUNT if make is iter else -(-COUNT // 8))
    starve(dataset)
    list(make(dataset))


def test_no_batch_is_lost_where_the_warning_is_an_error(cache):
    dataset = opened(cache, shuffle=False)
    batches = dataset.batches(100)
    first = next(batches)
    starve(dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConsumerStarvedWarning):
            next(batches)
    assert [*first.sample_id, *(n for batch in batches for n in batch.sample_id)] == list(range(COUNT))


@pytest.mark.parametrize(
    "numbers",
    [(2.0, 12.0, 400), (6.0, 3.0, 400), (12.0, 4.0, 90), (12.0, 4.0, 9000), (990.0, 10.0, 1000)],
    ids=["works more", "has just begun", "few batches", "hardly works", "only iterates"],
)
def test_who_does_not_starve_is_not_warned(cache, numbers):
    dataset = opened(cache)
    batches = dataset.batches(100)
    starve(dataset, *numbers)
    list(batches)


def test_iterators_of_worker_processes_do_not_warn(cache):
    dataset = opened(cache)
    starve(dataset)
    list(dataset._batches_of_worker(64, "keep", 0, 1))


@pytest.mark.parametrize(
    ("part", "advice"), [("disk", "storage"), ("decode", "shard_compression"), ("copy", "columns=")]
)
def test_the_warning_names_the_stage_and_what_to_change(part, advice):
    counters = made(waiting=12.0, working=4.0, **{part: 9.0}).to_dict()
    del counters["waiting_share"], counters["bottleneck"]
    with pytest.warns(ConsumerStarvedWarning, match=rf"75% of 16 s .*: {part}\. .*{advice}"):
        dataset_rt.profile.warn_starving(counters)
