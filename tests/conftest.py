"""Fixtures of all Python tests."""

from __future__ import annotations

import pytest

from tests.support import own_threads


@pytest.fixture(autouse=True)
def no_thread_stays():
    """Every test leaves no thread of ours behind."""
    yield
    assert own_threads() == []
