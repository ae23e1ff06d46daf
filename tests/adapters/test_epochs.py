"""The board on which worker processes agree on an epoch: threads, killed writers, copies."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataset_rt.adapters.torch import epochs
from dataset_rt.adapters.torch.epochs import EpochBoard, Pass

pytest.importorskip("fcntl", reason="the board needs POSIX file locks")


def test_threads_of_one_process_that_open_passes_get_an_epoch_each():
    board = EpochBoard()

    def opened(seed):
        return board.join(Pass(seed, 0), 0, moves=1, start=(0, 0))

    with ThreadPoolExecutor(16) as threads:
        found = sorted(threads.map(opened, range(800)))
    assert found == [(epoch, 0) for epoch in range(800)]


@pytest.mark.parametrize("passes", [1, 2, 3, 70])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.5, 0.9])
def test_a_worker_killed_while_it_writes_leaves_the_board_as_it_was(monkeypatch, passes, share):
    board = EpochBoard()
    for seed in range(passes):
        board.join(Pass(seed, 0), 0, moves=1, start=(3, 9))
    board.join(Pass(0, 0), 1, moves=2, start=(5, 0))  # a record shorter than the one before would leave its end
    write = os.pwrite

    def killed(file, data, offset):
        write(file, data[: int(len(data) * share)], offset)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", killed)
        with pytest.raises(KeyboardInterrupt):
            board.join(Pass(99, 0), 0, moves=2, start=(5, 0))
    assert board.last_epoch(2) == 5
    assert board.join(Pass(99, 0), 0, moves=2, start=(5, 0)) == (6, 0)
    assert board.join(Pass(99, 0), 1, moves=2, start=(5, 0)) == (6, 0)


def test_a_forked_child_is_not_held_up_by_a_lock_of_a_thread_it_does_not_have():
    board = EpochBoard()
    with board._entries() as entries:  # the lock on the file is this process's own
        assert entries == []
        child = os.fork()
        if child == 0:
            os._exit(0 if epochs._threads.acquire(blocking=False) else 1)
        assert os.waitpid(child, 0)[1] == 0
