"""Fixtures of the tests of adapters."""

from __future__ import annotations

import pytest

from tests.order_support import written


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache of 50 samples that no test changes."""
    return written(tmp_path_factory.mktemp("torch"), 50)
