"""The samples metadata table: its shape, and how edited weights come back."""

from __future__ import annotations

import math
import pickle
import shutil

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from dataset_rt import CachedDataset, CacheWriteSuccess, errors, write_arrays
from tests.support import flip, numbered, open_in_order, reader, write

ROWS = [
    {"flag": True, "n": 1, "score": 0.5, "text": "a"},
    {"flag": False, "n": -(2**63), "score": math.nan, "text": ""},
    {"flag": True, "n": 2**63 - 1, "score": -math.inf, "text": "漢字 that is longer than a short view"},
]


@pytest.fixture
def dataset(tmp_path):
    """Two caches of 30 and 20 samples."""
    paths = [write(tmp_path, numbered(30), "a"), write(tmp_path, numbered(20, 100), "b")]
    return CachedDataset(paths, reader_config=reader())


def weights(dataset):
    return dataset.samples_metadata()["weight"].to_list()


# The table


def test_columns_are_identity_then_metadata_by_name_then_weight(tmp_path):
    dataset = open_in_order(write(tmp_path, [(b"", dict(reversed(row.items()))) for row in ROWS]))
    assert dataset.samples_metadata().schema == {
        "cache_id": pl.UInt64,
        "sample_id": pl.UInt64,
        "flag": pl.Boolean,
        "n": pl.Int64,
        "score": pl.Float64,
        "text": pl.String,
        "weight": pl.Float64,
    }
    expected = pl.DataFrame(ROWS).select("flag", "n", "score", "text")
    assert_frame_equal(dataset.samples_metadata().select(expected.columns), expected, check_exact=True)
    assert weights(dataset) == [1.0] * 3


