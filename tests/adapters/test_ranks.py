"""Where rank and world size come from."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from dataset_rt import ReaderConfig, errors
from dataset_rt.adapters import ranks
from dataset_rt.adapters.ranks import Ranks
from tests.order_support import opened, order, written

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Ranks(0, 1, "no launcher")),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, Ranks(3, 8, "torchrun")),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, Ranks(1, 2, "Open MPI")),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, Ranks(1, 2, "MVAPICH")),
        ({"PMI_RANK": "4", "PMI_SIZE": "5"}, Ranks(4, 5, "PMI")),
        ({"SLURM_PROCID": "6", "SLURM_NTASKS": "7"}, Ranks(6, 7, "Slurm")),
        # a batch script that srun did not start: one task, whatever the job asked for
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "7", "SLURM_STEP_NUM_TASKS": "1"}, Ranks(0, 1, "Slurm")),
        # an interactive allocation: nothing was launched
        ({"SLURM_NTASKS": "7"}, Ranks(0, 1, "no launcher")),
        # MPI started inside a Slurm job
        (
            {"PMI_RANK": "2", "PMI_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
            Ranks(2, 4, "PMI"),
        ),
        ({"RANK": "", "WORLD_SIZE": ""}, Ranks(0, 1, "no launcher")),
    ],
)
def test_launchers_are_recognised(environ, expected):
    assert ranks.from_environment(environ) == expected


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "0"}, "WORLD_SIZE: expected beside RANK, found none"),
        ({"WORLD_SIZE": "2"}, "RANK: expected beside WORLD_SIZE, found none"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK: expected 0 to 1, below WORLD_SIZE=2, found 2"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK: expected a number, found 'one'"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK: expected a number, found '-1'"),
        ({"PMI_RANK": "0", "PMI_SIZE": "0"}, "PMI_RANK: expected"),
    ],
)
def test_half_or_wrong_variables_are_refused_by_name(environ, message):
    with pytest.raises(errors.ConfigError, match=message):
        ranks.from_environment(environ)


def test_a_process_that_nobody_launched_is_alone(monkeypatch):
    for launcher in ranks._LAUNCHERS:
        for name in (*launcher[1], *launcher[2]):
            monkeypatch.delenv(name, raising=False)
    assert ranks.detect() == Ranks(0, 1, "no launcher")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    place = ranks.detect()
    config = ReaderConfig(seed=1, rank=place.rank, world_size=place.world_size)
    assert (config.rank, config.world_size) == (1, 4)
    assert repr(place) == "Ranks(rank=1, world_size=4, source='torchrun')"


def test_neighbouring_ranks_share_a_data_rank():
    places = [Ranks(rank, 6, "torchrun").shared(2) for rank in range(6)]
    assert [(place.rank, place.world_size) for place in places] == [(0, 3), (0, 3), (1, 3), (1, 3), (2, 3), (2, 3)]
    assert Ranks(4, 6, "x").shared(1)[:2] == (4, 6)
    assert Ranks(4, 6, "x").shared(6)[:2] == (0, 1)
    for size in (0, 4, 7, -1):
        with pytest.raises(errors.ConfigError, match="divisor of the 6 ranks"):
            Ranks(0, 6, "x").shared(size)


def test_jax_is_asked_only_where_it_is_distributed(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    state = {"is_distributed": False}
    jax = SimpleNamespace(
        distributed=SimpleNamespace(is_initialized=lambda: state["is_distributed"]),
        process_index=lambda: 2,
        process_count=lambda: 3,
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    assert ranks.detect() == Ranks(0, 1, "torchrun")
    state["is_distributed"] = True
    assert ranks.detect() == ranks.from_jax() == Ranks(2, 3, "jax")


SCRIPT = """
import json, sys
import torch.distributed as dist
from dataset_rt.adapters import ranks
from tests.order_support import batch_ids, opened

cache, rendezvous, rank, world, share, state, steps = sys.argv[1:]
before = ranks.from_environment({})
dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=int(rank), world_size=int(world))
place = ranks.detect().shared(int(share))
dataset = opened(cache, weighted=True, rank=place.rank, world_size=place.world_size)
if state != "null":
    dataset.load_state_dict(json.loads(state))
seen = []
with dataset.batches(3) as batches:
    for step, batch in enumerate(batches):
        gathered = [None] * int(world)
        dist.all_gather_object(gathered, batch_ids(batch))  # hangs, unless all ranks make equal steps
        seen.append(gathered)
        if step + 1 == int(steps):
            break
    states = [None] * int(world)
    dist.all_gather_object(states, batches.state_dict())
dist.destroy_process_group()
print(json.dumps([seen, states, place.source]))
"""


def launch(tmp_path, cache, world, *, share=1, state=None, steps=0):
    """Run one process per rank; return what rank 0 saw of all, after checking that all saw the same."""
    rendezvous = tmp_path / f"rendezvous-{world}-{share}-{steps}"
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SCRIPT)]
            + [str(part) for part in (cache, rendezvous, rank, world, share, json.dumps(state), steps)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in range(world)
    ]
    try:
        outputs = [child.communicate(timeout=PATIENCE) for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0] * world, outputs
    results = [json.loads(output.splitlines()[-1]) for output, _ in outputs]
    assert all(result == results[0] for result in results)
    return results[0]


@needs_torch
def test_a_job_of_two_processes_continues_as_a_job_of_three(tmp_path):
    cache = written(tmp_path, 50)
    expected = [list(row) for row in order(opened(cache, weighted=True))]
    first, states, source = launch(tmp_path, cache, 2, steps=3)
    assert source.startswith("torch.distributed")
    assert states[0] == states[1]
    rest, _, _ = launch(tmp_path, cache, 3, state=states[1])
    assert [row for step in first + rest for batch in step for row in batch] == expected


@needs_torch
def test_two_processes_of_a_tensor_parallel_group_get_the_same(tmp_path):
    cache = written(tmp_path, 20)
    seen, _, source = launch(tmp_path, cache, 2, share=2)
    assert source == "torch.distributed, 2 ranks share one data rank, "[:-2]
    assert all(left == right for left, right in seen)
    assert [row for step in seen for row in step[0]] == [list(row) for row in order(opened(cache, weighted=True))]


@needs_torch
def test_a_process_without_a_group_is_told_so():
    with pytest.raises(errors.ConfigError, match="init_process_group"):
        ranks.from_torch()
