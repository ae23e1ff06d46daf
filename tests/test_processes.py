"""Processes: killed, interrupted, forked, in competition with each other, and short of memory."""

from __future__ import annotations

import signal

import pytest

from dataset_rt import CacheWriteError, write_cache
from tests.support import PATIENCE, Source, finish, hear, numbered, pairs, read, run, say, start, write, writer

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


# Killed


def test_a_writer_killed_anywhere_leaves_no_half_of_a_cache_and_the_next_one_cleans_up(tmp_path):
    # One interpreter forks all victims: fifty starts would take a minute. A victim reports each row it yields and the
    # end of its source, and is killed after a random number of reports and then of looks at the directory.
    counts = run(
        """
        import json, os, random, shutil, signal, sys
        from pathlib import Path
        from dataset_rt import CachedDataset, CacheSourcesDatasetSuccess
        from tests.support import Source, numbered, pairs, reader, writer

        base, rows, seeded = Path(sys.argv[1]), 400, random.Random(20261129)
        counts = {"killed": 0, "published": 0, "absent": 0, "swept": 0}

        def build(items):
            return CachedDataset.from_cache_sources(
                Source("train", items),
                base,
                reader_config=reader(shuffle=False),
                writer_config=writer(max_shard_bytes=4000),
            )

        for attempt in range(50):
            report, told = os.pipe()
            victim = os.fork()
            if victim == 0:
                def items():
                    for item in numbered(rows):
                        os.write(told, b".")
                        yield item
                    os.write(told, b"!")
                try:
                    build(items())
                finally:
                    os._exit(0)
            os.close(told)
            # Half of them die while rows come, half somewhere in what follows the last one.
            reports = seeded.randrange(rows) if attempt % 2 else rows + 1
            while reports > 0 and (heard := os.read(report, reports)):
                reports -= len(heard)
            for _ in range(0 if attempt % 2 else seeded.randrange(400)):
                os.listdir(base)
            os.kill(victim, signal.SIGKILL)
            _, status = os.waitpid(victim, 0)
            os.close(report)
            counts["killed"] += os.WIFSIGNALED(status)
            left = sorted(os.listdir(base))
            counts["published" if "train" in left else "absent"] += 1
            counts["swept"] += any(".tmp-" in name for name in left)
            if "train" in left:  # complete, whether or not its writer lived to say so
                whole = CachedDataset([base / "train"], reader_config=reader(shuffle=False, validate_cache=True))
                assert pairs(whole) == numbered(rows)
            result = build(numbered(rows))
            assert isinstance(result, CacheSourcesDatasetSuccess), result
            assert pairs(result.dataset) == numbered(rows)
            entries = set(os.listdir(base))
            assert entries - {".train.lock"} == {"train"}, entries
            assert "train" in left or entries == {"train"}, entries
            shutil.rmtree(base / "train")
        print(json.dumps(counts))
        """,
        tmp_path,
    )
    assert counts["published"] + counts["absent"] == 50
    assert counts["killed"] > 30
    assert counts["absent"] > 20
    assert counts["swept"] > 20


# Interrupted


INTERRUPTED = """
    import json, os, signal, sys, threading
    from pathlib import Path
    from dataset_rt import CachedDataset, WriterProfilerConfig, write_cache
    from tests.support import Source, numbered, own_threads, reader, writer

    base = Path(sys.argv[1])
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def signal_when_set():
        # With a long switching interval the thread runs when Rust next gives the interpreter up by itself.
        event = threading.Event()
        sender = threading.Thread(target=lambda: (event.wait(), os.kill(os.getpid(), signal.SIGINT)))
        sender.start()
        return sender, event

    def tell(caught, **more):
        entries = sorted(entry.name for entry in base.iterdir()) if base.exists() else []
        print(json.dumps({"caught": caught, "threads": own_threads(), "left": entries, **more}))
"""


def interrupt(script, *arguments):
    """Run a child until it says that it is ready, send it what Ctrl-C sends, and return what it tells at its end."""
    with start(INTERRUPTED + script, *arguments) as child:
        assert hear(child) == "ready", child.communicate()
        child.send_signal(signal.SIGINT)
        return finish(child)


