"""Fixtures of all Python tests."""

from __future__ import annotations

import os
import time

import pytest

from tests.support import PATIENCE, numbered, own_threads, write


@pytest.fixture(autouse=True)
def no_thread_stays():
    """Every test ends the threads of ours that it began."""
    before = sorted(own_threads())
    yield
    # A thread that was joined may still be listed for a moment.
    deadline = time.monotonic() + PATIENCE
    while sorted(own_threads()) != before and time.monotonic() < deadline:
        os.sched_yield()
    assert sorted(own_threads()) == before


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache of 300 samples in several shards that no test changes."""
    return write(tmp_path_factory.mktemp("shared"), numbered(300), max_shard_bytes=4000)
