"""The command line of `just bench`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

from benches import document, machine
from benches.environments import RELEASES, UnavailableError, peer_python
from benches.releases import report
from benches.releases.cases import CASES, OURS, SCIPY, Case
from benches.releases.driver import Driver, WorkerFailedError, work


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="just bench", description="ratios against published releases and SciPy")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each figure (default 5)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases whose name contains a word")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument("--without-ours", action="store_true", help="measure the published releases alone")
    parser.add_argument("--data", type=Path, help="keep the data here and use it again")
    parser.add_argument("--record", action="store_true", help="write docs/benchmarks.md (all cases only)")
    return parser.parse_args()


def _names(word: str, case: Case) -> bool:
    """Tell whether a word picks a case: as its whole name, or as a part when it is no case's whole name."""
    return case.name == word or (word in case.name and all(other.name != word for other in CASES))


def main() -> int:
    """Measure, print the table, and return 1 when a target is missed."""
    arguments = _arguments()
    cases = [case for case in CASES if not arguments.only or any(word in case.name for word in arguments.only)]
    if arguments.list:
        print("\n".join(f"{case.name:24}{case.title}" for case in cases))
        return 0
    if arguments.record and (arguments.only or arguments.without_ours):
        sys.exit("--record writes the whole document: leave out --only and --without-ours")
    try:
        contenders = {release: peer_python(release) for release in RELEASES}
    except UnavailableError as error:
        sys.exit(f"bench needs the published releases: {error}")
    if not arguments.without_ours:
        if importlib.util.find_spec("dataset_rt") is None:
            sys.exit("this package is not built: run `just develop`, or pass --without-ours")
        contenders = {OURS: Path(sys.executable), **contenders}
    busy = machine.busy()
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        base = arguments.data or Path(temporary)
        base.mkdir(parents=True, exist_ok=True)
        try:
            versions: dict[str, dict[str, object]] = {
                name: dict(work(python, "versions", {})) for name, python in contenders.items()
            }
            driver = Driver(contenders, base, arguments.rounds, lambda line: print(line, file=sys.stderr, flush=True))
            outcomes = driver.run(cases)
        except WorkerFailedError as error:
            sys.exit(f"bench stopped: {error}")
        names = [*contenders, *([SCIPY] if any(case.peers for case in cases) else [])]
        table = report.table(outcomes, names)
        where = report.machine(machine.described(base, busy), versions)
    print(table)
    if arguments.record:
        print(f"written: {document.record('releases', report.document(table, where, arguments.rounds))}")
    misses = report.missed(outcomes)
    for line in misses:
        print(f"MISSED  {line}")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