def test_ctrl_c_during_ingest_reaches_the_caller_and_nothing_is_left(tmp_path):
    told = interrupt(
        """
    def items():
        n = 0
        while True:
            n += 1
            yield bytes(1000), {"n": n}
            if n == 5000:
                print("ready")

    profile = base / "profile.json"
    config = writer(profiler=WriterProfilerConfig(enabled=True, path=profile))
    try:
        write_cache([Source("first", numbered(3)), Source("endless", items())], base, writer_config=config)
    except KeyboardInterrupt:
        report = json.loads(profile.read_text())
        tell("KeyboardInterrupt", status=report["status"], sources=[source["status"] for source in report["sources"]])
        """,
        tmp_path / "base",
    )
    assert told == {
        "caught": "KeyboardInterrupt",
        "threads": [],
        "left": ["first", "profile.json"],
        "status": "interrupted",
        "sources": ["written", "interrupted"],
    }


@pytest.mark.parametrize("handler", ["default", "own"])
def test_a_signal_is_seen_between_the_samples_of_a_source_that_runs_no_python(tmp_path, handler):
    told = interrupt(
        """
    from functools import partial
    from itertools import chain, filterfalse, repeat
    from dataset_rt import CacheInput

    class Stop(Exception):
        pass

    def handle(*_):
        raise Stop

    if sys.argv[2] == "own":
        signal.signal(signal.SIGINT, handle)

    class Native:
        name = "native"

        def __iter__(self):
            # Once it has said so, nothing runs any more that looks for signals: no line of Python, no file object.
            ready = filterfalse(partial(os.write, 1), [b"ready\\n"])
            return chain(ready, repeat(CacheInput(bytes(1000), {"n": 1})))

    try:
        tell(repr(write_cache(Native(), base, writer_config=writer())))
    except BaseException as caught:
        tell(type(caught).__name__)
        """,
        tmp_path / "base",
        handler,
    )
    # Unchanged, even though it is an ordinary exception: it is not the source's.
    assert told == {"caught": "KeyboardInterrupt" if handler == "default" else "Stop", "threads": [], "left": []}


@pytest.mark.parametrize(
    "item",
    [
        'CacheInput(b"payload", {"n": 1})',
        'CacheInput(b"payload", UserDict(n=1))',
        'CacheInput({"x": array("i", [1])}, {"n": 1})',
        'CacheInput(UserDict(x=np.ones(3)), {"n": 1})',
        'CacheInput((c_byte * 3)(), {"n": 1})',
        'CacheInput(None, {"n": 1})',
        'pl.DataFrame({"data": [b"x"], "n": [1]})',
    ],
)
def test_a_signal_that_comes_just_before_a_sample_is_never_lost(tmp_path, item):
    # Items and signals come from C, so that the first Python code to see the signal is what a sample is looked at with.
    told = run(
        INTERRUPTED
        + """
    import ctypes
    from array import array
    from collections import UserDict
    from ctypes import c_byte
    from itertools import compress, repeat
    from operator import not_
    import numpy as np
    import polars as pl
    from dataset_rt import CacheInput

    item = eval(sys.argv[2])
    signalled = map(not_, map(ctypes.CDLL(None)["raise"], repeat(signal.SIGINT)))

    class Native:
        name = "native"

        def __iter__(self):
            return compress(repeat(item, 3), signalled)

    try:
        tell(repr(write_cache(Native(), base, writer_config=writer())))
    except KeyboardInterrupt:
        tell("KeyboardInterrupt")
        """,
        tmp_path / "base",
        item,
    )
    assert told == {"caught": "KeyboardInterrupt", "threads": [], "left": []}