def test_rows_are_in_cache_and_sample_order_whatever_the_order_of_reading(dataset):
    table = dataset.samples_metadata()
    assert table["cache_id"].to_list() == [0] * 30 + [1] * 20
    assert table["sample_id"].to_list() == [*range(30), *range(20)]
    assert table["n"].to_list() == [*range(30), *range(100, 120)]
    assert [dataset[row].metadata["name"] for row in range(50)] == table["name"].to_list()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A cache of 400,000 samples, whose table is read, checked and put together on several threads."""
    rows = pl.DataFrame({"n": range(400_000)}).with_columns(text=pl.format("sample number {}", "n"))
    written = write_arrays(
        "large", {"x": np.zeros(rows.height, np.uint8)}, tmp_path_factory.mktemp("large"), metadata=rows
    )
    assert isinstance(written, CacheWriteSuccess)
    return written.path


def test_every_part_of_a_large_table_is_in_its_place(large):
    table = open_in_order(large).samples_metadata()
    assert table["sample_id"].to_list() == table["n"].to_list() == list(range(400_000))
    assert table["text"].to_list() == [f"sample number {n}" for n in range(400_000)]
    assert table["cache_id"].unique().to_list() == [0]


def test_a_large_damaged_table_is_refused_by_its_checksum(tmp_path, large):
    copy = shutil.copytree(large, tmp_path / "copy")
    flip(copy / "metadata.arrow", (copy / "metadata.arrow").stat().st_size // 2)
    with pytest.raises(errors.CorruptCacheError, match="checksum of the file"):
        open_in_order(copy).samples_metadata()


def test_nulls_are_nulls_in_every_type(tmp_path):
    rows = [*ROWS, dict.fromkeys(ROWS[0]), *ROWS]
    table = open_in_order(write(tmp_path, [(b"", row) for row in rows])).samples_metadata()
    expected = pl.DataFrame(rows).select("flag", "n", "score", "text")
    assert_frame_equal(table.select(expected.columns), expected, check_exact=True)
    assert table.null_count().row(0) == (0, 0, 1, 1, 1, 1, 0)


def test_a_column_with_nulls_in_one_cache_only_is_whole(tmp_path):
    paths = [write(tmp_path, [(b"", {"n": n, "text": t})], str(n)) for n, t in ((1, "x"), (2, "y"))]
    paths.insert(1, write(tmp_path, [(b"", {"n": None, "text": "z"}), (b"", {"n": 3, "text": None})], "nullable"))
    table = open_in_order(*paths).samples_metadata()
    assert table["n"].to_list() == [1, None, 3, 2]
    assert table["text"].to_list() == ["x", "z", None, "y"]


def test_a_large_table_is_the_same_as_its_samples(tmp_path):
    count = 140_000
    path = write(tmp_path, ((b"", {"n": n, "text": f"row {n}"}) for n in range(count)), prefetch_size=8192)
    table = open_in_order(path).samples_metadata()
    assert table["n"].equals(pl.Series("n", range(count), dtype=pl.Int64))
    assert table["text"].equals(pl.Series("text", [f"row {n}" for n in range(count)]))
    assert table["sample_id"].equals(pl.Series("sample_id", range(count), dtype=pl.UInt64))


def test_strings_arrive_as_views_and_the_stream_is_read_by_other_libraries(dataset):
    stream = dataset._native.samples_metadata()
    assert len(stream) == 50
    table = pa.table(stream)
    assert table.schema.field("name").type == pa.string_view()
    assert table["n"].to_pylist() == [*range(30), *range(100, 120)]
    assert pa.table(stream).equals(table)  # a table may be taken more than once


def test_the_table_outlives_the_dataset_and_its_files(tmp_path):
    path = write(tmp_path, numbered(1000))
    table = open_in_order(path).samples_metadata()
    for file in [*path.rglob("*.*")]:
        file.unlink()
    assert table["name"].to_list() == [f"sample {n}" for n in range(1000)]


def test_changing_the_frame_changes_nothing_until_it_is_set(dataset):
    table = dataset.samples_metadata()
    table[0, "weight"] = 5.0
    table[0, "n"] = 77
    assert weights(dataset) == [1.0] * 50
    assert dataset[0].metadata["n"] == dataset.samples_metadata()["n"][0] == 0


# Setting weights


def test_weights_come_back_as_they_were_set(dataset):
    chosen = [1.0 + row / 7 for row in range(50)]
    dataset.set_samples_metadata(dataset.samples_metadata().with_columns(weight=pl.Series(chosen)))
    assert weights(dataset) == chosen
    assert_frame_equal(
        dataset.samples_metadata().drop("weight"),
        CachedDataset(dataset.cache_paths, reader_config=reader()).samples_metadata().drop("weight"),
    )


@given(order=st.permutations(range(50)))
@settings(max_examples=25, deadline=None)
def test_rows_may_come_in_any_order(shared, order):
    table = shared.samples_metadata().with_columns(weight=pl.Series([2.0 + row for row in range(50)]))
    shared.set_samples_metadata(table[list(order)])
    assert weights(shared) == [2.0 + row for row in range(50)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """As `dataset`, for all examples of a property."""
    base = tmp_path_factory.mktemp("shared")
    paths = [write(base, numbered(30), "a"), write(base, numbered(20, 100), "b")]
    return CachedDataset(paths, reader_config=reader())


def test_equal_weights_whatever_their_value_draw_as_no_weights(dataset):
    expected = [sample.sample_id for sample in dataset]
    dataset.set_samples_metadata(dataset.samples_metadata().with_columns(weight=pl.lit(0.25)))
    dataset.set_epoch(0)
    assert [sample.sample_id for sample in dataset] == expected


def test_only_the_ratio_of_weights_counts(dataset):
    def drawn(factor):
        dataset.set_samples_metadata(
            dataset.samples_metadata().with_columns(weight=pl.Series([(1.0 + row) * factor for row in range(50)]))
        )
        dataset.set_epoch(0)
        return [(sample.cache_id, sample.sample_id) for sample in dataset]

    assert drawn(1.0) == drawn(2.0**40) == drawn(2.0**-40)


@pytest.mark.parametrize("weight", [5e-324, 1e-300, 1e300, 1.7976931348623157e308], ids=repr)
def test_extreme_weights_are_weights(dataset, weight):
    table = dataset.samples_metadata().with_columns(weight=pl.when(pl.col("n") == 3).then(weight).otherwise(1.0))
    dataset.set_samples_metadata(table)
    assert weights(dataset)[3] == weight
    drawn = {sample.metadata["n"] for sample in dataset}
    assert (drawn == {3}) is (weight > 1)
    assert (3 in drawn) is (weight > 1)


def test_frames_may_have_more_columns_and_other_types(dataset):
    table = dataset.samples_metadata().with_columns(
        extra=pl.lit([1, 2]), category=pl.lit("x").cast(pl.Categorical), when=pl.lit(None, dtype=pl.Datetime)
    )
    chosen = [row + 1 for row in range(50)]
    for identity in (pl.UInt64, pl.UInt32, pl.UInt8, pl.Int64, pl.Int32, pl.Int16, pl.Int8):
        for kind in (pl.Float64, pl.Float32, pl.Int64, pl.Int32, pl.UInt64, pl.UInt8):
            dataset.set_samples_metadata(
                table.with_columns(pl.col("cache_id", "sample_id").cast(identity), weight=pl.Series(chosen, dtype=kind))
            )
            assert weights(dataset) == chosen


def test_frames_of_many_chunks_are_taken(dataset):
    table = dataset.samples_metadata().with_columns(weight=pl.Series([row + 0.5 for row in range(50)]))
    dataset.set_samples_metadata(pl.concat([table[row] for row in reversed(range(50))], rechunk=False))
    assert weights(dataset) == [row + 0.5 for row in range(50)]


def test_metadata_columns_need_not_come_back(dataset):
    table = dataset.samples_metadata().select(pl.col("weight") + pl.col("sample_id"), "sample_id", "cache_id")
    dataset.set_samples_metadata(table)
    assert weights(dataset) == [1.0 + n for n in (*range(30), *range(20))]


def test_tables_of_other_libraries_are_taken(dataset):
    columns = {
        "sample_id": pa.array([*range(20), *range(30)], pa.int32()),
        "cache_id": pa.chunked_array([pa.array([1] * 20, pa.uint8()), pa.array([0] * 30, pa.uint8())]),
        "weight": pa.array(np.arange(1, 51), pa.float64()),
    }
    dataset._native.set_samples_metadata([pa.table(columns)])
    assert weights(dataset) == [*range(21, 51), *range(1, 21)]


BREAKS = {
    "missing": (
        lambda table: table.filter(pl.col("n") != 101),
        ["missing", "(cache_id 1, sample_id 1)"],
        [31],
    ),
    "empty": (lambda table: table[:0], ["missing", "(cache_id 0, sample_id 0)", "40 more"], list(range(10))),
    "repeated": (
        lambda table: pl.concat([table, table[7:9]]),
        ["twice", "(cache_id 0, sample_id 7)", "(cache_id 0, sample_id 8)"],
        [50, 51],
    ),
    "replaced": (lambda table: pl.concat([table[:-1], table[:1]]), ["twice", "(cache_id 0, sample_id 0)"], [49]),
    "unknown sample": (
        lambda table: table.with_columns(sample_id=pl.when(pl.col("n") == 119).then(99).otherwise("sample_id")),
        ["does not have", "(cache_id 1, sample_id 99)"],
        [49],
    ),
    "unknown cache": (
        lambda table: table.with_columns(cache_id=pl.when(pl.col("n") == 5).then(9).otherwise("cache_id")),
        ["does not have", "(cache_id 9, sample_id 5)"],
        [5],
    ),
    "negative": (
        lambda table: table.with_columns(
            sample_id=pl.when(pl.col("n") == 5).then(-1).otherwise("sample_id").cast(pl.Int64)
        ),
        ["does not have"],
        [5],
    ),
    "zero": (
        lambda table: table.with_columns(weight=pl.when(pl.col("n").is_in([2, 101])).then(0.0).otherwise("weight")),
        ["positive", "(cache_id 0, sample_id 2) has 0", "(cache_id 1, sample_id 1) has 0"],
        [2, 31],
    ),
    "below zero": (
        lambda table: table.with_columns(weight=pl.when(pl.col("n") == 2).then(-1.5).otherwise("weight")),
        ["positive", "(cache_id 0, sample_id 2) has -1.5"],
        [2],
    ),
    "nan": (
        lambda table: table.with_columns(weight=pl.when(pl.col("n") == 2).then(math.nan).otherwise("weight")),
        ["(cache_id 0, sample_id 2) has NaN"],
        [2],
    ),
    "infinite": (
        lambda table: table.with_columns(weight=pl.when(pl.col("n") == 2).then(math.inf).otherwise("weight")),
        ["(cache_id 0, sample_id 2) has inf"],
        [2],
    ),
    "null weight": (
        lambda table: table.with_columns(weight=pl.when(pl.col("n") == 2).then(None).otherwise("weight")),
        ["`weight`", "null"],
        [2],
    ),
    "null sample": (
        lambda table: table.with_columns(sample_id=pl.when(pl.col("n") == 2).then(None).otherwise("sample_id")),
        ["`sample_id`", "null"],
        [2],
    ),
    "no weight column": (lambda table: table.drop("weight"), ["`weight` is missing"], []),
    "no identity column": (lambda table: table.drop("cache_id"), ["`cache_id` is missing"], []),
    "no columns": (lambda table: table.select(pl.col("n")), ["is missing"], []),
    "text weight": (lambda table: table.with_columns(weight=pl.lit("x")), ["`weight`", "number"], []),
    "float identity": (
        lambda table: table.with_columns(pl.col("sample_id").cast(pl.Float64)),
        ["`sample_id`", "integer"],
        [],
    ),
    "boolean weight": (lambda table: table.with_columns(weight=pl.lit(True)), ["`weight`", "number"], []),
}


@pytest.mark.parametrize("fault", BREAKS)
def test_a_wrong_table_is_refused_naming_its_rows_and_nothing_changes(dataset, fault):
    change, parts, rows = BREAKS[fault]
    kept = [3.0 + row for row in range(50)]
    dataset.set_samples_metadata(dataset.samples_metadata().with_columns(weight=pl.Series(kept)))
    with pytest.raises(errors.WeightsError) as caught:
        dataset.set_samples_metadata(change(dataset.samples_metadata()))
    error = caught.value
    assert isinstance(error, ValueError)
    assert all(part in str(error) for part in parts), str(error)
    assert list(error.rows) == rows
    assert pickle.loads(pickle.dumps(error)).rows == error.rows
    assert weights(dataset) == kept


def test_a_weight_that_becomes_infinite_on_the_way_is_refused(dataset):
    with pytest.raises(errors.WeightsError, match="inf"):
        dataset.set_samples_metadata(dataset.samples_metadata().with_columns(weight=pl.lit(math.inf, dtype=pl.Float32)))


@pytest.mark.parametrize("frame", [None, 5, {"weight": [1.0]}, [(0, 0, 1.0)]], ids=repr)
def test_what_is_no_frame_is_a_type_error(dataset, frame):
    with pytest.raises(TypeError, match="expected a Polars DataFrame, found"):
        dataset.set_samples_metadata(frame)
    with pytest.raises(TypeError, match="expected a Polars DataFrame or another Arrow table"):
        dataset._native.set_samples_metadata([frame])


def test_old_names_work_and_warn(dataset):
    with pytest.warns(DeprecationWarning, match="samples_metadata"):
        table = dataset.weight_table()
    assert_frame_equal(table, dataset.samples_metadata())
    with pytest.warns(DeprecationWarning, match="set_samples_metadata") as caught:
        dataset.set_weight_table(table.with_columns(weight=pl.lit(1.0) + pl.col("sample_id")))
    assert caught[0].filename == __file__
    assert weights(dataset)[:3] == [1.0, 2.0, 3.0]
