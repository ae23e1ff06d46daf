"""The cases that need no other library than the published release: many caches, large tables, draws, resuming.

They are measured by the driver of `just bench`; this picks them and states their bars.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benches.environments import UnavailableError, peer_python
from benches.peers.bars import Finding
from benches.releases import report
from benches.releases.cases import CASES, OURS, SCIPY
from benches.releases.driver import Driver, WorkerFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benches.releases.cases import Case
    from benches.releases.driver import Outcome

RELEASE = "0.4.8"
NAMES = ("open-1000", "open-10000", "metadata", "metadata-10m", "draws", "draws-10m")
CHOSEN = [case for case in CASES if case.name in NAMES or case.name.startswith("resume-")]
QUICK = ("open-1000", "draws", "resume-uniform")


def measured(cases: list[Case], base: Path, rounds: int, say: Callable[[str], None]) -> tuple[str, list[Finding]]:
    """Return the table of the chosen cases and what became of their targets."""
    if not cases:
        return "", []
    base.mkdir(parents=True, exist_ok=True)
    contenders = {OURS: Path(sys.executable)}
    missing = ""
    try:
        contenders[RELEASE] = peer_python(RELEASE)
    except UnavailableError as error:
        missing = f"\n{RELEASE} is not measured: {error}\n"
    try:
        outcomes = Driver(contenders, base, rounds, say).run(cases)
    except WorkerFailedError as error:
        return f"Not measured: {error}\n", []
    names = [*contenders, SCIPY]
    return report.table(outcomes, names) + missing, [finding for each in outcomes for finding in _findings(each)]


def _findings(outcome: Outcome) -> list[Finding]:
    found = []
    for figure in outcome.case.figures:
        wanted, is_missed = report.wanted(outcome, figure)
        if not wanted:
            continue
        ratio = report.ratio(outcome, figure)
        ours = outcome.figures.get(OURS, {}).get(figure.key)
        title = f"{outcome.case.title}: {figure.title}"
        bounds = figure.target is None
        text = (
            "not measured" if ours is None else report.shown(figure, ours.median) if bounds else f"{ratio or 0:.2f} x"
        )
        known = ours is not None and (bounds or ratio is not None)
        sign = "" if bounds else ">= "
        unit = "" if bounds else " x"
        against = "" if bounds else figure.only or RELEASE
        found.append(Finding(title, f"{sign}{wanted}{unit}", text, not is_missed if known else None, against))
    return found
