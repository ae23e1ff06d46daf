"""Opening and reading: which defects are found, what is delivered in which order, and when threads end."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dataset_rt import CachedDataset, CachedSample, ShardCompression, errors
from tests.support import (
    edit_manifest,
    flip,
    manifest,
    numbered,
    open_in_order,
    own_threads,
    pairs,
    read,
    reader,
    start,
    write,
)
from tests.support import finish as end_of

PUBLISHED = Path(__file__).parent / "data" / "published"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of 300 samples in several shards that no test changes."""
    return write(tmp_path_factory.mktemp("shared"), numbered(300), max_shard_bytes=4000)


def names(dataset):
    return [sample.sample_id for sample in dataset]


# Opening


def no_directory(path):
    shutil.rmtree(path)


def no_manifest(path):
    (path / "manifest.json").unlink()


def empty_manifest(path):
    (path / "manifest.json").write_text("")


def cut_manifest(path):
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text[: len(text) // 2])


def altered_manifest(path):
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"sample_count": 3', '"sample_count": 2'))


def manifest_of_another_shape(path):
    (path / "manifest.json").write_text("[1, 2]")


def newer_manifest(path):
    edit_manifest(path, format_version=99)


def shard_outside(path):
    [shard] = manifest(path)["shards"]
    edit_manifest(path, shards=[{**shard, "name": "../index.bin"}])


def too_many_samples(path):
    edit_manifest(path, sample_count=2**62)


def no_index(path):
    (path / "index.bin").unlink()


def short_index(path):
    (path / "index.bin").write_bytes((path / "index.bin").read_bytes()[:-1])


def long_checksums(path):
    (path / "checksums.bin").write_bytes((path / "checksums.bin").read_bytes() + b"\0")


def no_metadata(path):
    (path / "metadata.arrow").unlink()


def no_shard(path):
    (path / "shards" / "000000.bin").unlink()


def short_shard(path):
    shard = path / "shards" / "000000.bin"
    shard.write_bytes(shard.read_bytes()[:-1])


def shard_that_is_a_folder(path):
    no_shard(path)
    (path / "shards" / "000000.bin").mkdir()


@pytest.mark.parametrize(
    ("damage", "kind", "builtins", "file"),
    [
        (no_directory, errors.CacheNotFoundError, [ValueError, FileNotFoundError], "."),
        (no_manifest, errors.CacheNotFoundError, [ValueError, FileNotFoundError], "."),
        (empty_manifest, errors.ManifestError, [ValueError, RuntimeError], "manifest.json"),
        (cut_manifest, errors.ManifestError, [ValueError, RuntimeError], "manifest.json"),
        (altered_manifest, errors.CorruptCacheError, [ValueError], "manifest.json"),
        (manifest_of_another_shape, errors.ManifestError, [ValueError, RuntimeError], "manifest.json"),
        (shard_outside, errors.ManifestError, [ValueError, RuntimeError], "manifest.json"),
        (too_many_samples, errors.ManifestError, [ValueError, RuntimeError], "manifest.json"),
        (newer_manifest, errors.UnsupportedVersionError, [ValueError], "manifest.json"),
        (no_index, errors.CorruptCacheError, [ValueError], "index.bin"),
        (short_index, errors.CorruptCacheError, [ValueError], "index.bin"),
        (long_checksums, errors.CorruptCacheError, [ValueError], "checksums.bin"),
        (no_metadata, errors.CorruptCacheError, [ValueError], "metadata.arrow"),
        (no_shard, errors.CorruptCacheError, [ValueError], "shards/000000.bin"),
        (short_shard, errors.CorruptCacheError, [ValueError], "shards/000000.bin"),
        (shard_that_is_a_folder, errors.CorruptCacheError, [ValueError], "shards/000000.bin"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_every_defect_is_found_at_open_with_its_type_and_its_place(tmp_path, damage, kind, builtins, file):
    path = write(tmp_path, numbered(3))
    damage(path)
    with pytest.raises(kind) as caught:
        CachedDataset([path], reader_config=reader())
    error = caught.value
    assert type(error) is kind
    assert isinstance(error, errors.InvalidCacheError)
    assert all(isinstance(error, builtin) for builtin in builtins)
    assert Path(error.path) == path / file
    assert str(error).startswith(str(path))
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_a_newer_format_is_refused_with_both_versions(tmp_path):
    path = write(tmp_path, numbered(1))
    edit_manifest(path, format_version=99)
    with pytest.raises(errors.UnsupportedVersionError, match="99") as caught:
        CachedDataset([path], reader_config=reader())
    assert caught.value.found == 99
    assert caught.value.expected[0] == 2


def test_caches_with_other_columns_are_refused_naming_column_types_and_caches(tmp_path):
    first = write(tmp_path, [(b"", {"a": 1, "b": "x"})], "first")
    for name, metadata, column, found in [
        ("type", {"a": 1.5, "b": "x"}, "a", "float"),
        ("missing", {"a": 1}, "b", "missing"),
        ("extra", {"a": 1, "aa": 1, "b": "x"}, "aa", "int"),
    ]:
        other = write(tmp_path, [(b"", metadata)], name)
        with pytest.raises(errors.SchemaMismatchError) as caught:
            CachedDataset([first, other], reader_config=reader())
        error = caught.value
        assert (error.column, error.found) == (column, found)
        assert (Path(error.path), Path(error.first_path)) == (other, first)
        assert all(part in str(error) for part in (column, error.expected, error.found, str(first), str(other)))


def test_caches_may_differ_in_whether_a_column_has_nulls(tmp_path):
    paths = [write(tmp_path, [(b"", {"a": value})], str(value)) for value in (None, 1)]
    with pytest.raises(errors.SchemaMismatchError):
        read(*paths)  # a column of nulls alone is text
    nullable = write(tmp_path, [(b"", {"a": None}), (b"", {"a": 5})], "nullable")
    assert [sample.metadata["a"] for sample in read(nullable, paths[1])] == [None, 5, 1]


@pytest.mark.parametrize("spelling", ["same", "dots", "link", "relative"])
def test_one_cache_given_twice_is_refused_whatever_it_is_called(tmp_path, monkeypatch, spelling):
    path, other = write(tmp_path, numbered(1)), write(tmp_path, numbered(1), "other")
    (tmp_path / "link").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    again = {"same": path, "dots": other / ".." / "train", "link": tmp_path / "link", "relative": Path("train")}[
        spelling
    ]
    with pytest.raises(errors.DuplicateCacheError) as caught:
        CachedDataset([path, other, again], reader_config=reader())
    assert caught.value.positions == (0, 2)
    assert pickle.loads(pickle.dumps(caught.value)).positions == (0, 2)


@pytest.mark.parametrize("paths", ["a path", Path("a path"), 5, [5], None], ids=repr)
def test_paths_of_another_type_are_refused(paths):
    with pytest.raises(TypeError):
        CachedDataset(paths, reader_config=reader())


def test_at_least_one_cache_is_needed():
    with pytest.raises(errors.ConfigError, match="paths") as caught:
        CachedDataset([], reader_config=reader())
    assert isinstance(caught.value, ValueError)


def test_a_cache_opens_by_text_by_path_from_anywhere_and_through_a_link(tmp_path, monkeypatch):
    path = write(tmp_path / "Daten für 日本 📦", numbered(3))
    (tmp_path / "link").symlink_to(path)
    monkeypatch.chdir(path.parent)
    for spelling in (path, str(path), "train", Path("train"), tmp_path / "link", path / ".." / "train"):
        assert pairs(read(spelling)) == numbered(3)


def test_a_cache_may_be_moved_and_copied(tmp_path):
    path = write(tmp_path, numbered(3))
    moved = path.rename(tmp_path / "another name")
    copy = shutil.copytree(moved, tmp_path / "copy")
    assert pairs(read(moved, copy)) == numbered(3) * 2


def test_reading_changes_nothing_on_disk(tmp_path):
    path = write(tmp_path, numbered(300), max_shard_bytes=4000)
    entries = [tmp_path, path, *path.rglob("*")]
    before = [(entry, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in entries]
    for entry in entries:
        entry.chmod(0o555 if entry.is_dir() else 0o444)
    try:
        dataset = open_in_order(path, validate_cache=True)
        assert pairs(dataset) == numbered(300)
        dataset.set_samples_metadata(dataset.samples_metadata().with_columns(weight=pl.lit(2.0)))
        assert [tmp_path, path, *path.rglob("*")] == entries
        assert [(entry, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in entries] == before
    finally:
        for entry in entries:
            entry.chmod(0o755)


@pytest.mark.parametrize("release", ["0.2.0", "0.4.8"])
def test_caches_of_published_releases_open_validate_and_give_a_table(release):
    for path in sorted((PUBLISHED / release).glob("*-*")):
        dataset = open_in_order(path, validate_cache=True)
        assert len(list(dataset)) == len(dataset) == len(dataset.samples_metadata())


# Samples


@pytest.mark.parametrize("io", ["auto", "mmap", "pread"])
@pytest.mark.parametrize("verify", ["first", "always", "never"])
def test_every_engine_and_setting_delivers_the_same(cache, io, verify):
    dataset = open_in_order(cache, io=io, verify=verify)
    assert pairs(dataset) == pairs(dataset) == numbered(300)
    assert pairs(dataset[n] for n in range(300)) == numbered(300)


def test_samples_are_named_tuples_of_plain_objects(cache):
    sample = open_in_order(cache)[5]
    assert type(sample) is CachedSample
    assert CachedSample._fields == ("data", "metadata", "cache_id", "sample_id")
    assert [type(part) for part in sample] == [bytes, dict, int, int]
    assert sample == (b"payload 5", {"n": 5, "name": "sample 5"}, 0, 5)
    assert pickle.loads(pickle.dumps(sample)) == sample
    assert sample._replace(data=b"").data == b""


def test_changing_a_samples_metadata_changes_no_other_sample(cache):
    dataset = open_in_order(cache)
    dataset[0].metadata["n"] = "changed"
    assert dataset[0].metadata["n"] == 0


@pytest.mark.parametrize("index", [0, 299, -1, -300, np.int64(7), np.uint8(255), np.int16(-3), True], ids=repr)
def test_an_index_may_be_negative_or_from_numpy(cache, index):
    assert open_in_order(cache)[index].sample_id == int(index) % 300


@pytest.mark.parametrize("index", [300, -301, 2**64, -(2**64), 2**100], ids=repr)
def test_an_index_beyond_the_rows_is_an_index_error(cache, index):
    with pytest.raises(errors.RowIndexError) as caught:
        open_in_order(cache)[index]
    assert isinstance(caught.value, IndexError)
    assert (caught.value.index, caught.value.length) == (index, 300)


@pytest.mark.parametrize("index", [1.0, "0", None, slice(0, 1), (0,), np.float32(1)], ids=repr)
def test_an_index_of_another_type_is_a_type_error(cache, index):
    with pytest.raises(TypeError):
        open_in_order(cache)[index]


def test_reversed_and_sequence_protocols_end_where_the_rows_end(cache):
    assert [sample.sample_id for sample in reversed(open_in_order(cache))] == list(range(299, -1, -1))


def test_rows_of_several_caches_follow_each_other(tmp_path):
    paths = [write(tmp_path, numbered(count, count * 100), str(count)) for count in (3, 1, 5)]
    dataset = open_in_order(*paths)
    expected = [(cache, sample) for cache, count in enumerate((3, 1, 5)) for sample in range(count)]
    assert [(sample.cache_id, sample.sample_id) for sample in dataset] == expected
    assert [(dataset[n].cache_id, dataset[n].sample_id) for n in range(9)] == expected
    assert dataset[3].metadata["n"] == 100


def test_repr_names_size_caches_and_configuration(cache):
    assert repr(open_in_order(cache)).startswith("CachedDataset(300 samples in 1 caches, ReaderConfig(seed=7")


# Order


def test_epochs_advance_with_each_iterator_and_set_epoch_chooses_one(cache):
    dataset = CachedDataset([cache], reader_config=reader())
    epochs = [names(dataset) for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    dataset.set_epoch(1)
    assert [names(dataset), names(dataset)] == epochs[1:]
    again = CachedDataset([cache], reader_config=reader())
    assert [names(again) for _ in range(3)] == epochs
    assert names(CachedDataset([cache], reader_config=reader(seed=8))) != epochs[0]


@pytest.mark.parametrize("epoch", [-1, 2**32, "0", 1.5], ids=repr)
def test_an_epoch_that_does_not_exist_is_refused(cache, epoch):
    dataset = CachedDataset([cache], reader_config=reader())
    with pytest.raises((ValueError, TypeError, OverflowError)):
        dataset.set_epoch(epoch)
    assert len(names(dataset)) == 300


def test_draws_are_with_replacement_or_a_permutation_or_in_table_order(cache):
    drawn = names(CachedDataset([cache], reader_config=reader()))
    assert len(drawn) == 300
    assert 100 < len(set(drawn)) < 300
    shuffled = names(CachedDataset([cache], reader_config=reader(replacement=False)))
    assert sorted(shuffled) == list(range(300)) != shuffled
    assert names(open_in_order(cache)) == list(range(300))


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 1},
        {"num_workers": 13},
        {"prefetch_size": 1},
        {"prefetch_size": 1, "num_workers": 9},
        {"prefetch_size": 1000},
        {"io": "pread"},
        {"io": "pread", "num_workers": 2, "prefetch_size": 5},
        {"verify": "never"},
        {"validate_cache": True},
    ],
    ids=str,
)
def test_the_order_does_not_depend_on_how_it_is_read(cache, options):
    expected = CachedDataset([cache], reader_config=reader())
    found = CachedDataset([cache], reader_config=reader(**options))
    for _ in range(3):
        assert list(found) == list(expected)


def is_plausible(observed: np.ndarray, expected: np.ndarray) -> bool:
    """Chi-square within four standard deviations on both sides, by the approximation of Wilson and Hilferty."""
    freedom = len(observed) - 1
    statistic = float(((observed - expected) ** 2 / expected).sum())
    center, spread = 1 - 2 / (9 * freedom), (2 / (9 * freedom)) ** 0.5
    return abs((statistic / freedom) ** (1 / 3) - center) < 4 * spread


@pytest.mark.parametrize("weights", ["equal", "linear", "steep"])
def test_samples_come_as_often_as_their_weights_say(tmp_path, weights):
    count, epochs = 50, 400
    dataset = CachedDataset([write(tmp_path, numbered(count))], reader_config=reader(seed=11))
    row = np.arange(count)
    weight = {"equal": np.ones(count), "linear": row + 1.0, "steep": 1.1**row}[weights]
    dataset.set_samples_metadata(dataset.samples_metadata().with_columns(weight=pl.Series(weight)))
    drawn = Counter(name for _ in range(epochs) for name in names(dataset))
    observed = np.array([drawn[name] for name in range(count)])
    assert observed.sum() == count * epochs
    assert is_plausible(observed, weight / weight.sum() * count * epochs)
    if weights != "equal":
        assert not is_plausible(observed, np.full(count, float(epochs)))


def test_new_weights_count_from_the_next_iterator(tmp_path):
    dataset = CachedDataset([write(tmp_path, numbered(200))], reader_config=reader(prefetch_size=1))
    running = iter(dataset)
    expected = names(CachedDataset(dataset.cache_paths, reader_config=reader()))
    table = dataset.samples_metadata()
    dataset.set_samples_metadata(table.with_columns(weight=pl.when(pl.col("n") == 3).then(1e9).otherwise(1e-9)))
    assert names(running) == expected
    assert set(names(dataset)) == {3}


# Iterators and threads


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


def test_a_damaged_sample_is_reported_at_its_place_and_the_others_are_delivered(tmp_path):
    path = write(tmp_path, numbered(100))
    index = np.frombuffer((path / "index.bin").read_bytes(), dtype="<u8").reshape(-1, 3)
    shard = path / "shards" / "000000.bin"
    flip(shard, int(index[40, 1] + index[40, 2] - 1))
    for io in ("mmap", "pread"):
        samples, found = iter(open_in_order(path, io=io, num_workers=2)), []
        with pytest.raises(errors.CorruptRecordError) as caught:
            found.extend(iter(lambda samples=samples: next(samples), None))
        error = caught.value
        assert (Path(error.path), error.sample_id, error.offset) == (shard, 40, int(index[40, 1]))
        assert "sample 40" in str(error)
        assert error.expected != error.found
        assert own_threads() == []
        with pytest.raises(errors.CorruptRecordError):  # an early end is not to be taken for the end of the epoch
            next(samples)
        start = open_in_order(path, io=io).state_dict()
        samples.load_state_dict(start)
        assert next(samples).sample_id == 0
        samples.close()
        dataset = open_in_order(path, io=io)
        assert pairs(dataset[row] for row in range(100) if row != 40) == [*numbered(40), *numbered(59, 41)]
        with pytest.raises(errors.CorruptRecordError):
            dataset[40]
        with pytest.raises(errors.CorruptRecordError):
            dataset[40]
        assert pickle.loads(pickle.dumps(error)).sample_id == 40


def test_very_many_caches_open_and_read_under_a_small_limit_of_open_files(tmp_path):
    count = 300
    for number in range(3):
        write(tmp_path, numbered(5, number), str(number))
    paths = []
    for number in range(count):
        paths.append(tmp_path / f"cache {number}")
        shutil.copytree(tmp_path / str(number % 3), paths[-1], copy_function=os.link)
    child = start(
        """
        import json, resource, sys
        from pathlib import Path
        from tests.support import open_in_order
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        paths = sorted(Path(sys.argv[1]).glob("cache *"), key=lambda path: int(path.name.split()[1]))
        counts = []
        for io in ("mmap", "pread"):
            dataset = open_in_order(*paths, io=io)
            samples = list(dataset)
            assert [sample.metadata["n"] for sample in samples] == [c % 3 + n for c in range(300) for n in range(5)]
            counts.append(len(dataset.samples_metadata()))
        print(json.dumps(counts))
        """,
        tmp_path,
    )
    assert end_of(child) == [count * 5] * 2
