"""Iterators and threads: when threads end, what they share, and that others run meanwhile."""

from __future__ import annotations

import sys
import threading

import pytest

from dataset_rt import CachedDataset, ShardCompression
from tests.support import numbered, open_in_order, own_threads, pairs, reader, write


def test_threads_end_with_the_iterator_however_it_ends(cache):
    dataset = CachedDataset([cache], reader_config=reader(prefetch_size=8))
    for _ in dataset:
        assert own_threads()
        break
    assert own_threads() == []

    closed = iter(dataset)
    next(closed)
    assert own_threads()
    closed.close()
    assert own_threads() == []
    closed.close()
    assert list(closed) == []

    with iter(dataset) as managed:
        next(managed)
        assert own_threads()
    assert own_threads() == []
    assert list(managed) == []

    dropped = iter(dataset)
    next(dropped)
    assert own_threads()
    del dropped
    assert own_threads() == []

    exhausted = iter(dataset)
    assert len(list(exhausted)) == 300
    assert own_threads() == []
    assert list(exhausted) == []

    def fail():
        with iter(dataset) as failing:
            next(failing)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert own_threads() == []

    unused = iter(dataset)
    del unused
    assert own_threads() == []


def test_an_iterator_outlives_its_dataset(cache):
    samples = iter(open_in_order(cache))
    assert pairs(samples) == numbered(300)


def test_two_iterators_at_once_are_two_epochs(cache):
    dataset = CachedDataset([cache], reader_config=reader())
    first, second = iter(dataset), iter(dataset)
    mixed = list(zip(first, second, strict=True))
    again = CachedDataset([cache], reader_config=reader())
    assert [one for one, _ in mixed] == list(again)
    assert [two for _, two in mixed] == list(again)


def in_threads(count, work):
    """Run `work(number)` in threads that begin together; return their results or raise the first exception."""
    barrier, results, failures = threading.Barrier(count), [None] * count, []

    def body(number):
        try:
            barrier.wait()
            results[number] = work(number)
        except BaseException as failure:  # noqa: BLE001 (raised below)
            failures.append(failure)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def test_threads_that_share_an_iterator_share_its_samples(cache):
    samples = iter(open_in_order(cache))
    parts = in_threads(16, lambda _: [sample.sample_id for sample in samples])
    assert all(part == sorted(part) for part in parts)
    assert sorted(name for part in parts for name in part) == list(range(300))


def test_threads_that_share_a_dataset_each_read_right(cache):
    dataset = open_in_order(cache, num_workers=2)

    def work(number):
        assert pairs(dataset) == numbered(300)
        assert pairs(dataset[row] for row in range(number, 300, 16)) == numbered(300)[number::16]
        return len(dataset.samples_metadata())

    assert in_threads(16, work) == [300] * 16


def test_threads_may_close_an_iterator_that_others_use(cache):
    for _ in range(20):
        samples = iter(CachedDataset([cache], reader_config=reader(prefetch_size=2, num_workers=2)))
        in_threads(4, lambda number, samples=samples: samples.close() if number == 0 else list(samples))
        assert own_threads() == []


def test_other_threads_run_while_one_waits_for_samples(tmp_path):
    # With so long an interval a thread runs only if the running one gives the interpreter up by itself.
    path = write(
        tmp_path, [(bytes(4 << 20), {"n": n}) for n in range(4)], shard_compression=ShardCompression(algo="lz4")
    )
    dataset = open_in_order(path, num_workers=1, prefetch_size=1)
    interval = sys.getswitchinterval()
    for name, wait in {
        "iteration": lambda: list(dataset),
        "one row": lambda: dataset[0],
        "open": lambda: open_in_order(path, validate_cache=True),
    }.items():
        go, ran = threading.Lock(), []
        go.acquire()
        thread = threading.Thread(target=lambda go=go, ran=ran: (go.acquire(), ran.append(True)))
        thread.start()
        sys.setswitchinterval(1000)
        try:
            go.release()
            for _ in range(300):
                wait()
                if ran:
                    break
            has_run = bool(ran)
        finally:
            sys.setswitchinterval(interval)
            thread.join()
        assert has_run, name
