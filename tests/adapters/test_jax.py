"""JAX: batches on several devices and in several processes; each in processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tests.batch_support import dense_cache
from tests.order_support import opened, order
from tests.support import PATIENCE, ROOT, finish, start

pytest.importorskip("jax", reason="JAX is not installed")

ALONE = "tests/adapters/jax_alone.py"
FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}


def test_the_claims_of_jax_alone_hold_on_four_devices():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ALONE]
    environment = {**os.environ, **FOUR}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=5 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


_PROCESS = """
import json, os, sys
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax
from jax.experimental import multihost_utils
from dataset_rt.adapters import jax as adapter, ranks
from tests.order_support import opened

path, port, process = sys.argv[1], sys.argv[2], int(sys.argv[3])
jax.distributed.initialize(f"127.0.0.1:{port}", 2, process)
place = ranks.detect()
assert place == (process, 2, "jax"), place

total = jax.jit(lambda arrays: arrays["x"].sum())
steps, state = [], None
for turn in range(2):
    dataset = opened(path, rank=place.rank, world_size=place.world_size)
    batches = adapter.batches(dataset, 4, remainder="pad", epochs=None)
    if state is not None:
        batches.load_state_dict(state)
    for _ in range(5):
        arrays = next(batches)
        assert arrays["n"].shape == (8,) and not arrays["n"].is_fully_addressable
        numbers = multihost_utils.process_allgather(arrays["n"], tiled=True).tolist()
        assert int(total(arrays)) == 256 * sum(numbers)
        local = sorted(arrays["x"].addressable_shards, key=lambda shard: shard.index[0].start)
        assert [int(row[0]) for shard in local for row in shard.data] == numbers[4 * process : 4 * process + 4]
        steps.append(numbers)
    state = batches.state_dict()
    batches.close()
jax.distributed.shutdown()
print(json.dumps({"steps": steps, "state": state}))
"""


def test_two_processes_make_global_batches_of_the_global_order_and_resume(tmp_path):
    path = dense_cache(tmp_path, 50)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [start(_PROCESS, path, port, process) for process in range(2)]
    first, second = [finish(child) for child in children]
    assert first == second
    epochs = [order(opened(path), epoch) for epoch in range(2)]
    padded = [epoch + epoch[:6] for epoch in epochs]
    expected = [sample for epoch in padded for _, sample in epoch][:80]
    assert [n for step in first["steps"] for n in step] == expected
