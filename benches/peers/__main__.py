"""The command line of `just bench-peers`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from pathlib import Path

from benches import document, machine
from benches.environments import PACKAGES, ROOT
from benches.peers import plot, report, tables
from benches.peers.bars import judged
from benches.peers.cases import CASES, OWN
from benches.peers.driver import Driver

PICTURE = "benchmarks.svg"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="just bench-peers", description="ratios against other stores and loaders")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each figure (default 5)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases whose name contains a word")
    parser.add_argument("--list", action="store_true", help="list the cases and their contenders and stop")
    parser.add_argument("--quick", action="store_true", help="a smoke run on small data: its figures mean nothing")
    parser.add_argument("--without", nargs="+", default=[], metavar="ENVIRONMENT", help="environments to leave out")
    parser.add_argument("--data", type=Path, help="keep the data here and use it again (about 35 GiB)")
    parser.add_argument("--record", action="store_true", help="write docs/benchmarks.md and its picture")
    return parser.parse_args()


def _list() -> None:
    for case in CASES:
        print(f"{case.name:24}{case.title}")
        print(f"{'':24}{', '.join(entry.label for entry in case.entries)}")
    for case in tables.CHOSEN:
        print(f"{case.name:24}{case.title}")


def main() -> int:
    """Measure, print the tables, and return 1 when a bar is missed."""
    arguments = _arguments()
    if arguments.list:
        _list()
        return 0
    if arguments.record and arguments.quick:
        sys.exit("--record writes figures that mean something: leave out --quick")
    if importlib.util.find_spec("dataset_rt") is None and OWN not in arguments.without:
        sys.exit("this package is not built: run `just develop`")
    words = arguments.only
    cases = [case for case in CASES if not words or any(word in case.name for word in words)]
    chosen = [case for case in tables.CHOSEN if not words or any(word in case.name for word in words)]
    if arguments.quick:
        chosen = [case for case in chosen if case.name in tables.QUICK]
    load = machine.busy()
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {line}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="bench-peers-") as temporary:
        base = arguments.data or Path(temporary)
        base = base / "quick" if arguments.quick else base
        base.mkdir(parents=True, exist_ok=True)
        driver = Driver(base, arguments.rounds, arguments.quick, say, frozenset(arguments.without))
        results = driver.run(cases, lambda result: print(report.case_table(result), flush=True))
        table, findings = tables.measured(chosen, base / "tables", min(arguments.rounds, 3), say)
        where = machine.described(base, load)
    findings = judged({result.case.name: result for result in results}) + findings
    where += [f"* {name}: {', '.join(packages)}" for name, packages in PACKAGES.items()]
    minutes = (time.monotonic() - started) / 60
    where.append(f"* this run: {minutes:.0f} minutes, with what it prepared")
    absent = [case.name for case in (*CASES, *tables.CHOSEN) if case not in (*cases, *chosen)]
    if absent or arguments.without:
        where.append(f"* left out of this run: {', '.join([*absent, *arguments.without])}")
    say("done")
    print("\n".join([report.bars_table(findings), report.ahead(results), table, *where]))
    if arguments.record:
        (ROOT / "docs" / PICTURE).write_text(plot.svg(results), encoding="utf-8")
        picture = f"![Rates of all contenders in the main cases]({PICTURE})\n\n"
        text = report.document(findings, results, table, "\n".join(where))
        introduction = report.INTRODUCTION.format(rounds=arguments.rounds)
        print(f"written: {document.record('peers', introduction + picture + text)}, docs/{PICTURE}")
    return 1 if any(finding.met is False for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
