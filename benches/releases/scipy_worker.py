"""Time weighted draws with SciPy's alias method on one core and print the figures as JSON.

Usage: scipy_worker.py draws JSON, with the number of `rows`, each of another weight, and the `count` to draw.
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np
from scipy.stats.sampling import DiscreteAliasUrn


def draws(rows: int, count: int) -> dict[str, float]:
    """Return the seconds to build the table and the draws per second after that."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    weights = np.arange(1, rows + 1, dtype=np.float64)
    started = time.perf_counter()
    urn = DiscreteAliasUrn(weights / weights.sum(), random_state=np.random.default_rng(7))
    build = time.perf_counter() - started
    urn.rvs(1000)
    drawn = 0
    started = time.perf_counter()
    while drawn < count:
        drawn += len(urn.rvs(rows))
    return {"build": build, "rate": drawn / (time.perf_counter() - started)}


if __name__ == "__main__":
    print(json.dumps(draws(**json.loads(sys.argv[2]))))