@pytest.mark.parametrize("samples", ["small", "huge"])
def test_ctrl_c_after_the_last_sample_leaves_all_of_the_cache_or_nothing(tmp_path, samples):
    told = run(
        INTERRUPTED
        + """
    import numpy as np
    from dataset_rt import ShardCompression

    sender, ended = signal_when_set()
    small, huge = b"small", np.random.default_rng(1).integers(0, 16, 128 << 20, dtype=np.uint8)

    def items():
        for n in range(2):
            yield {"small": small, "huge": huge}[sys.argv[2]], {"n": n}
        sys.setswitchinterval(1000)
        ended.set()

    caught = None
    try:
        lz4 = ShardCompression(algo="lz4")
        write_cache(Source("train", items()), base, writer_config=writer(shard_compression=lz4))
        sender.join()
    except KeyboardInterrupt:
        caught = "KeyboardInterrupt"
    sys.setswitchinterval(0.005)
    sender.join()
    whole = None
    if (base / "train").exists():
        whole = len(list(CachedDataset([base / "train"], reader_config=reader(validate_cache=True))))
    tell(caught, whole=whole)
        """,
        tmp_path / "base",
        samples,
    )
    assert told["caught"] == "KeyboardInterrupt"
    assert told["threads"] == []
    nothing, everything = ([], None), (["train"], 2)
    # Compressing the huge ones outlasts the wait for them, so the writer sees the signal before it publishes.
    assert (told["left"], told["whole"]) in ([nothing] if samples == "huge" else [nothing, everything])


def test_ctrl_c_ends_the_wait_for_another_writer(tmp_path):
    with start(HOLDER, tmp_path) as holder:
        assert hear(holder) == "holding"
        told = run(
            INTERRUPTED
            + """
    sender, waiting = signal_when_set()
    sys.setswitchinterval(1000)
    waiting.set()
    try:
        wanted = Source("train", numbered(3))
        CachedDataset.from_cache_sources(wanted, base, reader_config=reader(), writer_config=writer())
        caught = None
    except KeyboardInterrupt:
        caught = "KeyboardInterrupt"
    sys.setswitchinterval(0.005)
    sender.join()
    tell(caught)
            """,
            tmp_path,
        )
        assert told["caught"] == "KeyboardInterrupt"
        assert told["threads"] == []
        say(holder, "go on")
        assert finish(holder) == "train"
    assert pairs(read(tmp_path / "train")) == numbered(100)


@pytest.mark.parametrize("loop", ["samples", "batches", "shared"])
def test_ctrl_c_during_iteration_reaches_the_caller_and_ends_the_threads(tmp_path, loop):
    path = write(tmp_path, [(bytes(20_000), {"n": n}) for n in range(100)])
    told = interrupt(
        """
    dataset = CachedDataset([sys.argv[2]], reader_config=reader(num_workers=2))
    seen, running = 0, None
    try:
        while True:
            running = dataset.batches(10, epochs=None) if sys.argv[3] == "batches" else iter(dataset)
            if sys.argv[3] == "shared":
                other = threading.Thread(target=list, args=(iter(dataset),))
                other.start()
            for _ in running:
                seen += 1
                if seen == 300:
                    print("ready")
            if sys.argv[3] == "shared":
                other.join()
    except KeyboardInterrupt:
        if sys.argv[3] == "shared":
            other.join()
        running.close()
        again = sum(1 for _ in dataset)
        tell("KeyboardInterrupt", again=again)
        """,
        tmp_path / "nowhere",
        path,
        loop,
    )
    assert told == {"caught": "KeyboardInterrupt", "threads": [], "left": [], "again": 100}


# In competition


HOLDER = """
    import json, sys
    from pathlib import Path
    from dataset_rt import CacheWriteSuccess, write_cache
    from tests.support import Source, numbered, writer

    def items():
        yield from numbered(50)
        print("holding")
        sys.stdin.readline()
        yield from numbered(50, 50)

    [result] = write_cache(Source("train", items()), Path(sys.argv[1]), writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result
    print(json.dumps(result.path.name))
"""


def test_of_two_writers_one_wins_and_the_other_is_told_who(tmp_path):
    with start(HOLDER, tmp_path) as holder:
        assert hear(holder) == "holding"
        second = Source("train", numbered(3))
        results = write_cache([second, Source("other", numbered(3))], tmp_path, writer_config=writer())
        assert isinstance(results[0], CacheWriteError)
        assert str(tmp_path / "train") in results[0].message
        assert f"process {holder.pid} on " in results[0].message
        assert second.passes == []
        assert not isinstance(results[1], CacheWriteError)
        say(holder, "go on")
        assert finish(holder) == "train"
    assert pairs(read(tmp_path / "train")) == numbered(100)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["other", "train"]


def test_two_writers_in_one_process_are_told_apart(tmp_path):
    def items():
        [result] = write_cache(Source("train", numbered(3)), tmp_path, writer_config=writer())
        assert isinstance(result, CacheWriteError)
        assert "this process" in result.message
        yield from numbered(5)

    assert pairs(read(write(tmp_path, items()))) == numbered(5)


