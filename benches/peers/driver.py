"""Prepare the data and the stores of each case, then measure its contenders in turns."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benches import pagecache
from benches.environments import UnavailableError, environment_python
from benches.peers.cases import OWN, Case, Entry, Figure
from benches.peers.data import DATA_SETS, DataSet, made
from benches.peers.fio import FioUnavailableError, fio
from benches.peers.session import ContenderFailedError, Session

if TYPE_CHECKING:
    from collections.abc import Callable

LIVES = 2  # processes that a contender gets in a case, one after the other
BEHIND = 0.25  # part of the best rate below which one process is enough
COLD_ROUNDS = 5  # at least, as disks are not equally fast for long; one in a smoke run
LEFT = 0.02  # part of a cold store's pages that may still be in memory


def _size_file(store: Path) -> Path:
    return store.with_name(f"{store.name}.size")


@dataclass
class Result:
    """What a case brought: contender to figure to values, and why contenders are missing."""

    case: Case
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)

    def add(self, label: str, figures: dict[str, float]) -> None:
        """Keep one measurement."""
        for key, value in figures.items():
            self.values.setdefault(label, {}).setdefault(key, []).append(value)

    def median(self, label: str, key: str) -> float | None:
        """Return the middle value, or None where nothing was measured."""
        found = self.values.get(label, {}).get(key)
        return median(found) if found else None

    def best(self, figure: Figure, groups: tuple[str, ...], *, holding: str = "", without: str = "out=") -> str | None:
        """Return the best contender of some groups whose label holds a word and not another."""
        found = [
            (self.median(label, figure.key), label)
            for label, group in self.groups.items()
            if group in groups and holding in label and (not without or without not in label)
        ]
        measured = [(value, label) for value, label in found if value is not None]
        if not measured:
            return None
        return (max if figure.higher else min)(measured)[1]


@dataclass
class Driver:
    """Measures cases on data below `base`; `quick` shrinks the data for a smoke run."""

    base: Path
    rounds: int
    quick: bool
    say: Callable[[str], None]
    without: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.pythons: dict[str, Path | str] = {}
        self.unwritten: dict[str, str] = {}

    def run(self, cases: list[Case], show: Callable[[Result], None]) -> list[Result]:
        """Measure all cases in order and show each; a data set leaves memory when no case after it reads it."""
        results = []
        for number, case in enumerate(cases):
            self.say(f"[{number + 1}/{len(cases)}] {case.title}")
            results.append(self.measure(case))
            show(results[-1])
            if case.data and all(later.data != case.data for later in cases[number + 1 :]):
                pagecache.evict(self.base / case.data)
        return results

    def measure(self, case: Case) -> Result:
        """Prepare and measure one case."""
        result = Result(case)
        data = self.data(case)
        requests: dict[str, tuple[Path, dict[str, object], Path]] = {}
        for entry in case.entries:
            result.groups[entry.label] = entry.group
            try:
                requests[entry.label] = self.request(entry, data, result)
            except (UnavailableError, ContenderFailedError) as error:
                result.missing[entry.label] = str(error)
        if hasattr(os, "sync"):
            os.sync()
        if case.cold:
            self.cold_rounds(case, data, requests, result)
        else:
            for _, _, store in requests.values():
                pagecache.warm(store)
            lives = 1 if case.once or self.rounds < LIVES else LIVES
            for life in range(lives):
                share = self.rounds // lives + (life < self.rounds % lives)
                again = {
                    label: asked for label, asked in requests.items() if not life or not self.behind(label, result)
                }
                self.warm_rounds(again, result, 1 if case.once else share)
        return result

    def behind(self, label: str, result: Result) -> bool:
        """Tell whether a peer is so far behind that no ratio depends on it."""
        figure = result.case.figures[0]
        rates = [result.median(other, figure.key) or 0.0 for other in result.values]
        own = result.median(label, figure.key)
        return result.groups[label] != "ours" and own is not None and figure.higher and own < BEHIND * max(rates)

    def data(self, case: Case) -> Path:
        """Make the data of a case and return its folder."""
        data: DataSet = DATA_SETS[case.data or "256"]
        return made(data.smaller(20) if self.quick else data, self.base / data.name)

    def request(self, entry: Entry, data: Path, result: Result) -> tuple[Path, dict[str, object], Path]:
        """Return the interpreter, what to ask its worker, and the folder that it reads or writes."""
        if entry.environment in self.without:
            raise UnavailableError("left out")
        python = self.python(entry.environment)
        asked: dict[str, object] = {"action": entry.action, "data": str(data), **entry.options}
        if self.quick and "batches" in asked:
            asked["batches"] = 2000
        store = data.parent / "scratch"
        if entry.stored is not None:
            kind, form = entry.stored
            store = data.parent / f"{entry.environment.replace(' ', '-')}-{kind}-{form}"
            self.written(python, data, store, kind, form)
            result.sizes[entry.label] = float(_size_file(store).read_text(encoding="ascii"))
            if entry.action in ("gather", "cold"):
                asked["store"] = kind
        else:
            store.mkdir(exist_ok=True)
        return python, {**asked, "path": str(store)}, store

    def python(self, environment: str) -> Path:
        """Return an environment's interpreter, made once per run."""
        if environment == OWN:
            return Path(sys.executable)
        if environment not in self.pythons:
            self.say(f"    environment: {environment}")
            try:
                self.pythons[environment] = environment_python(environment)
            except UnavailableError as error:
                self.pythons[environment] = str(error)
        found = self.pythons[environment]
        if isinstance(found, str):
            raise UnavailableError(found)
        return found

    def written(self, python: Path, data: Path, store: Path, kind: str, form: str) -> None:
        """Let a contender write its store, unless it is there; the size on disk lies beside it."""
        size = _size_file(store)
        if str(store) in self.unwritten:
            raise ContenderFailedError(self.unwritten[str(store)])
        if size.is_file() and size.stat().st_mtime >= (data / "ready.json").stat().st_mtime:
            return
        asked = {"action": "write", "data": str(data), "path": str(store), "store": kind, "form": form}
        try:
            with Session(python, asked) as session:
                session.ready()
                found = session.measure()
        except ContenderFailedError as error:
            shutil.rmtree(store, ignore_errors=True)
            self.unwritten[str(store)] = f"could not write: {error}"
            raise ContenderFailedError(self.unwritten[str(store)]) from error
        size.write_text(str(found["bytes"]), encoding="ascii")

    def warm_rounds(
        self, requests: dict[str, tuple[Path, dict[str, object], Path]], result: Result, rounds: int
    ) -> None:
        """Start all contenders, then measure each once per round; the order turns from round to round."""
        with contextlib.ExitStack() as stack:
            sessions: dict[str, Session] = {}
            for label, (python, asked, _) in requests.items():
                if label in result.missing:
                    continue
                sessions[label] = stack.enter_context(Session(python, asked))
                # What a loader needs to start is a figure too: then nobody else may start meanwhile.
                if asked["action"] == "load":
                    self.await_ready(label, sessions, result)
            for label in list(sessions):
                if requests[label][1]["action"] != "load":
                    self.await_ready(label, sessions, result)
            for turn in range(rounds):
                labels = list(sessions)
                start = turn % max(1, len(labels))
                for label in labels[start:] + labels[:start]:
                    try:
                        result.add(label, sessions[label].measure())
                    except ContenderFailedError as error:
                        result.missing[label] = str(error)
                        del sessions[label]
            for session in sessions.values():
                session.let_go()

    def await_ready(self, label: str, sessions: dict[str, Session], result: Result) -> None:
        """Wait until a worker can be measured; drop it when it fails."""
        try:
            sessions[label].ready()
        except ContenderFailedError as error:
            result.missing[label] = str(error)
            del sessions[label]

    def cold_rounds(
        self, case: Case, data: Path, requests: dict[str, tuple[Path, dict[str, object], Path]], result: Result
    ) -> None:
        """Measure each contender in a new process on files that have just been dropped, and fio beside them."""
        for turn in range(max(self.rounds, COLD_ROUNDS) if self.rounds > 1 else 1):
            labels = [label for label in requests if label not in result.missing]
            start = turn % max(1, len(labels))
            for label in labels[start:] + labels[:start]:
                python, asked, store = requests[label]
                pagecache.evict(store)
                pagecache.evict(data)
                left = pagecache.resident(store)
                if left > LEFT:
                    result.missing[label] = f"{left:.0%} of its files stay in memory"
                    continue
                try:
                    with Session(python, asked) as session:
                        session.ready()
                        result.add(label, session.measure())
                except ContenderFailedError as error:
                    result.missing[label] = str(error)
            if case.fio is not None:
                self.fio(case.fio, data, result)

    def fio(self, what: tuple[str, str, tuple[int, ...]], data: Path, result: Result) -> None:
        """Let fio read the same data at each queue depth."""
        access, block, depths = what
        pagecache.evict(data)
        for depth in depths:
            label = f"fio, {depth} at a time"
            result.groups[label] = "yardstick"
            try:
                result.add(label, {"rate": fio(data / "values.npy", access, block, depth)})
            except FioUnavailableError as error:
                result.missing[label] = str(error)
                return
