"""Run the workers in turn, a process per measurement, and collect what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benches.environments import clean_environment
from benches.pagecache import warm
from benches.releases.cases import OURS, SCIPY, SHAPES, Case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WORKER = Path(__file__).with_name("worker.py")
SCIPY_WORKER = Path(__file__).with_name("scipy_worker.py")
TIMEOUT = 600.0


class WorkerFailedError(Exception):
    """A worker ended with an error; the message is the last thing it said."""


@dataclass(frozen=True)
class Sample:
    """The values of one figure over the rounds, in the unit that the worker used."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value."""
        return median(self.values)


@dataclass(frozen=True)
class Outcome:
    """What every contender reached in a case: figure key to values, or why there are none."""

    case: Case
    figures: dict[str, dict[str, Sample]]
    failures: dict[str, str]


def work(python: Path, action: str, arguments: Mapping[str, object], script: Path = WORKER) -> dict[str, float]:
    """Run one action in one environment; raise `WorkerFailedError` when it does not finish."""
    command = [str(python), str(script), action, json.dumps(arguments)]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=clean_environment(), timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired as error:
        raise WorkerFailedError(f"no end after {TIMEOUT:.0f} s") from error
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise WorkerFailedError(last[0])
    return json.loads(done.stdout)


@dataclass
class Driver:
    """Measures cases for a set of contenders (name to interpreter) on data below `base`."""

    contenders: dict[str, Path]
    base: Path
    rounds: int
    say: Callable[[str], None]
    compared: int | None = None  # samples of an epoch that are compared with their source; all by default

    def __post_init__(self) -> None:
        """Choose who writes the data that all read: this package, or the oldest release without it."""
        self.writer = self.contenders.get(OURS) or next(iter(self.contenders.values()))
        self.checked: set[tuple[str, str]] = set()
        self.unfit: dict[tuple[str, str], str] = {}

    def prepare(self, case: Case) -> str:
        """Make the data of a case and let every contender prove that it reads it right; return its folder."""
        folder = str(self.base / case.shape.replace(" ", "-").replace(",", ""))
        arguments = {"base": folder, "shape": SHAPES[case.shape]}
        if not case.stored:
            return str(self.base)
        work(self.writer, "prepare", arguments)
        # Data of an earlier run may not be in memory any more: whoever came first would read it from the disk.
        warm(Path(folder))
        for name, python in self.taking_part(case).items():
            if name == SCIPY or (case.shape, name) in self.checked:
                continue
            self.checked.add((case.shape, name))
            try:
                bounded = {} if self.compared is None else {"checked": self.compared}
                shape = bounded | SHAPES[case.shape]
                work(python, "check_epochs", {"base": folder, "shape": shape})
            except WorkerFailedError as error:
                self.unfit[case.shape, name] = f"wrong data: {error}"
        return folder

    def taking_part(self, case: Case) -> dict[str, Path]:
        """Return the contenders of a case."""
        if case.ours_only:
            return {name: python for name, python in self.contenders.items() if name == OURS}
        if case.peers is not None:
            ours = {name: python for name, python in self.contenders.items() if name == OURS}
            return ours | {name: Path(sys.executable) for name in case.peers}
        return self.contenders

    def measure(self, case: Case) -> Outcome:
        """Run a case in rounds, each contender once per round, the order turning from round to round."""
        contenders = self.taking_part(case)
        outcome = Outcome(case, {}, {})
        if not contenders:
            return outcome
        folder = self.prepare(case)
        found: dict[str, dict[str, list[float]]] = {name: {} for name in contenders}
        names = list(contenders)
        for turn in range(self.rounds):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                reason = self.unfit.get((case.shape, name)) or outcome.failures.get(name)
                if reason:
                    outcome.failures[name] = reason
                    continue
                try:
                    figures = self.once(case, name, contenders[name], folder)
                except WorkerFailedError as error:
                    outcome.failures[name] = str(error)
                    continue
                for key, value in figures.items():
                    found[name].setdefault(key, []).append(value)
        for name, figures in found.items():
            outcome.figures[name] = {key: Sample(tuple(values)) for key, values in figures.items()}
        return outcome

    def once(self, case: Case, name: str, python: Path, folder: str) -> dict[str, float]:
        """Take one measurement, with nothing left to write back from the one before."""
        if hasattr(os, "sync"):
            os.sync()
        if name == SCIPY:
            rows = SHAPES[case.shape]["caches"] * SHAPES[case.shape]["samples"]
            return work(python, "draws", {"rows": rows, **case.options}, SCIPY_WORKER)
        return work(python, case.action, case.arguments(folder))

    def run(self, cases: list[Case]) -> list[Outcome]:
        """Measure all cases in order."""
        outcomes = []
        for number, case in enumerate(cases, 1):
            self.say(f"[{number}/{len(cases)}] {case.title}")
            outcomes.append(self.measure(case))
        return outcomes
