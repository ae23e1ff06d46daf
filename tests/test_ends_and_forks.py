"""Interpreters that end in the middle of an iteration, and children forked in it."""

from __future__ import annotations

import pytest

from tests.support import PATIENCE, numbered, run, start, write


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
