"""Writers of one cache: killed, told who else writes it, and waiting for each other."""

from __future__ import annotations

from dataset_rt import CacheWriteError, write_cache
from tests.support import HOLDER, Source, finish, hear, numbered, pairs, read, run, say, start, write, writer


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
