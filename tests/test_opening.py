"""Opening: which defects are found, which caches go together, and where they may lie."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import polars as pl
import pytest

from dataset_rt import CachedDataset, errors
from tests.support import edit_manifest, manifest, numbered, open_in_order, pairs, read, reader, start, write
from tests.support import finish as end_of

PUBLISHED = Path(__file__).parent / "data" / "published"


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
