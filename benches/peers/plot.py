"""Draw the main cases as horizontal bars, in SVG that is read well on light and dark pages."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from benches.peers.report import number, ranked

if TYPE_CHECKING:
    from benches.peers.driver import Result

SHOWN = (
    "gather-12k",
    "gather-12k-compressed",
    "gather-256",
    "gather-variable",
    "load-12k",
    "load-12k-compressed",
    "cold-12k",
    "cold-32k",
)
WIDTH, NAMES, ROW, HEAD, GAP = 900, 290, 20, 34, 18
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 14px; }
.store, .loader { fill: #8c96a3; } .array { fill: #b9a06a; } .ours { fill: #2f7fd6; }
.yardstick { fill: none; stroke: #8c96a3; stroke-dasharray: 3 2; }
.spread { stroke: #24292f; stroke-width: 1; }
@media (prefers-color-scheme: dark) { text { fill: #d5dbe1; } .spread { stroke: #d5dbe1; } }
"""


def svg(results: list[Result]) -> str:
    """Return the picture; a thin line over a bar reaches from the smallest to the largest value."""
    shown = [result for name in SHOWN for result in results if result.case.name == name and result.values]
    parts, top = [], GAP
    for result in shown:
        block, height = _case(result, top)
        parts += block
        top += height + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def _case(result: Result, top: int) -> tuple[list[str], int]:
    figure = result.case.figures[0]
    labels = ranked(result, figure)
    most = max(max(result.values[label][figure.key]) for label in labels)
    scale = (WIDTH - NAMES - 90) / (most or 1.0)
    title = f"{result.case.title}, {figure.unit}"
    parts = [f'<text class="title" x="10" y="{top + 16}">{escape(title)}</text>']
    for place, label in enumerate(labels):
        y = top + HEAD + place * ROW
        values = result.values[label][figure.key]
        middle = result.median(label, figure.key) or 0.0
        width = middle * scale
        low, high = NAMES + min(values) * scale, NAMES + max(values) * scale
        parts += [
            f'<text x="{NAMES - 8}" y="{y + 11}" text-anchor="end">{escape(label)}</text>',
            f'<rect class="{result.groups[label]}" x="{NAMES}" y="{y}" width="{width:.1f}" height="{ROW - 6}"/>',
            f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{y + 7}" y2="{y + 7}"/>',
            f'<text x="{high + 6:.1f}" y="{y + 11}">{number(middle)}</text>',
        ]
    return parts, HEAD + len(labels) * ROW
