"""Batches as PyTorch tensors and through DLPack: the same numbers in the same memory, which nobody overwrites."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from dataset_rt import CachedBatch, errors
from dataset_rt.adapters import torch as adapter
from dataset_rt.batch import RaggedParts
from tests.batch_support import dense_cache, fields, plain_order, typed_cache
from tests.order_support import opened, order, payload, written
from tests.support import write

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.data import DataLoader  # noqa: E402 (after the check)
from torch.utils.data._utils.pin_memory import pin_memory  # noqa: E402

ROWS = [7, 0, 3, 3, -1]
TYPES = ["bool", "int8", "uint16", "int32", "uint64", "float16", "float64", "complex64", "complex128", "bfloat16"]
TYPES += ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    return plain_order(typed_cache(tmp_path_factory.mktemp("typed"), 20))


@pytest.fixture
def fake_pinning(monkeypatch):
    """Stand in for pinned memory, which needs an accelerator: addresses of what was pinned."""
    made: list[torch.Tensor] = []

    def pin(tensor):
        made.append(tensor.clone())
        return made[-1]

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: tensor.data_ptr() in {t.data_ptr() for t in made})
    return made


def test_tensors_have_the_contents_of_the_batch_by_name(typed):
    batch = typed.gather(ROWS)
    tensors = batch.to_torch()
    assert list(tensors) == ["boxes", "image", "jpeg", "row", "is_even", "label", "score"]
    for at, n in enumerate([7, 0, 3, 3, 19]):
        row = fields(n)
        assert np.array_equal(tensors["image"][at].numpy(), row["image"])
        assert np.array_equal(tensors["row"][at].float().numpy(), row["row"].astype(np.float32))
        assert np.array_equal(tensors["boxes"].row(at).numpy(), row["boxes"])
        assert bytes(tensors["jpeg"].row(at)) == row["jpeg"]
        assert tensors["label"][at] == n % 10
        assert tensors["score"][at] == n / 8
        assert tensors["is_even"][at] == (n % 2 == 0)
    types = {name: tensors[name].dtype for name in ("image", "row", "is_even", "label", "score")}
    expected = [torch.uint8, torch.bfloat16, torch.bool, torch.int64, torch.float64]
    assert list(types.values()) == expected


@pytest.mark.parametrize("name", TYPES)
def test_tensors_have_the_bits_of_every_type_of_pytorch(tmp_path, name):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    raw = np.random.default_rng(1).integers(0, 2 if name == "bool" else 256, (5, 3, 4 * dtype.itemsize), np.uint8)
    rows = [({"x": values.view(dtype)}, {}) for values in raw]
    tensor = plain_order(write(tmp_path, rows)).gather(slice(None)).to_torch()["x"]
    assert tensor.dtype == getattr(torch, name)
    assert tensor.shape == (5, 3, 4)
    assert np.array_equal(tensor.view(torch.uint8).numpy(), raw)


def test_a_type_that_pytorch_lacks_is_refused_by_name(tmp_path):
    rows = [({"x": np.zeros(3, ml_dtypes.float8_e3m4), "y": np.zeros(2)}, {})]
    batch = plain_order(write(tmp_path, rows)).gather([0])
    with pytest.raises(errors.ConfigError, match=r"float8_e3m4.*'x'"):
        batch.to_torch()
    assert list(batch.to_torch(["y"])) == ["y"]


def test_payloads_are_not_copied_and_changes_are_shared(typed):
    batch = typed.gather(ROWS)
    tensors = batch.to_torch()
    assert tensors["image"].data_ptr() == batch["image"].ctypes.data
    assert tensors["row"].data_ptr() == batch["row"].ctypes.data
    assert tensors["boxes"].values.data_ptr() == batch["boxes"].values.ctypes.data
    assert tensors["jpeg"].values.data_ptr() == batch["jpeg"].values.ctypes.data
    tensors["image"][0] = 9
    assert (batch["image"][0] == 9).all()


def test_names_choose_and_what_is_no_tensor_is_refused(typed):
    batch = typed.gather([0, 1])
    assert list(batch.to_torch(["score", "image"])) == ["score", "image"]
    with pytest.raises(errors.ConfigError, match=r"no payload field or metadata column 'imag'.*boxes, image"):
        batch.to_torch(["imag"])
    with pytest.raises(errors.ConfigError, match=r"column 'name'.*expected numbers or booleans.*found texts"):
        batch.to_torch(["name"])
    with pytest.raises(errors.ConfigError, match=r"column 'maybe'.*found 1 nulls"):
        batch.to_torch(["maybe"])
    with pytest.raises(TypeError, match="one name: 'image'"):
        batch.to_torch("image")
    assert typed.gather([1, 3]).to_torch(["maybe"])["maybe"].tolist() == [1, 3]


def test_plain_payloads_are_values_and_offsets(tmp_path):
    batch = plain_order(written(tmp_path, 9)).gather(slice(None))
    data = batch.to_torch()["data"]
    assert isinstance(data, RaggedParts)
    assert [bytes(data.row(n)) for n in range(9)] == [payload(n) for n in range(9)]
    assert bytes(data.row(-1)) == payload(8)
    assert data.shapes.tolist() == [[len(payload(n))] for n in range(9)]


def test_empty_batches_and_batches_without_payload_have_tensors(typed, tmp_path):
    empty = typed.gather([]).to_torch()
    assert empty["image"].shape == (0, 3, 4, 5)
    assert empty["boxes"].offsets.tolist() == [0]
    assert list(typed.gather([2], columns=["label"]).to_torch()) == ["label"]
    plain = plain_order(written(tmp_path, 3))
    assert list(plain.gather([2], columns=["n"]).to_torch()) == ["n"]
    assert list(plain.gather([2], columns=[]).to_torch()) == []


def test_destinations_become_tensors_without_a_copy(tmp_path):
    out = torch.empty((3, 256), dtype=torch.int32)
    batch = plain_order(dense_cache(tmp_path, 5)).gather([4, 1, 2], out={"x": out})
    assert batch.to_torch()["x"].data_ptr() == out.data_ptr()
    assert out[:, 0].tolist() == [4, 1, 2]


def test_nothing_that_is_kept_is_overwritten_by_later_batches(tmp_path):
    dataset = opened(dense_cache(tmp_path, 64), replacement=False)
    kept = []
    for number, batch in enumerate(dataset.batches(4, epochs=50)):
        first = batch["n"].tolist()
        if number % 8 == 0:  # what is not kept is what later batches are read into
            kind = number // 8 % 4
            held = [batch, batch["x"][1:], batch.to_torch()["x"], torch.from_dlpack(batch)][kind]
            kept.append((first[1:] if kind == 1 else first, held))
    assert number + 1 == 800
    assert len({id(held) for _, held in kept}) == 100
    for expected, held in kept:
        values = held["x"] if isinstance(held, CachedBatch) else held
        assert values.shape == (len(expected), 256)
        assert [set(row.tolist()) for row in values] == [{n} for n in expected]


def test_memory_is_used_again_once_the_last_tensor_is_gone(tmp_path):
    dataset = plain_order(dense_cache(tmp_path, 8), num_workers=1)
    tensor = dataset.gather([1, 2]).to_torch()["x"]
    address = tensor.data_ptr()
    others = [dataset.gather([3, 4]) for _ in range(3)]
    assert address not in {batch["x"].ctypes.data for batch in others}
    del tensor, others
    others = [dataset.gather([3, 4]) for _ in range(4)]
    assert address in {batch["x"].ctypes.data for batch in others}


# Pinned memory


def test_a_pinned_batch_is_equal_and_gives_pinned_tensors_without_a_copy(typed, fake_pinning):
    batch = typed.gather(ROWS)
    pinned = pin_memory(batch, "cuda")  # as a DataLoader calls it
    assert isinstance(pinned, CachedBatch)
    count = len(fake_pinning)
    tensors = pinned.to_torch()
    assert len(fake_pinning) == count
    for name, tensor in tensors.items():
        memory = [tensor.values, tensor.offsets, tensor.shapes] if isinstance(tensor, RaggedParts) else [tensor]
        originals = batch.to_torch()[name] if isinstance(tensor, RaggedParts) else [batch.to_torch()[name]]
        assert all(part.is_pinned() for part in memory), name
        assert all(torch.equal(part, original) for part, original in zip(memory, originals, strict=True)), name
    assert pinned["image"].ctypes.data == tensors["image"].data_ptr() != batch["image"].ctypes.data
    assert pinned["boxes"].values.ctypes.data == tensors["boxes"].values.data_ptr()
    assert [bytes(data) for data in pinned["jpeg"]] == [bytes(data) for data in batch["jpeg"]]
    assert all(np.array_equal(a, b) for a, b in zip(pinned["boxes"], batch["boxes"], strict=True))
    assert pinned.sample_id.tolist() == batch.sample_id.tolist()
    assert pinned.metadata.equals(batch.metadata)
    assert list(pinned.to_torch(["row"])) == ["row"]
    received = pin_memory(pickle.loads(pickle.dumps(batch)), "cuda")  # from a worker process
    assert received.to_torch()["image"].is_pinned()
    sent = pickle.loads(pickle.dumps(received))
    assert torch.equal(sent.to_torch()["row"], tensors["row"])
    assert not sent.to_torch()["row"].is_pinned()


def test_a_pinned_batch_keeps_its_place_and_plain_payloads(tmp_path, fake_pinning):
    with plain_order(written(tmp_path, 9)).batches(4) as batches:
        batch = next(batches)
    pinned = batch.pin_memory()
    assert (pinned.epoch, pinned.step, pinned.state_dict()) == (batch.epoch, batch.step, batch.state_dict())
    assert [bytes(data) for data in pinned.data] == [payload(n) for n in range(4)]
    assert pinned.to_torch()["data"].values.is_pinned()
    assert pinned.data.values.ctypes.data == pinned.to_torch()["data"].values.data_ptr()


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
def test_without_an_accelerator_pinning_does_what_pytorch_does(tmp_path):
    dataset = opened(dense_cache(tmp_path, 8))
    with pytest.raises(RuntimeError) as ours:
        dataset.gather([0]).pin_memory()
    with pytest.raises(RuntimeError) as theirs:
        torch.zeros(1).pin_memory()
    assert str(ours.value) == str(theirs.value)
    with pytest.warns(UserWarning, match="no accelerator is found"):
        loaded = list(DataLoader(adapter.batch_dataset(dataset, 3), batch_size=None, pin_memory=True))
    assert [n for batch in loaded for n in batch.sample_id.tolist()] == [
        n for _, n in order(opened(dataset.cache_paths))
    ]


# Loaders


@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_deliver_tensors_made_in_the_process_that_reads(typed, workers):
    dataset = adapter.batch_dataset(typed, 6, transform=adapter.to_torch)
    typed.set_epoch(0)
    tensors = list(DataLoader(dataset, batch_size=None, num_workers=workers))
    labels = [n for part in tensors for n in part["label"].tolist()]
    assert labels == [n % 10 for n in range(20)]
    for part, first in zip(tensors, (0, 6, 12, 18), strict=True):
        assert np.array_equal(part["image"][0].numpy(), fields(first)["image"])
        assert np.array_equal(part["boxes"].row(1).numpy(), fields(first + 1)["boxes"])


# DLPack


def test_a_batch_of_one_dense_field_is_an_array_for_dlpack(tmp_path):
    batch = plain_order(dense_cache(tmp_path, 5)).gather([3, 1])
    for array in (np.from_dlpack(batch), torch.from_dlpack(batch).numpy()):
        assert array.ctypes.data == batch["x"].ctypes.data
        assert array[:, 7].tolist() == [3, 1]
    assert np.from_dlpack(batch, copy=True).ctypes.data != batch["x"].ctypes.data


def test_dlpack_refuses_what_is_not_one_array_and_names_the_fields(typed, tmp_path):
    chosen = typed.gather([0], columns=["image"])
    assert np.from_dlpack(chosen).shape == (1, 3, 4, 5)
    with pytest.raises(BufferError, match=r"found boxes \(float32 of shape \(None, 2\)\), image \(uint8"):
        np.from_dlpack(typed.gather([0]))
    with pytest.raises(BufferError, match=r"found boxes \(float32"):
        torch.from_dlpack(typed.gather([0], columns=["boxes"]))
    with pytest.raises(BufferError, match="found plain bytes"):
        np.from_dlpack(plain_order(written(tmp_path, 3)).gather([0]))
