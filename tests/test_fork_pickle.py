"""Processes and threads: right bytes or one clear error, never a wait for something that does not exist here."""

from __future__ import annotations

import concurrent.futures
import copy
import json
import multiprocessing
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dataset_rt import errors
from tests.order_support import MODES, delivered, ids, opened, order, payload, written

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 60
"""Seconds after which a child counts as hanging; no test waits for it when all is well."""

PRELUDE = """
import ctypes, json, os, random, signal, sys, threading
from pathlib import Path
from dataset_rt import errors
from tests.order_support import ids, opened, order, payload

def forked(work, fork=os.fork):
    # What a child answers. One that hangs is killed by its alarm, and fails the test.
    read, write = os.pipe()
    child = fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)
            try:
                answer = work()
            except (errors.ForkedIteratorError, errors.ForkedDatasetError) as error:
                answer = type(error).__name__
            os.write(write, json.dumps(answer).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, (status, text)
    return json.loads(text)

cache = Path(sys.argv[1])
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return written(tmp_path_factory.mktemp("processes"), 40)


def run(script: str, *arguments: object) -> Any:
    """Run a script in a fresh interpreter; return the JSON in its last line."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + textwrap.dedent(script), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


def own_threads() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            continue  # it has just ended
    return [name for name in names if name.startswith("dataset_rt-")]


def test_children_forked_after_reading_deliver_the_order(cache):
    found = run(
        """
        dataset = opened(cache, weighted=True)
        ids(dataset)
        print(json.dumps([forked(lambda: ids(dataset)) for _ in range(4)]))
        """,
        cache,
    )
    expected = [list(who) for who in order(opened(cache, weighted=True), 1)]
    assert found == [expected] * 4


def test_a_child_of_a_fork_that_python_does_not_see_delivers_the_order(cache):
    found = run(
        """
        dataset = opened(cache)
        ids(dataset)
        print(json.dumps(forked(lambda: ids(dataset), ctypes.PyDLL(None).fork)))
        """,
        cache,
    )
    assert found == [list(who) for who in order(opened(cache), 1)]


def test_a_grandchild_delivers_the_order_too(cache):
    found = run(
        """
        dataset = opened(cache)
        iterator = iter(dataset)
        next(iterator)
        print(json.dumps(forked(lambda: [ids(dataset), forked(lambda: ids(dataset))])))
        """,
        cache,
    )
    assert found == [[list(who) for who in order(opened(cache), epoch)] for epoch in (1, 2)]


@pytest.mark.parametrize("kind", ["iter(dataset)", "dataset.batches(2)"])
def test_an_iterator_of_the_parent_gives_what_it_holds_and_then_says_that_it_was_forked(cache, kind):
    outcome, rest = run(
        f"""
        dataset = opened(cache, prefetch_size=4)
        iterator = {kind}
        next(iterator)

        def child():
            seen = 0
            for item in iterator:
                seen += 1
                assert seen < 40
            return "ended"

        def close():
            iterator.close()
            return "closed"

        def state():
            return iterator.state_dict()

        outcome = [forked(child), forked(close), forked(state)]
        print(json.dumps([outcome, sum(1 for _ in iterator)]))
        """,
        cache,
    )
    assert outcome == ["ForkedIteratorError", "closed", "ForkedIteratorError"]
    assert rest == (39 if kind.startswith("iter") else 19)  # the parent goes on as if nothing had happened


def test_children_do_not_share_a_file_position(cache):
    found = run(
        """
        dataset = opened(cache, io="pread", verify="always")
        dataset[0]
        read, write = os.pipe()
        children = []
        for number in range(8):
            child = os.fork()
            if child == 0:
                pick = random.Random(number)
                rows = [pick.randrange(40) for _ in range(2000)]
                wrong = sum(dataset[row].data != payload(row) for row in rows)
                os._exit(min(wrong, 100))
            children.append(child)
        print(json.dumps([os.waitpid(child, 0)[1] for child in children]))
        """,
        cache,
    )
    assert found == [0] * 8


