"""Damaged samples while reading: left out or replaced, the same way whoever reads them."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

from dataset_rt import CachedDataset, CacheInput, CacheWriteSuccess, ShardCompression, WriterConfig, errors, write_cache
from tests.support import finish, flip, numbered, reader, start, write

COUNT = 60
DAMAGED = [0, 7, 8, 31, 59]

pytestmark = pytest.mark.filterwarnings("ignore::dataset_rt.errors.CorruptSampleWarning")


def damage(path, samples):
    index = np.frombuffer((path / "index.bin").read_bytes(), dtype="<u8").reshape(-1, 3)
    for sample in samples:
        shard, offset, length = index[sample].tolist()
        flip(path / "shards" / f"{shard:06}.bin", offset + length - 1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    path = write(tmp_path_factory.mktemp("damaged"), numbered(COUNT), max_shard_bytes=400)
    damage(path, DAMAGED)
    return path


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    base = tmp_path_factory.mktemp("typed")

    class Typed:
        name = "typed"

        def __iter__(self):
            for n in range(12):
                fields = {
                    "blob": b"%d" % n,
                    "image": np.full((2, 3), n + 1, np.float32),
                    "tokens": np.arange(n + 1, dtype=np.int32),
                }
                yield CacheInput(fields, {"n": n})

    Typed.payload_schema = {"blob": bytes, "image": ("float32", (2, 3)), "tokens": ("int32", (None,))}
    compression = ShardCompression(algo="zstd")
    config = WriterConfig(show_progress=False, shard_compression=compression)
    [result] = write_cache(Typed(), base, writer_config=config)
    assert isinstance(result, CacheWriteSuccess), result
    damage(result.path, [2, 11])
    return result.path


def opened(path, **options):
    return CachedDataset([path], reader_config=reader(**options))


def ids(items):
    return [int(sample) for item in items for sample in np.atleast_1d(item.sample_id)]


@pytest.mark.parametrize("order", [{"shuffle": False}, {}, {"replacement": False}], ids=str)
def test_substitutes_are_the_same_for_any_workers_ranks_and_batches(cache, order):
    dataset = opened(cache, on_corrupt="substitute", num_workers=1, **order)
    planned = dataset.order(0)["sample_id"].to_list()
    expected = ids(dataset)
    assert len(expected) == COUNT
    assert not set(DAMAGED) & set(expected)
    for position, sample in enumerate(planned):
        if sample not in DAMAGED:
            assert expected[position] == sample
    for sample in opened(cache, on_corrupt="substitute", **order):
        assert (sample.data, sample.metadata) == numbered(1, sample.sample_id)[0]
    for workers in (2, 4):
        other = opened(cache, on_corrupt="substitute", num_workers=workers, prefetch_size=5, **order)
        assert ids(other) == expected
    for world in (1, 2, 3):
        seen = {}
        for rank in range(world):
            options = {"rank": rank, "world_size": world, "on_corrupt": "substitute", **order}
            steps = 0
            for batch in opened(cache, **options).batches(7, remainder="pad"):
                steps += 1
                for row, (position, sample) in enumerate(zip(batch.position, batch.sample_id, strict=True)):
                    assert seen.setdefault(int(position), int(sample)) == sample
                    assert batch.data[row] == b"payload %d" % sample
                    assert batch.metadata["n"][row] == sample
            assert steps == -(-COUNT // (7 * world))
        assert [seen[position] for position in range(COUNT)] == expected


@pytest.mark.parametrize("on_corrupt", ["substitute", "skip"])
def test_a_resumed_epoch_goes_on_as_it_would_have(cache, on_corrupt):
    whole = ids(opened(cache, on_corrupt=on_corrupt))
    rows = ids(opened(cache, on_corrupt=on_corrupt).batches(4))
    for taken in (0, 1, 9, 30, len(whole) - 1):
        first = opened(cache, on_corrupt=on_corrupt, num_workers=1)
        samples = iter(first)
        for _ in range(taken):
            next(samples)
        second = opened(cache, on_corrupt=on_corrupt, num_workers=3)
        second.load_state_dict(first.state_dict())
        assert ids(second) == whole[taken:]
    for taken in (0, 1, 7, 14):
        with opened(cache, on_corrupt=on_corrupt).batches(4) as batches:
            state = batches.state_dict()
            for _ in range(taken):
                state = next(batches).state_dict()
        second = opened(cache, on_corrupt=on_corrupt, num_workers=1)
        second.load_state_dict(state)
        assert ids(second.batches(4)) == rows[4 * taken :]


def test_a_state_of_a_run_that_raised_is_resumed_with_substitutes(cache):
    raising = opened(cache, shuffle=False)
    raising.set_epoch(0)
    with raising.batches(5) as batches, pytest.raises(errors.CorruptRecordError):
        list(batches)
    state = batches.state_dict()
    going_on = opened(cache, shuffle=False, on_corrupt="substitute")
    going_on.load_state_dict(state)
    assert len(ids(going_on.batches(5))) == COUNT - state["position"]


def test_rows_that_are_left_out_are_marked_and_hold_nothing(typed):
    [batch] = opened(typed, shuffle=False, on_corrupt="skip").batches(12)
    assert batch.valid.tolist() == [n not in (2, 11) for n in range(12)]
    assert batch.sample_id.tolist() == list(range(12)) == batch.metadata["n"].to_list()
    holds = [n not in (2, 11) for n in range(12)]
    for n, is_held in enumerate(holds):
        assert batch["blob"][n] == (b"%d" % n if is_held else b"")
        assert (batch["image"][n] == (n + 1 if is_held else 0)).all()
        assert batch["tokens"][n].tolist() == (list(range(n + 1)) if is_held else [])
    [chosen] = opened(typed, shuffle=False, on_corrupt="skip").batches(12, columns=["image"])
    assert (chosen["image"] == batch["image"]).all()
    assert chosen.valid.tolist() == holds
    [padded] = opened(typed, shuffle=False, on_corrupt="skip").batches(14, remainder="pad")
    assert padded.valid.tolist() == [*holds, False, False]
    [substituted] = opened(typed, shuffle=False, on_corrupt="substitute").batches(12)
    assert substituted.valid.all()
    assert (substituted["image"][:, 0, 0] == substituted.sample_id + 1).all()


def test_single_samples_are_left_out_and_positions_go_on(cache):
    dataset = opened(cache, shuffle=False, on_corrupt="skip")
    samples, found = iter(dataset), []
    for sample in samples:
        found.append(sample.sample_id)
        passed = samples.state_dict()["position"]
        assert passed == (sample.sample_id + 1) or samples.state_dict()["epoch"] == 1
    assert found == [n for n in range(COUNT) if n not in DAMAGED]
    assert dataset.state_dict()["epoch"] == 1


@pytest.mark.parametrize("on_corrupt", ["substitute", "skip"])
def test_rows_that_are_asked_for_raise(cache, on_corrupt):
    dataset = opened(cache, on_corrupt=on_corrupt)
    assert dataset[1].sample_id == 1
    with pytest.raises(errors.CorruptRecordError):
        dataset[7]
    with pytest.raises(errors.CorruptRecordError):
        dataset.gather([1, 7])
    assert dataset.corrupt_samples().is_empty()


def test_what_was_met_is_listed_once_for_a_dataset_and_its_views(cache):
    dataset = opened(cache, shuffle=False, on_corrupt="skip")
    assert dataset.corrupt_samples().is_empty()
    for _ in range(2):
        list(dataset.batches(8))
        list(dataset.select(dataset.samples_metadata().head(9)))
        found = dataset.corrupt_samples()
        assert found["sample_id"].to_list() == DAMAGED
        assert found["cache_id"].to_list() == [0] * len(DAMAGED)
    assert found["path"][0] == str(cache / "shards" / "000000.bin")
    assert found["reason"].str.contains("checksum of the record: expected crc32c").all()
    assert {name: str(kind) for name, kind in found.schema.items()} == {
        "cache_id": "UInt64",
        "sample_id": "UInt64",
        "path": "String",
        "reason": "String",
    }


@pytest.mark.parametrize("take", [list, lambda dataset: list(dataset.batches(8))], ids=["samples", "batches"])
def test_one_warning_tells_of_the_first_one(cache, take):
    dataset = opened(cache, shuffle=False, on_corrupt="skip")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        take(dataset)
        take(dataset)
    [warning] = caught
    assert warning.category is errors.CorruptSampleWarning
    assert warning.filename == __file__
    for part in ("sample 0 of cache 0", "000000.bin", "crc32c", "corrupt_samples()"):
        assert part in str(warning.message)


def test_a_warning_that_is_an_error_loses_no_sample(cache):
    dataset = opened(cache, shuffle=False, on_corrupt="skip", num_workers=1)
    found, raised = [], 0
    batches = dataset.batches(6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.CorruptSampleWarning)
        while True:
            try:
                batch = next(batches, None)
            except errors.CorruptSampleWarning:
                raised += 1
                continue
            if batch is None:
                break
            found += batch.sample_id.tolist()
    assert raised == 1
    assert found == list(range(COUNT))


def test_without_damage_nothing_is_told(tmp_path):
    path = write(tmp_path, numbered(20))
    for on_corrupt in ("raise", "skip", "substitute"):
        dataset = opened(path, on_corrupt=on_corrupt)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ids(dataset) == dataset.order(0)["sample_id"].to_list()
            assert all(batch.valid.all() for batch in dataset.batches(6))
        assert dataset.corrupt_samples().is_empty()


def test_where_everything_is_damaged_substitution_gives_up(tmp_path):
    path = write(tmp_path, numbered(10))
    damage(path, range(10))
    for take in (list, lambda dataset: list(dataset.batches(4))):
        with pytest.raises(errors.NoSubstituteError) as caught:
            take(opened(path, on_corrupt="substitute"))
        assert caught.value.attempts == 128
        assert caught.value.path == path / "shards" / "000000.bin"
        assert f"sample {caught.value.sample_id}" in str(caught.value)
    skipping = opened(path, on_corrupt="skip")
    assert list(skipping) == []
    assert [batch.valid.any() for batch in skipping.batches(4)] == [False] * 3


def test_worker_processes_and_copies_substitute_alike(cache):
    child = start(
        """
        import json, pickle, sys, warnings
        warnings.simplefilter("ignore")
        dataset = pickle.loads(bytes.fromhex(sys.argv[1]))
        print(json.dumps([sample.sample_id for sample in dataset]))
        """,
        pickle.dumps(opened(cache, on_corrupt="substitute")).hex(),
    )
    assert finish(child) == ids(opened(cache, on_corrupt="substitute"))