def test_sixteen_processes_that_want_one_cache_build_it_once(tmp_path):
    told = run(
        """
        import hashlib, json, os, sys
        from pathlib import Path
        from dataset_rt import CachedDataset, CacheSourcesDatasetSuccess
        from tests.support import Source, numbered, reader, writer

        base = Path(sys.argv[1])

        def items(name):
            # Each iteration leaves a file of its own.
            (base / f"{name} by {os.getpid()}").touch()
            yield from numbered(2000)

        gate, open_gate = os.pipe()
        children = []
        for _ in range(16):
            result, told = os.pipe()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    os.close(open_gate)
                    os.read(gate, 1)  # until the parent closes the other end
                    outcome = CachedDataset.from_cache_sources(
                        [Source("a", items("a")), Source("b", items("b"))],
                        base / "caches",
                        reader_config=reader(num_workers=1),
                        writer_config=writer(),
                    )
                    assert isinstance(outcome, CacheSourcesDatasetSuccess), outcome
                    assert [result.source_name for result in outcome.results] == ["a", "b"]
                    os.write(told, hashlib.sha256(repr(list(outcome.dataset)).encode()).digest())
                    code = 0
                finally:
                    os._exit(code)
            os.close(told)
            children.append((child, result))
        os.close(gate)
        os.close(open_gate)
        codes = [os.waitpid(child, 0)[1] for child, _ in children]
        digests = {os.read(result, 32).hex() for _, result in children}
        print(json.dumps({"codes": codes, "digests": len(digests), "left": sorted(os.listdir(base / "caches"))}))
        """,
        tmp_path,
    )
    assert told == {"codes": [0] * 16, "digests": 1, "left": ["a", "b"]}
    built = [entry.name.split()[0] for entry in tmp_path.iterdir() if " by " in entry.name]
    assert sorted(built) == ["a", "b"]


# Ends and forks


@pytest.mark.parametrize("end", ["falls off", "sys.exit", "exception", "thread", "global in a cycle"])
def test_the_interpreter_may_end_in_the_middle_of_an_iteration(tmp_path, end):
    path = write(tmp_path, [(bytes(5000), {"n": n}) for n in range(500)])
    with start(
        """
        import sys, threading
        from tests.support import open_in_order
        end = sys.argv[2]
        dataset = open_in_order(sys.argv[1], prefetch_size=8)
        samples, batches = iter(dataset), dataset.batches(3)
        next(samples), next(batches)
        if end == "thread":
            begun = threading.Event()
            def endless():
                while True:
                    for _ in dataset:
                        begun.set()
            threading.Thread(target=endless, daemon=True).start()
            begun.wait()
        if end == "global in a cycle":
            cycle = [samples]
            cycle.append(cycle)
        if end == "sys.exit":
            sys.exit(0)
        if end == "exception":
            raise ZeroDivisionError
        """,
        path,
        end,
    ) as child:
        output, errors = child.communicate(timeout=PATIENCE)
    assert output == ""
    if end == "exception":
        assert child.returncode == 1
        assert errors.splitlines()[-1] == "ZeroDivisionError"
    else:
        assert (child.returncode, errors) == (0, "")