def test_a_fork_amid_busy_threads_never_hangs(cache):
    """Threads hold every lock now and then; a child gets the bytes or the error, and the parent keeps reading."""
    outcomes = run(
        """
        dataset = opened(cache, prefetch_size=4, io="pread")
        shared = dataset.batches(3, epochs=None)
        stop = threading.Event()
        failures = []

        def busy(work):
            try:
                while not stop.is_set():
                    work()
            except Exception as error:
                failures.append(repr(error))

        works = [lambda: next(shared), lambda: dataset[7], lambda: ids(dataset), lambda: dataset.state_dict(),
                 lambda: dataset.set_samples_metadata(dataset.samples_metadata())]
        threads = [threading.Thread(target=busy, args=(work,)) for work in works]
        for thread in threads:
            thread.start()

        def child():
            assert dataset[5].data == payload(5)
            return len(ids(dataset))

        outcomes = [forked(child) for _ in range(25)] + [forked(lambda: len(next(shared))) for _ in range(10)]
        stop.set()
        for thread in threads:
            thread.join()
        shared.close()
        assert failures == [], failures
        print(json.dumps(outcomes))
        """,
        cache,
    )
    assert set(outcomes[:25]) <= {40, "ForkedDatasetError"}
    assert 40 in outcomes[:25]
    assert set(outcomes[25:]) == {"ForkedIteratorError"}


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_started_processes_open_a_pickled_dataset_and_deliver_the_order(cache, method):
    view = opened(cache, weighted=True).filter(pl.col("n") > 3)
    view.set_epoch(4)
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        assert pool.submit(delivered, view).result(PATIENCE) == order(view, 4)


@pytest.mark.parametrize("mode", MODES)
def test_a_pickled_dataset_is_small_and_delivers_the_same(cache, mode):
    dataset = opened(cache, **MODES[mode])
    ids(dataset)
    data = pickle.dumps(dataset)
    assert len(data) < 2048
    copy = pickle.loads(data)
    assert copy.state_dict() == dataset.state_dict()
    assert ids(copy) == ids(dataset) == order(dataset, 1)


def test_a_pickled_dataset_opens_its_caches_when_it_is_used(tmp_path):
    path = written(tmp_path, 5)
    dataset = opened(path)
    path.rename(tmp_path / "away")
    copy = pickle.loads(pickle.dumps(dataset))
    with pytest.raises(errors.CacheNotFoundError):
        len(copy)
    (tmp_path / "away").rename(path)
    assert len(copy) == 5


def test_a_pickled_dataset_notices_another_cache_in_its_place(tmp_path):
    path = written(tmp_path, 5)
    data = pickle.dumps(opened(path))
    path.rename(tmp_path / "away")
    written(tmp_path, 6)
    with pytest.raises(errors.StateMismatchError):
        len(pickle.loads(data))


def test_a_pickled_copy_of_a_copy_is_the_same(cache):
    dataset = opened(cache, weighted=True).filter(pl.col("n") != 2)
    once = pickle.loads(pickle.dumps(dataset))
    twice = pickle.loads(pickle.dumps(once))
    assert ids(twice) == order(dataset)
    assert twice.samples_metadata().equals(dataset.samples_metadata())


def test_a_pickled_batch_keeps_everything(cache):
    with opened(cache).batches(6) as batches:
        batch = next(batches)
    copy = pickle.loads(pickle.dumps(batch))
    assert [bytes(data) for data in copy.data] == [bytes(data) for data in batch.data]
    for name in ("cache_id", "sample_id", "position", "valid"):
        assert getattr(copy, name).tolist() == getattr(batch, name).tolist()
    assert copy.metadata.equals(batch.metadata)
    assert (copy.epoch, copy.step, copy.state_dict()) == (batch.epoch, batch.step, batch.state_dict())
    assert copy.generator(1).random() == batch.generator(1).random()


def test_sixteen_threads_read_one_dataset(cache):
    dataset = opened(cache)
    barrier = threading.Barrier(16)

    def work(number: int) -> list[tuple[int, int]]:
        barrier.wait(PATIENCE)
        for row in range(40):
            assert dataset[(row * 7 + number) % 40].data == payload((row * 7 + number) % 40)
        return ids(dataset)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(work, range(16)))
    assert sorted(found) == sorted(order(dataset, epoch) for epoch in range(16))


