"""Turn outcomes into a table, say what missed its target, and describe the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benches.releases.cases import OURS, Figure

if TYPE_CHECKING:
    from benches.releases.driver import Outcome, Sample

INTRODUCTION = """\
## Against our own releases and SciPy

Every figure is the median of {rounds} rounds with the smallest and largest value in brackets. Each
measurement is a process of its own in an environment of its own (the published releases run with the same
pinned Polars); in every round each contender runs once, and the order turns from round to round. All read
the same files with two worker threads and otherwise default settings, and each proves once, outside the
timed part, that every byte and every metadata value it delivers is what was written. Files are in the page
cache (warm): nothing here measures how fast a disk reads. Writing includes this package's fsync calls; the
published releases make none, and what they leave unwritten is flushed before the next measurement starts.

*Ratio* is the best published release against this package: above 1, this package is better. A target is the least
ratio; with >= or <= it bounds this package's own figure. A target in bold is missed. Figures in x are ratios of two
actions that take turns in one process.

"""


def shown(figure: Figure, value: float) -> str:
    """Write a value in the figure's unit."""
    if figure.unit == "ms":
        milliseconds = value * 1e3
        return f"{milliseconds:,.1f}" if milliseconds < 100 else f"{milliseconds:,.0f}"
    if figure.unit == "M/s":
        return f"{value / 1e6:,.1f}" if value >= 10e6 else f"{value / 1e6:,.2f}"
    return f"{value:,.2f}" if figure.unit == "x" else f"{value:,.1f}"


def _cell(figure: Figure, sample: Sample | None) -> str:
    if sample is None:
        return "-"
    low, high = shown(figure, min(sample.values)), shown(figure, max(sample.values))
    return f"{shown(figure, sample.median)} [{low}..{high}]"


def ratio(outcome: Outcome, figure: Figure) -> float | None:
    """Return how many times better this package is than the peer that counts, or None when one is missing."""
    ours = outcome.figures.get(OURS, {}).get(figure.key)
    names = [figure.only] if figure.only else [name for name in outcome.figures if name != OURS]
    theirs = [outcome.figures.get(name or "", {}).get(figure.key) for name in names]
    medians = [sample.median for sample in theirs if sample is not None]
    if ours is None or not medians or ours.median <= 0:
        return None
    if figure.higher_is_better:
        return ours.median / max(medians)
    return min(medians) / ours.median


def wanted(outcome: Outcome, figure: Figure) -> tuple[str, bool]:
    """Return a figure's target, empty without one, and whether it was measured and missed."""
    found = ratio(outcome, figure)
    ours = outcome.figures.get(OURS, {}).get(figure.key)
    own = None if ours is None else ours.median / 1e6 if figure.unit == "M/s" else ours.median
    parts, is_missed = [], False
    if figure.target is not None:
        parts.append(f"{figure.target:g}")
        is_missed |= found is not None and found < figure.target
    if figure.least is not None:
        parts.append(f">= {figure.least:g}")
        is_missed |= own is not None and own < figure.least
    if figure.most is not None:
        parts.append(f"<= {figure.most:g}")
        is_missed |= own is not None and own > figure.most
    return ", ".join(parts), is_missed


def missed(outcomes: list[Outcome]) -> list[str]:
    """Return a line for every target that was measured and not reached."""
    lines = []
    for outcome in outcomes:
        for figure in outcome.case.figures:
            target, is_missed = wanted(outcome, figure)
            if is_missed:
                found = ratio(outcome, figure)
                reached = _cell(figure, outcome.figures[OURS][figure.key]) if found is None else f"{found:.2f}"
                lines.append(f"{outcome.case.title}: {figure.title}: {reached}, wanted {target}")
    return lines


def table(outcomes: list[Outcome], names: list[str]) -> str:
    """Return a Markdown table of all figures."""
    lines = [
        f"| what | unit | {' | '.join(names)} | ratio | target |",
        f"|---|---|{'---:|' * (len(names) + 2)}",
    ]
    for outcome in outcomes:
        for figure in outcome.case.figures:
            cells = [_cell(figure, outcome.figures.get(name, {}).get(figure.key)) for name in names]
            found = ratio(outcome, figure)
            ratio_text = "" if found is None else f"{found:.2f}"
            target, is_missed = wanted(outcome, figure)
            if is_missed:
                target = f"**{target}**"
            title = f"{outcome.case.title}: {figure.title}"
            lines.append(f"| {title} | {figure.unit} | {' | '.join(cells)} | {ratio_text} | {target} |")
    failures = [
        f"* {outcome.case.title}: {name}: {reason}" for outcome in outcomes for name, reason in outcome.failures.items()
    ]
    return "\n".join(lines) + ("\n\nNot measured:\n\n" + "\n".join(failures) if failures else "") + "\n"


def machine(lines: list[str], versions: dict[str, dict[str, object]]) -> str:
    """Describe where the figures come from, as a Markdown list."""
    found = [
        f"* {name}: " + ", ".join(f"{package} {version}" for package, version in packages.items())
        for name, packages in versions.items()
    ]
    return "\n".join([*lines, *found]) + "\n"


def document(table_text: str, machine_text: str, rounds: int) -> str:
    """Return this comparison's part of `docs/benchmarks.md`."""
    return INTRODUCTION.format(rounds=rounds) + "### Where\n\n" + machine_text + "\n### Figures\n\n" + table_text
