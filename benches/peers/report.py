"""Turn results into Markdown: the bars, what peers do better, and a table for each case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benches.peers.bars import PEERS

if TYPE_CHECKING:
    from benches.peers.bars import Finding
    from benches.peers.cases import Figure
    from benches.peers.driver import Result

INTRODUCTION = """\
## Against other stores and loaders

Every figure is the median of {rounds} measurements with the smallest and largest in brackets. Each contender runs in
an environment and a process of its own, set up as its documents recommend. In every round each is measured once, while
all others are stopped with the processes they started, and the order turns from round to round; after half of the
rounds all get new processes, but those that reach less than a quarter of the best are left at that. Cold reads have
five rounds or more, each in new processes. Everybody reads the same rows in batches of 256, and before anything is
timed proves on some batches that every byte is what was stored. Rates count bytes of payload before compression. Files
are in the page cache unless a case says cold.

"""


def number(value: float) -> str:
    """Write a number with three digits that matter."""
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 0.1 else f"{value:.3f}"


def cell(values: list[float]) -> str:
    """Write median, smallest and largest."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return f"{number(median)} [{number(ordered[0])}..{number(ordered[-1])}]"


def ranked(result: Result, figure: Figure) -> list[str]:
    """Return the measured contenders, the best first."""
    found = [(result.median(label, figure.key), label) for label in result.values]
    measured = [(value, label) for value, label in found if value is not None]
    return [label for _, label in sorted(measured, reverse=figure.higher)]


def case_table(result: Result) -> str:
    """Return the heading, note and table of one case."""
    case = result.case
    figures = case.figures
    lines = [f"### {case.title[0].upper()}{case.title[1:]}", ""]
    if case.note:
        lines += [case.note, ""]
    heads = [f"{figure.title}, {figure.unit}" for figure in figures]
    sized = any(label in result.sizes for label in result.values) and case.name != "sampler"
    lines += [f"| contender | {' | '.join(heads)} |" + (" on disk, MiB |" if sized else "")]
    lines += ["|---|" + "---:|" * (len(figures) + sized)]
    for label in ranked(result, figures[-1] if case.name == "sampler" else figures[0]):
        name = f"**{label}**" if result.groups[label] == "ours" else label
        if result.groups[label] == "yardstick":
            name = f"*{label}*"
        cells = [cell(result.values[label][each.key]) if each.key in result.values[label] else "" for each in figures]
        size = result.sizes.get(label)
        end = f" {'' if size is None else f'{size / 1024**2:,.0f}'} |" if sized else ""
        lines.append(f"| {name} | {' | '.join(cells)} |{end}")
    if result.missing:
        lines += ["", "Not measured:", ""]
        lines += [f"* {label}: {reason}" for label, reason in result.missing.items()]
    return "\n".join(lines) + "\n"


def bars_table(findings: list[Finding]) -> str:
    """Return the table of what had to be reached."""
    lines = ["### What must be reached", "", "| what | wanted | found | against | |", "|---|---:|---:|---|---|"]
    words = {True: "met", False: "**missed**", None: "not measured"}
    lines.extend(
        f"| {each.title} | {each.wanted} | {each.found} | {each.against} | {words[each.met]} |" for each in findings
    )
    return "\n".join(lines) + "\n"


def ahead(results: list[Result]) -> str:
    """Say where a peer is ahead of this package, from the same figures."""
    lines = []
    for result in results:
        for figure in result.case.figures:
            best = result.best(figure, ("ours",), without="")
            ours = None if best is None else result.median(best, figure.key)
            if best is None or ours is None:
                continue
            for label in ranked(result, figure):
                theirs = result.median(label, figure.key)
                if result.groups[label] not in PEERS or theirs is None or theirs == ours:
                    continue
                if (theirs > ours) is figure.higher:
                    shown = f"{number(theirs)} {figure.unit}, {best} {number(ours)}"
                    lines += [f"* {result.case.title}, {figure.title}: {label} {shown}"]
    text = "\n".join(lines) if lines else "* Nothing in this run."
    return f"### What peers do better\n\n{text}\n"


def document(findings: list[Finding], results: list[Result], tables: str, where: str) -> str:
    """Return this comparison's part of `docs/benchmarks.md` after its introduction."""
    parts = [bars_table(findings), ahead(results), *(case_table(result) for result in results)]
    if tables:
        parts.append(f"### Many caches, large tables, weighted draws, resuming\n\n{tables}")
    parts.append(f"### Where\n\n{where}\n")
    return "\n".join(parts)
