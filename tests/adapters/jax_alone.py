"""Batches in JAX, on four devices of the CPU.

`test_jax.py` runs this file in a process of its own: where JAX has started its threads, nothing may fork any more, but
other tests do.
"""

from __future__ import annotations

import gc
import itertools
import json
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import polars as pl
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dataset_rt import CachedBatch, errors
from dataset_rt.adapters import jax as adapter
from dataset_rt.batch import RaggedParts
from tests.batch_support import dense_cache, fields, plain_order, typed_cache
from tests.order_support import opened, order, payload, written
from tests.support import flip, write

ROWS = [7, 0, 3, 3, -1]
TYPES = ["bool", "int8", "uint16", "int32", "uint32", "float16", "float32", "complex64", "bfloat16"]
TYPES += ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"]
TYPES += ["float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.fixture(scope="module")
def typed_path(tmp_path_factory):
    return typed_cache(tmp_path_factory.mktemp("typed"), 50)


@pytest.fixture(scope="module")
def typed(typed_path):
    return plain_order(typed_path)


@pytest.fixture(scope="module")
def dense_path(tmp_path_factory):
    return dense_cache(tmp_path_factory.mktemp("dense"), 50)


def address(array: jax.Array) -> int:
    return array.addressable_data(0).unsafe_buffer_pointer()


def rows_of(arrays) -> list[int]:
    """Return the row numbers of a delivered batch, checking that its payloads agree."""
    numbers = arrays["n"].tolist()
    assert np.array_equal(np.asarray(arrays["x"]), np.repeat(np.array(numbers, np.int32)[:, None], 256, axis=1))
    return numbers


def samples(dataset, epoch=0) -> list[int]:
    return [sample for _, sample in order(dataset, epoch)]


def test_four_devices_are_there():
    assert jax.device_count() == jax.local_device_count() == 4


# One batch


def test_arrays_have_the_contents_of_the_batch_by_name(typed):
    arrays = typed.gather(ROWS).to_jax()
    assert list(arrays) == ["boxes", "image", "jpeg", "row", "is_even", "label", "score"]
    for at, n in enumerate([7, 0, 3, 3, 49]):
        row = fields(n)
        assert np.array_equal(np.asarray(arrays["image"][at]), row["image"])
        assert np.array_equal(np.asarray(arrays["row"][at]), row["row"])
        assert np.array_equal(np.asarray(arrays["boxes"].row(at)), row["boxes"])
        assert np.asarray(arrays["jpeg"].row(at)).tobytes() == row["jpeg"]
        assert (int(arrays["label"][at]), float(arrays["score"][at])) == (n % 10, n / 8)
        assert bool(arrays["is_even"][at]) == (n % 2 == 0)
    types = [str(arrays[name].dtype) for name in ("image", "row", "is_even", "label", "score")]
    assert types == ["uint8", "bfloat16", "bool", "int32", "float32"]
    assert all(array.devices() == {jax.devices()[0]} for array in jax.tree.leaves(arrays))


@pytest.mark.parametrize("name", TYPES)
def test_arrays_have_the_bits_of_every_type_in_the_memory_of_the_batch(tmp_path, name):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    raw = np.random.default_rng(1).integers(0, 2 if name == "bool" else 256, (5, 3, 4 * dtype.itemsize), np.uint8)
    batch = plain_order(write(tmp_path, [({"x": values.view(dtype)}, {}) for values in raw])).gather(slice(None))
    array = batch.to_jax()["x"]
    assert (array.dtype, array.shape) == (dtype, (5, 3, 4))
    assert np.array_equal(np.asarray(array).view(np.uint8), raw)
    assert address(array) == batch["x"].ctypes.data


def test_plain_payloads_are_values_and_offsets(tmp_path):
    data = plain_order(written(tmp_path, 9)).gather(slice(None)).to_jax()["data"]
    assert isinstance(data, RaggedParts)
    assert [np.asarray(data.row(n)).tobytes() for n in range(9)] == [payload(n) for n in range(9)]


def test_64_bit_numbers_become_32_bit_ones_and_never_other_integers(tmp_path):
    rows = [({"x": np.array([n, 2**31 - 1 + n], np.int64), "y": np.full(2, n / 3)}, {}) for n in range(2)]
    dataset = plain_order(write(tmp_path, rows))
    assert dataset.gather([0]).to_jax()["x"].tolist() == [[0, 2**31 - 1]]
    assert dataset.gather([1]).to_jax(["y"])["y"].dtype == np.float32
    with pytest.raises(OverflowError, match=r"'x' at \(1, 1\): 2147483648 does not fit into int32.*jax_enable_x64"):
        dataset.gather([0, 1]).to_jax()
    with pytest.raises(OverflowError, match=r"x.*2147483648"):
        list(adapter.batches(opened(dataset.cache_paths, replacement=False), 4, remainder="pad"))
    with jax.enable_x64(True):
        arrays = dataset.gather([0, 1]).to_jax()
        assert arrays["x"].dtype == np.int64
        assert arrays["x"].tolist() == [[0, 2**31 - 1], [1, 2**31]]
        assert arrays["y"].tolist() == [[0.0, 0.0], [1 / 3, 1 / 3]]


def test_names_choose_and_what_is_no_array_is_refused(typed):
    batch = typed.gather([0, 1])
    assert list(batch.to_jax(["score", "image"])) == ["score", "image"]
    with pytest.raises(errors.ConfigError, match=r"column 'name'.*found texts"):
        batch.to_jax(["name"])
    with pytest.raises(errors.ConfigError, match="no payload field or metadata column 'x'"):
        batch.to_jax(["x"])


def test_a_batch_of_one_dense_field_is_an_array_for_dlpack(dense_path):
    batch = plain_order(dense_path).gather([3, 1])
    array = jnp.from_dlpack(batch)
    assert array[:, 7].tolist() == [3, 1]
    assert address(array) == batch["x"].ctypes.data


def test_a_function_that_reuses_its_arguments_does_not_write_to_the_batch(dense_path):
    batch = plain_order(dense_path).gather([3, 1])
    doubled = jax.jit(lambda x: x * 2, donate_argnums=0)(batch.to_jax()["x"])
    assert doubled[:, 0].tolist() == [6, 2]
    assert batch["x"][:, 0].tolist() == [3, 1]


def test_arrays_and_views_of_them_are_never_overwritten_by_later_batches(dense_path):
    kept = []
    for number, batch in enumerate(opened(dense_path, replacement=False).batches(4, epochs=50)):
        if number % 8 == 0:
            held = batch.to_jax()["x"] if number % 16 else jnp.from_dlpack(batch)
            assert address(held) == batch["x"].ctypes.data
            kept.append((batch["n"].tolist(), held))
    for numbers, held in kept:
        assert [set(row) for row in held.tolist()] == [{n} for n in numbers]
    assert len(kept) > 80


def test_memory_is_used_again_once_the_last_array_is_gone(dense_path):
    dataset = plain_order(dense_path, num_workers=1)
    array = dataset.gather([1, 2]).to_jax(["x"])["x"]
    place = address(array)
    others = [dataset.gather([3, 4]) for _ in range(3)]
    assert place not in {batch["x"].ctypes.data for batch in others}
    del array, others
    gc.collect()  # when JAX lets go of memory that is not its own
    others = [dataset.gather([3, 4]) for _ in range(4)]
    assert place in {batch["x"].ctypes.data for batch in others}


# Batches over all devices


@pytest.mark.parametrize("prefetch", [0, 2, 100])
@pytest.mark.parametrize("options", [{}, {"replacement": False}, {"weighted": True}], ids=str)
def test_batches_follow_the_order_and_are_cut_over_the_devices(dense_path, options, prefetch):
    dataset = opened(dense_path, **options)
    for epoch in range(2):
        delivered = list(adapter.batches(dataset, 8, prefetch=prefetch))
        assert [n for arrays in delivered for n in rows_of(arrays)] == samples(opened(dense_path, **options), epoch)[
            :48
        ]
        for arrays in delivered:
            shards = sorted(arrays["x"].addressable_shards, key=lambda shard: shard.index[0].start)
            assert [shard.device for shard in shards] == jax.devices()
            assert [shard.data.shape for shard in shards] == [(2, 256)] * 4


def test_sharded_arrays_are_never_overwritten_by_later_batches(dense_path):
    with adapter.batches(opened(dense_path), 8, epochs=None) as batches:
        kept = list(itertools.islice(batches, 0, 400, 9))
    assert len({tuple(map(tuple, arrays["n"].reshape(-1, 1).tolist())) for arrays in kept}) > 40
    for arrays in kept:
        assert len(rows_of(arrays)) == 8


def test_a_short_step_is_dropped_or_padded_with_a_mask(dense_path):
    dataset = opened(dense_path, replacement=False)
    padded = list(adapter.batches(dataset, 8, remainder="pad"))
    assert len(padded) == 7
    numbers = [n for arrays in padded for n in rows_of(arrays)]
    valid = [bool(is_valid) for arrays in padded for is_valid in arrays["valid"]]
    assert valid == [True] * 50 + [False] * 6
    assert numbers[:50] == samples(dataset, 0)
    assert numbers[50:] == numbers[:6]
    assert {arrays["x"].shape for arrays in padded} == {(8, 256)}


@pytest.mark.filterwarnings("ignore::dataset_rt.errors.CorruptSampleWarning")
def test_damaged_samples_that_are_left_out_are_zeros_under_a_mask(tmp_path):
    path = dense_cache(tmp_path, 24)
    flip(path / "shards" / "000000.bin", -1)
    config = {"shuffle": False, "on_corrupt": "skip"}
    delivered = list(adapter.batches(opened(path, **config), 8))
    assert [bool(is_valid) for arrays in delivered for is_valid in arrays["valid"]] == [True] * 23 + [False]
    assert [int(row[0]) for arrays in delivered for row in arrays["x"]] == [*range(23), 0]
    substituted = list(adapter.batches(opened(path, shuffle=False, on_corrupt="substitute"), 8))
    assert [n for arrays in substituted for n in rows_of(arrays)][:23] == list(range(23))
    assert "valid" not in substituted[0]


@pytest.mark.parametrize("prefetch", [0, 3])
def test_states_count_what_was_received_and_resume_exactly(dense_path, prefetch):
    expected = [rows_of(arrays) for arrays in itertools.islice(adapter.batches(opened(dense_path), 8, epochs=None), 15)]
    for received in range(10):
        with adapter.batches(opened(dense_path), 8, epochs=None, prefetch=prefetch) as batches:
            assert [rows_of(next(batches)) for _ in range(received)] == expected[:received]
            state = json.loads(json.dumps(batches.state_dict()))
        with adapter.batches(opened(dense_path), 8, epochs=None, prefetch=prefetch) as batches:
            next(batches)  # what is on its way from elsewhere is forgotten
            batches.load_state_dict(state)
            assert batches.state_dict() == state
            assert [rows_of(next(batches)) for _ in range(5)] == expected[received : received + 5]
    other = opened(dense_path)
    other.load_state_dict(state)
    assert next(other.batches(8))["n"].tolist() == expected[9]


def test_no_more_batches_than_asked_for_are_ahead(dense_path):
    made = []

    def noted(batch: CachedBatch):
        made.append(batch.step)
        return {"x": batch["x"]}

    with adapter.batches(opened(dense_path, epoch_length=800), 8, transform=noted, prefetch=3) as batches:
        assert made == []
        for received in range(1, 6):
            next(batches)
            assert made == list(range(received + 3))
    assert list(batches) == []
    batches.close()


def test_a_transform_makes_whatever_tree_of_arrays_is_wanted(typed_path):
    dataset = opened(typed_path, replacement=False)

    def padded(batch: CachedBatch):
        boxes = np.zeros((len(batch), 4, 2), np.float32)
        for row, found in enumerate(batch["boxes"]):
            boxes[row, : len(found)] = found
        return {"images": (batch["image"], batch["row"]), "boxes": boxes, "label": batch["label"]}

    numbers = samples(dataset, 0)
    for step, arrays in enumerate(adapter.batches(dataset, 8, transform=padded)):
        for row, n in enumerate(numbers[8 * step : 8 * step + 8]):
            expected = fields(n)
            assert np.array_equal(np.asarray(arrays["images"][0][row]), expected["image"])
            assert np.array_equal(np.asarray(arrays["images"][1][row]), expected["row"])
            assert np.array_equal(np.asarray(arrays["boxes"][row])[: n % 4], expected["boxes"])
            assert int(arrays["label"][row]) == n % 10
    assert step == 5


def test_a_sharding_of_the_callers_is_used(dense_path):
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    arrays = next(adapter.batches(opened(dense_path), 6, sharding=sharding))
    assert arrays["x"].sharding == sharding
    assert {shard.data.shape for shard in arrays["x"].addressable_shards} == {(3, 256)}
    assert rows_of(arrays) == samples(opened(dense_path))[:6]


def test_compiled_functions_take_the_batches_as_they_are(dense_path):
    total = jax.jit(lambda arrays: arrays["x"].sum() + arrays["n"].sum())
    for arrays in adapter.batches(opened(dense_path), 8):
        assert int(total(arrays)) == 257 * sum(arrays["n"].tolist())
    assert total._cache_size() == 1


def test_columns_choose_what_is_read_and_delivered(typed_path):
    dataset = opened(typed_path, replacement=False)
    assert list(next(adapter.batches(dataset, 4, columns=["image", "label", "name"]))) == ["image", "label"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 6}, "batch_size: expected a multiple of the 4 devices of this process, found 6"),
        ({"remainder": "keep"}, 'remainder: expected "drop" or "pad".*found \'keep\''),
        ({"prefetch": -1}, "prefetch: expected at least 0, found -1"),
        ({}, "columns: expected fields of fixed shape .*transform.*found boxes, jpeg"),
        ({"columns": ["x"]}, "no payload field or metadata column 'x'"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_at_once(typed_path, options, message):
    dataset = opened(typed_path)
    arguments: dict[str, Any] = {"batch_size": 8, **options}
    with pytest.raises(errors.ConfigError, match=message):
        adapter.batches(dataset, **arguments)
    assert dataset.state_dict()["epoch"] == 0


def test_plain_bytes_and_a_column_called_valid_need_a_transform(tmp_path):
    with pytest.raises(errors.ConfigError, match="found data"):
        adapter.batches(opened(written(tmp_path, 8)), 4)
    assert rows_of_metadata(next(adapter.batches(opened(written(tmp_path, 8, "b")), 4, columns=["n"])))
    path = write(tmp_path, [({"x": np.zeros(1, np.int8)}, {"valid": n}) for n in range(8)], name="v")
    with pytest.raises(errors.ConfigError, match="valid"):
        adapter.batches(opened(path), 4, remainder="pad")
    assert set(next(adapter.batches(opened(path), 4))) == {"x", "valid"}


def rows_of_metadata(arrays) -> bool:
    return list(arrays) == ["n"] and arrays["n"].shape == (4,)


def test_ranks_that_are_not_the_processes_of_jax_are_refused(dense_path):
    with pytest.raises(errors.ConfigError, match=r"expected 0, 1.*found 1, 2.*ranks.from_jax\(\)"):
        adapter.batches(opened(dense_path, rank=1, world_size=2), 8)


def test_a_transform_with_too_few_rows_is_refused_by_name(dense_path):
    batches = adapter.batches(opened(dense_path), 8, transform=lambda batch: {"half": batch["x"][:4]})
    with pytest.raises(ValueError, match=r"expected arrays of 8 rows, found \['half'\] of \(4, 256\)"), batches:
        next(batches)


def test_views_and_an_end_work_as_for_other_batches(dense_path):
    view = opened(dense_path, replacement=False).filter(pl.col("n") < 8)
    assert sorted(n for arrays in adapter.batches(view, 4) for n in rows_of(arrays)) == list(range(8))
    batches = adapter.batches(view, 4)
    assert len(list(batches)) == 2
    with pytest.raises(StopIteration):
        next(batches)
    assert batches.state_dict()["epoch"] == 2