def test_a_forked_child_reads_right_and_its_parents_iterators_refuse(tmp_path):
    path = write(tmp_path, numbered(2000), max_shard_bytes=4000)
    told = run(
        """
        import json, os, signal, sys, threading
        from dataset_rt import errors
        from tests.support import numbered, open_in_order, own_threads, pairs

        def forked(work):
            child = os.fork()
            if child == 0:
                signal.alarm(100)  # a child that hangs must not outlive the test
                code = 1
                try:
                    work()
                    code = 0
                except BaseException:
                    import traceback
                    traceback.print_exc()
                finally:
                    os._exit(code)
            return os.waitpid(child, 0)[1]

        codes = {}
        for io in ("mmap", "pread"):
            dataset = open_in_order(sys.argv[1], io=io, num_workers=2)
            samples, batches = iter(dataset), dataset.batches(5)
            received = next(samples).sample_id, next(batches).sample_id[0]

            def child():
                assert pairs(dataset) == numbered(2000)
                assert dataset[1999].data == b"payload 1999"
                assert dataset.samples_metadata()["n"].to_list() == list(range(2000))
                try:
                    next(samples)  # even what was loaded before the fork is the parent's to receive
                except errors.ForkedIteratorError as error:
                    assert "fork" in str(error)
                else:
                    raise AssertionError("a sample of the parent")
                try:
                    next(batches)
                except errors.ForkedIteratorError:
                    pass
                else:
                    raise AssertionError("a batch of the parent")
                samples.close(), batches.close()
                assert own_threads() == []

            codes[io] = forked(child)
            assert [sample.sample_id for sample in samples] == list(range(1, 2000))
            assert sum(len(batch) for batch in batches) == 1995

            # Forks at any moment of other threads' reading: whatever lock they hold stays held in the child. One
            # of them guards the dataset itself; a fork that hits it gives a typed error;
            # everything else must simply work.
            stop = threading.Event()

            def busy():
                while not stop.is_set():
                    list(dataset)
                    dataset[5]
                    dataset.samples_metadata()

            threads = [threading.Thread(target=busy) for _ in range(3)]
            for thread in threads:
                thread.start()

            def brief():
                try:
                    len(dataset)
                except errors.ForkedDatasetError:
                    return
                assert dataset[7].data == b"payload 7"
                assert [sample.sample_id for sample in dataset] == list(range(2000))

            codes[io + " busy"] = [forked(brief) for _ in range(15)]
            stop.set()
            for thread in threads:
                thread.join()
        print(json.dumps(codes))
        """,
        path,
    )
    assert told == {"mmap": 0, "pread": 0, "mmap busy": [0] * 15, "pread busy": [0] * 15}


# Memory


MEMORY = """
    import json, sys
    from pathlib import Path
    from dataset_rt import ShardCompression
    from tests.support import open_in_order, write

    def status(field):
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field + ":")]
        return int(line.split()[1]) << 10

    base, payload, count, in_flight = Path(sys.argv[1]), 4 << 20, 128, 4
    write(base, [(bytes(payload), {"n": 0})], "warm up")
    list(open_in_order(base / "warm up"))
"""

MIB = 1 << 20


def test_memory_of_writing_is_bounded_by_what_is_in_flight(tmp_path):
    told = run(
        MEMORY
        + """
    before = status("VmHWM")
    buffer = bytearray(payload)
    write(base, ((buffer, {"n": n}) for n in range(count)), "train", prefetch_size=in_flight, max_shard_bytes=1 << 40)
    print(json.dumps(status("VmHWM") - before))
        """,
        tmp_path,
    )
    # 512 MiB pass through; 4 samples of 4 MiB may be in flight, as payload and as record, beside a few write blocks.
    assert told < 4 * 4 * MIB * 2 + 64 * MIB, told / MIB


@pytest.mark.parametrize("io", ["pread", "mmap"])
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_memory_of_reading_is_bounded_by_what_is_in_flight(tmp_path, io, algo):
    told = run(
        MEMORY
        + """
    path = write(
        base,
        ((bytes(payload), {"n": n}) for n in range(count)),
        "train",
        prefetch_size=in_flight,
        shard_compression=ShardCompression(algo=sys.argv[3]),
    )
    dataset = open_in_order(path, io=sys.argv[2], prefetch_size=in_flight, num_workers=2)
    # Mapped files count as resident though the system may take their pages back at any time: only our own memory
    # counts.
    before = peak = status("RssAnon")
    for sample in dataset:
        assert len(sample.data) == payload
        peak = max(peak, status("RssAnon"))
    print(json.dumps(peak - before))
        """,
        tmp_path,
        io,
        algo,
    )
    assert told < 4 * 4 * MIB * 2 + 32 * MIB, told / MIB


def test_an_open_dataset_holds_no_payload(tmp_path):
    told = run(
        MEMORY
        + """
    path = write(base, ((bytes(payload), {"n": n}) for n in range(count)), "train", prefetch_size=in_flight)
    before = status("VmRSS")
    dataset = open_in_order(path)
    dataset.samples_metadata()
    print(json.dumps(status("VmRSS") - before))
        """,
        tmp_path,
    )
    assert told < 16 * MIB, told / MIB
