"""Ctrl-C and other signals while caches are written and read: the caller gets them, and nothing is left."""

from __future__ import annotations

import signal

import pytest

from tests.support import HOLDER, finish, hear, numbered, pairs, read, run, say, start, write

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
                # A thread whose start was interrupted cannot be joined.
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
                other.start()
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
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
