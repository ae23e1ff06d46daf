"""Bars and lines as SVG and HTML; colours are left to the style sheet."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from dataset_rt.inspection.text import one_line, size, value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dataset_rt.report.distributions import Histogram

__all__ = ["bars", "exact", "html", "meter", "number", "paired_bars", "sparkline", "text_cell"]

_WIDTH, _HEIGHT = 320, 84


def html(text: Any, longest: int | None = None) -> str:
    """Return text from data, in one line, as it may stand between tags and in attributes."""
    return escape(one_line(text, longest), quote=True)


def text_cell(item: Any, longest: int = 48) -> str:
    """Return a value of a metadata column."""
    if item is None:
        return '<i class="null">null</i>'
    if item == "":
        return '<i class="null">empty</i>'
    return escape(value(item, longest), quote=True)


def number(amount: float) -> str:
    """Return a number for the axis of a chart."""
    if isinstance(amount, int) or 1e4 <= abs(amount) < 1e12 or (float(amount).is_integer() and abs(amount) < 1e12):
        return f"{round(amount):,}"
    return f"{amount:.4g}"


def exact(count_of_bytes: float) -> str:
    """Return a number of bytes, in full where it is short: samples of a cache often differ by a few."""
    return f"{count_of_bytes:,.0f} B" if count_of_bytes < 100_000 else size(count_of_bytes)


def bars(found: Histogram, label: str, shown: Callable[[float], str] = number) -> str:
    """Return a histogram with the ends of its axis below."""
    highest = max(found.counts)
    step = _WIDTH / len(found.counts)
    gap = min(1.0, step * 0.12)
    drawn = []
    for position, count in enumerate(found.counts):
        # A bin that is not empty is visible, however small.
        height = max(count / highest * (_HEIGHT - 2), 1.5) if count else 0
        first, last = found.edges[position], found.edges[min(position + 1, len(found.edges) - 1)]
        hint = f"{shown(first)} to {shown(last)}: {count:,}"
        drawn.append(
            f'<rect x="{position * step + gap / 2:.2f}" y="{_HEIGHT - height:.2f}" '
            f'width="{step - gap:.2f}" height="{height:.2f}"><title>{html(hint)}</title></rect>'
        )
    scale = '<span class="scale">logarithmic</span>' if found.is_log else ""
    return (
        f'<figure class="hist"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{html(label)}">{"".join(drawn)}</svg><figcaption><span>{html(shown(found.edges[0]))}</span>{scale}'
        f"<span>{html(shown(found.edges[-1]))}</span></figcaption></figure>"
    )


def meter(rows: Sequence[tuple[str, int]], total: int) -> str:
    """Return one bar a row: cells as HTML, counts, and their share of a total."""
    highest = max((count for _, count in rows), default=1) or 1
    lines = [
        f'<tr><th scope="row">{cell}</th><td class="bar"><span style="width:{100 * count / highest:.1f}%"></span></td>'
        f'<td class="num">{count:,}</td><td class="num dim">{percent(count, total)}</td></tr>'
        for cell, count in rows
    ]
    return f'<table class="meter">{"".join(lines)}</table>'


def paired_bars(rows: Sequence[tuple[str, int, float, float]]) -> str:
    """Return two bars a row: the share of the samples above, that of the draws below."""
    highest = max((max(stored, drawn) for _, _, stored, drawn in rows), default=1.0) or 1.0
    lines = [
        f'<tr><th scope="row">{cell}</th><td class="bar pair">'
        f'<span class="before" style="width:{100 * stored / highest:.1f}%"></span>'
        f'<span style="width:{100 * drawn / highest:.1f}%"></span></td><td class="num">{count:,}</td>'
        f'<td class="num dim">{percent(stored, 1)}</td><td class="num">{percent(drawn, 1)}</td></tr>'
        for cell, count, stored, drawn in rows
    ]
    head = (
        '<thead><tr><th></th><th></th><th class="num">samples</th><th class="num">stored</th>'
        '<th class="num">drawn</th></tr></thead>'
    )
    return f'<table class="meter pairs">{head}<tbody>{"".join(lines)}</tbody></table>'


def sparkline(points: Sequence[float]) -> str:
    """Return values between 0 and 1 as a line."""
    step = 100 / max(len(points) - 1, 1)
    path = " ".join(f"{position * step:.1f},{38 - 36 * point:.1f}" for position, point in enumerate(points))
    return (
        '<svg class="spark" viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden="true">'
        f'<polyline points="{path}"/></svg>'
    )


def percent(part: float, whole: float) -> str:
    """Return a share with few digits, and never 0 for something."""
    if not whole:
        return "–"
    found = 100 * part / whole
    if 0 < found < 0.1:
        return "&lt; 0.1 %"
    return f"{found:.1f} %"
