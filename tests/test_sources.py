"""Writing sources: what they may be, what the results say, and which caches are used again."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from dataset_rt import (
    CachedDataset,
    CacheInput,
    CacheSource,
    CacheSourcesDatasetError,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteSuccess,
    errors,
    write_cache,
)
from tests.support import (
    PATIENCE,
    Source,
    flip,
    manifest,
    numbered,
    pairs,
    read,
    reader,
    refuse,
    write,
    writer,
)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../up", "a/b", "a\\b", "/etc", "C:", ".hidden", "end.", "end ", " start"),
        *("nul", "NUL.txt", "com1", "LPT9.bin", "a\0b", "a\nb", "x" * 201, "ü" * 101, "a*b", "a?"),
    ],
    ids=lambda name: repr(name)[:12],
)
def test_names_that_are_no_directory_name_everywhere_are_refused(tmp_path, name):
    message = refuse(tmp_path, numbered(1), name)
    assert "name" in message


@pytest.mark.parametrize(
    "name", ["train.v2", "日本語", "a b", "x-1_2", "x" * 200, "console"], ids=lambda name: name[:8]
)
def test_other_names_are_directory_names(tmp_path, name):
    assert write(tmp_path, numbered(1), name).name == name


def test_sources_without_a_usable_name_are_called_by_their_position(tmp_path):
    class Broken:
        @property
        def name(self):
            raise ValueError("no name today")

    given: list[Any] = [
        Source("good", numbered(1)),
        5,
        SimpleNamespace(name=3),
        Broken(),
        SimpleNamespace(name="no iterator"),
    ]
    results = write_cache(given, tmp_path, writer_config=writer())
    assert [result.source_name for result in results] == ["good", "source[1]", "source[2]", "source[3]", "no iterator"]
    assert isinstance(results[0], CacheWriteSuccess)
    for result, part in zip(
        results[1:], ["name", "expected str", "ValueError: no name today", "__iter__"], strict=True
    ):
        assert isinstance(result, CacheWriteError)
        assert part in result.message


def test_a_source_without_samples_is_refused(tmp_path):
    assert "no samples" in refuse(tmp_path, [])


class MyError(Exception):
    pass


@pytest.mark.parametrize("row", [0, 1, 63, 64, 1000])
def test_an_exception_of_a_source_is_told_with_type_text_and_row(tmp_path, row):
    def items():
        yield from numbered(row)
        raise MyError("the disk of the source is gone")

    results = write_cache(
        [Source("before", numbered(3)), Source("bad", items()), Source("after", numbered(3))],
        tmp_path,
        writer_config=writer(),
    )
    assert [type(result) for result in results] == [CacheWriteSuccess, CacheWriteError, CacheWriteSuccess]
    assert results[1] == ("bad", f"sample {row}: MyError: the disk of the source is gone")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["after", "before"]
    assert len(read(tmp_path / "before", tmp_path / "after")) == 6


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exceptions_that_are_nobodys_to_catch_reach_the_caller_and_earlier_caches_stay(tmp_path, kind):
    def items():
        yield from numbered(100)
        raise raised

    raised = kind(3)
    with pytest.raises(kind) as caught:
        write_cache([Source("first", numbered(3)), Source("bad", items())], tmp_path, writer_config=writer())
    assert caught.value is raised
    assert [entry.name for entry in tmp_path.iterdir()] == ["first"]


@pytest.mark.parametrize("item", [b"bytes", 5, None, (b"",), (b"", {}, 1)], ids=repr)
def test_items_that_are_no_cache_input_are_refused_with_their_row(tmp_path, item):
    class Odd:
        name = "train"

        def __iter__(self):
            yield CacheInput(b"", {})
            yield item

    [result] = write_cache(Odd(), tmp_path, writer_config=writer())
    assert isinstance(result, CacheWriteError)
    assert result.message.startswith("sample 1: expected CacheInput")


def test_items_may_be_tuples_named_tuples_or_objects_with_both_attributes(tmp_path):
    class Odd(Source):
        def __iter__(self) -> Any:
            yield (b"tuple", {"a": 1})
            yield CacheInput(b"named", {"a": 2})
            yield SimpleNamespace(data=b"object", metadata={"a": 3})

    [result] = write_cache(Odd(), tmp_path, writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result
    assert pairs(read(result.path)) == [(b"tuple", {"a": 1}), (b"named", {"a": 2}), (b"object", {"a": 3})]


def test_sources_come_alone_or_in_a_list_or_a_tuple_and_may_be_any_class(tmp_path):
    class Listed(list):
        name = "listed"

    class Split(NamedTuple):
        name: str
        count: int

        def __iter__(self) -> Any:
            return (CacheInput(b"", {}) for _ in range(self.count))

    class Assigned(CacheSource):
        def __init__(self):
            self.name = "assigned"  # pyrefly: ignore[read-only] (works all the same)

        def __iter__(self):
            return iter([CacheInput(b"", {})])

    class Lazy(CacheSource):
        name = "lazy"

        def __iter__(self):
            return iter([CacheInput(b"", {})])

    class Generated:
        name = "generated"

        def __init__(self):
            self.items = (CacheInput(b"", {}) for _ in range(2))

        def __iter__(self):
            return self.items

    one = write_cache(Source("one", numbered(1)), tmp_path, writer_config=writer())
    assert one == [("one", tmp_path / "one")]
    assigned = write_cache(Assigned(), tmp_path, writer_config=writer())
    assert assigned == [("assigned", tmp_path / "assigned")]
    pair = write_cache((Lazy(), Generated()), str(tmp_path), writer_config=writer())
    assert pair == [("lazy", tmp_path / "lazy"), ("generated", tmp_path / "generated")]
    listed = write_cache(Listed([CacheInput(b"", {})] * 2), tmp_path, writer_config=writer())
    assert listed == [("listed", tmp_path / "listed")]
    split = write_cache([Split("split", 3)], tmp_path, writer_config=writer())
    assert split == [("split", tmp_path / "split")]
    split_alone = write_cache(Split("alone", 3), tmp_path, writer_config=writer())
    assert split_alone == [("alone", tmp_path / "alone")]
    assert [len(read(tmp_path / name)) for name in ("listed", "split", "alone")] == [2, 3, 3]
    assert write_cache([], tmp_path, writer_config=writer()) == []


def test_results_have_the_shapes_of_the_published_release(tmp_path):
    assert CacheWriteSuccess._fields == ("source_name", "path")
    assert CacheWriteError._fields == ("source_name", "message")
    assert CacheSourcesDatasetSuccess._fields == ("dataset", "results")
    assert CacheSourcesDatasetError._fields == ("results", "message")
    assert CacheInput._fields == ("data", "metadata")
    good, bad = write_cache([Source("a", numbered(1)), Source("b", [])], tmp_path, writer_config=writer())
    match good:
        case CacheWriteSuccess(source_name, path):
            assert (source_name, path) == ("a", tmp_path / "a")
            assert isinstance(path, Path)
        case _:
            pytest.fail(str(good))
    match bad:
        case CacheWriteError(source_name, message):
            assert source_name == "b"
            assert "no samples" in message
        case _:
            pytest.fail(str(bad))


def test_two_sources_of_one_name_raise_before_anything_is_written(tmp_path):
    twice = [Source("a", numbered(1)), Source("b", numbered(1)), Source("a", numbered(1))]
    with pytest.raises(errors.SourceNameError, match='"a"') as caught:
        write_cache(twice, tmp_path / "base", writer_config=writer())
    assert isinstance(caught.value, ValueError)
    assert caught.value.name == "a"
    assert not (tmp_path / "base").exists()
    assert [source.passes for source in twice] == [[], [], []]


def test_an_existing_cache_is_an_error_and_stays_as_it_is(tmp_path):
    path = write(tmp_path, numbered(3))
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    again = Source("train", numbered(5))
    results = write_cache([again, Source("other", numbered(1))], tmp_path, writer_config=writer())
    assert isinstance(results[0], CacheWriteError)
    assert str(path) in results[0].message
    assert "exists" in results[0].message
    assert isinstance(results[1], CacheWriteSuccess)
    assert again.passes == []
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


@pytest.mark.parametrize("kind", ["file", "empty directory", "dangling link"])
def test_whatever_has_the_name_of_a_cache_is_never_replaced(tmp_path, kind):
    place = tmp_path / "train"
    match kind:
        case "file":
            place.write_text("mine")
        case "empty directory":
            place.mkdir()
        case _:
            place.symlink_to("nowhere")
    assert "exists" in refuse(tmp_path, numbered(1))
    with pytest.raises(errors.InvalidCacheError):
        from_sources(Source("train", numbered(1)), tmp_path)
    assert place.is_symlink() or place.exists()


# Reuse


def from_sources(given, base, **options):
    return CachedDataset.from_cache_sources(given, base, reader_config=reader(), writer_config=writer(**options))


def test_reuse_opens_what_exists_and_writes_what_is_missing(tmp_path):
    path = write(tmp_path, numbered(3), "old")
    old, new = Source("old", numbered(5)), Source("new", numbered(4))
    result = from_sources([old, new], tmp_path)
    assert isinstance(result, CacheSourcesDatasetSuccess)
    assert result.results == [("old", path), ("new", tmp_path / "new")]
    assert result.dataset.cache_paths == [path, tmp_path / "new"]
    assert len(result.dataset) == 7
    assert (old.passes, new.passes) == ([], [4])


def test_a_failing_source_leaves_the_dataset_over_the_others_and_a_word_in_the_log(tmp_path, caplog):
    result = from_sources([Source("empty", []), Source("good", numbered(2))], tmp_path)
    assert isinstance(result, CacheSourcesDatasetSuccess)
    assert [type(outcome) for outcome in result.results] == [CacheWriteError, CacheWriteSuccess]
    assert len(result.dataset) == 2
    [record] = caplog.records
    assert (record.name, record.levelname) == ("dataset_rt", "WARNING")
    assert record.getMessage().startswith("1 of 2 sources gave no cache and are not in the dataset: empty: ")


def test_without_any_cache_there_is_an_error_result_with_every_reason(tmp_path):
    result = from_sources([Source("a", []), Source("b", [("text", {})])], tmp_path)
    assert isinstance(result, CacheSourcesDatasetError)
    assert [outcome.source_name for outcome in result.results] == ["a", "b"]
    assert "a: " in result.message
    assert "b: sample 0: " in result.message
    with pytest.raises(AttributeError, match="there is no dataset: no caches were written: a: "):
        _ = result.dataset
    nothing = from_sources([], tmp_path)
    assert isinstance(nothing, CacheSourcesDatasetError)
    assert nothing.results == []


@pytest.mark.parametrize("version", ["2026-11", 7], ids=repr)
def test_reuse_needs_the_version_that_was_stored(tmp_path, version):
    path = write(tmp_path, numbered(1), version=version)
    assert manifest(path)["source_version"] == str(version)
    assert isinstance(from_sources(Source("train", [], version), tmp_path), CacheSourcesDatasetSuccess)
    assert isinstance(from_sources(Source("train", []), tmp_path), CacheSourcesDatasetSuccess)
    with pytest.raises(errors.SourceVersionError) as caught:
        from_sources(Source("train", [], "next"), tmp_path)
    assert (caught.value.expected, caught.value.found) == ("next", str(version))
    assert '"next"' in str(caught.value)
    assert f'"{version}"' in str(caught.value)


def test_a_version_is_refused_where_none_was_stored(tmp_path):
    write(tmp_path, numbered(1))
    with pytest.raises(errors.SourceVersionError) as caught:
        from_sources(Source("train", [], 1), tmp_path)
    assert (caught.value.expected, caught.value.found) == ("1", "none")


@pytest.mark.parametrize("version", [True, 1.5, b"1", ()], ids=repr)
def test_other_versions_are_refused(tmp_path, version):
    assert "version" in refuse(tmp_path, numbered(1), version=version)


def test_an_existing_cache_that_is_damaged_raises_after_the_other_sources_are_done(tmp_path):
    path = write(tmp_path, numbered(3), "bad")
    (path / "manifest.json").write_text("{}")
    before, after = Source("before", numbered(2)), Source("after", numbered(2))
    with pytest.raises(errors.ManifestError) as caught:
        from_sources([before, Source("bad", numbered(3)), after], tmp_path)
    assert caught.value.path == path / "manifest.json"
    assert (before.passes, after.passes) == ([2], [2])
    assert (path / "manifest.json").read_text() == "{}"
    assert (tmp_path / "after" / "manifest.json").exists()


def test_validate_cache_reads_a_reused_cache_in_full(tmp_path):
    path = write(tmp_path, numbered(3))
    flip(path / "shards" / "000000.bin", 20)
    result = from_sources(Source("train", []), tmp_path)
    assert isinstance(result, CacheSourcesDatasetSuccess)
    with pytest.raises(errors.CorruptRecordError):
        list(result.dataset)
    with pytest.raises(errors.CorruptCacheError) as caught:
        from_sources(Source("train", []), tmp_path, validate_cache=True)
    assert caught.value.path == path / "shards" / "000000.bin"


def test_reuse_waits_for_a_writer_in_another_thread(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def slow():
        begun.set()
        assert go_on.wait(PATIENCE)
        yield from numbered(3)

    results: list[Any] = []
    first = threading.Thread(target=lambda: results.append(write(tmp_path, slow())))
    first.start()
    assert begun.wait(PATIENCE)
    late = Source("train", numbered(5))
    second = threading.Thread(target=lambda: results.append(from_sources(late, tmp_path)))
    second.start()
    go_on.set()
    first.join()
    second.join()
    assert results[0] == tmp_path / "train"
    assert len(results[1].dataset) == 3
    assert late.passes == []