@pytest.mark.parametrize("kind", ["samples", "batches"])
def test_sixteen_threads_share_one_iterator_and_each_item_goes_to_one(cache, kind):
    dataset = opened(cache, replacement=False, epoch_length=400)
    iterator = iter(dataset) if kind == "samples" else dataset.batches(3)
    barrier = threading.Barrier(16)

    def work(_: int) -> list[int]:
        barrier.wait(PATIENCE)
        return [int(row) for item in iterator for row in np.atleast_1d(item.sample_id)]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = [row for rows in pool.map(work, range(16)) for row in rows]
    assert sorted(found) == sorted(dataset.rows(0).tolist())


def test_many_epochs_left_early_leave_no_thread(cache):
    dataset = opened(cache, num_workers=8)
    for epoch in range(100):
        for place, _ in enumerate(dataset):
            if place == epoch % 4:
                break
        for batch in dataset.batches(1 + epoch % 5):
            if batch.step == epoch % 3:
                break
    del batch
    assert own_threads() == []


def test_an_exception_in_the_loop_reaches_the_caller_and_ends_the_threads(cache):
    def loop() -> None:
        for _ in opened(cache, num_workers=8):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        loop()
    assert own_threads() == []


@pytest.mark.parametrize("kind", ["iter(dataset)", "dataset.batches(2, epochs=None)"])
def test_an_interpreter_that_ends_in_mid_iteration_ends_quietly(cache, kind):
    assert run(f"dataset = opened(cache, num_workers=8)\niterator = {kind}\nnext(iterator)\nprint(1)", cache) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_ends_an_endless_loop_and_leaves_nothing(cache, tmp_path, number, code):
    shared = set(Path("/dev/shm").iterdir())
    script = """
        print("ready", flush=True)
        for batch in opened(cache, num_workers=8).batches(4, epochs=None):
            pass
        """
    child = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script), str(cache)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(tmp_path), "PATH": ""},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    _, errors_ = child.communicate(timeout=PATIENCE)
    assert child.returncode == code
    assert errors_.count("KeyboardInterrupt") == (number == signal.SIGINT)
    assert list(tmp_path.iterdir()) == []
    assert set(Path("/dev/shm").iterdir()) <= shared


def test_a_signal_handler_may_save_the_state_while_the_iterator_waits(tmp_path):
    # 256 MiB of zeros take their reader far longer than the 50 ms after which a waiting consumer looks for signals.
    told = run(
        """
        import json, os, signal, sys, threading
        from dataset_rt import CachedDataset, CacheInput, ReaderConfig, ShardCompression, WriterConfig, write_cache

        class Slow:
            name = "slow"
            def __iter__(self):
                yield CacheInput(bytes(1 << 28), {})

        quiet = WriterConfig(show_progress=False, shard_compression=ShardCompression(algo="lz4"))
        (result,) = write_cache(Slow(), sys.argv[1], writer_config=quiet)
        dataset = CachedDataset([result.path], reader_config=ReaderConfig(seed=1, shuffle=False, num_workers=1))
        waiting, saved = [False], []
        iterators = []

        def save(*_):
            if waiting[0]:
                saved.append((dataset.state_dict(), iterators[-1].state_dict()))

        signal.signal(signal.SIGUSR1, save)
        stop = threading.Event()

        def nag():
            while not stop.wait(0.002):
                os.kill(os.getpid(), signal.SIGUSR1)

        nagging = threading.Thread(target=nag)
        nagging.start()
        for start in (lambda: iter(dataset), lambda: dataset.batches(1)):
            iterators.append(start())
            waiting[0] = True
            next(iterators[-1])
            waiting[0] = False
        stop.set()
        nagging.join()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        print(json.dumps(len(saved) >= 2))
        """,
        tmp_path,
    )
    assert told is True


@pytest.mark.parametrize("twin_of", [copy.copy, copy.deepcopy])
def test_a_copy_has_weights_epoch_and_position_of_its_own(cache, twin_of):
    dataset = opened(cache)
    twin = twin_of(dataset)
    assert twin.state_dict() == dataset.state_dict()
    before = dataset.state_dict(), dataset.samples_metadata()
    twin.set_epoch(7)
    twin.set_samples_metadata(
        twin.samples_metadata().with_columns(weight=pl.int_range(1, pl.len() + 1).cast(pl.Float64))
    )
    assert (dataset.state_dict(), twin.state_dict()["epoch"]) == (before[0], 7)
    assert dataset.samples_metadata().equals(before[1])
    assert not twin.samples_metadata().equals(before[1])
