"""Fixtures of all Python tests."""

from __future__ import annotations

import pytest

from tests.support import own_threads


@pytest.fixture(autouse=True)
def no_thread_stays():
    """Every test ends the threads of ours that it began."""
    before = sorted(own_threads())
    yield
    assert sorted(own_threads()) == before
