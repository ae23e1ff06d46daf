"""`docs/benchmarks.md`: a part for each of the two comparisons, so that one can be recorded without the other."""

from __future__ import annotations

from benches.environments import ROOT

DOCUMENT = ROOT / "docs" / "benchmarks.md"
PARTS = ("peers", "releases")
HEAD = """\
# Benchmarks

Written by `just bench-peers --record` and `just bench --record`; do not edit by hand.
"""


def record(part: str, text: str) -> str:
    """Put the text of one part into the document and leave the others; return where the document is."""
    found = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.is_file() else ""
    pieces = {name: _between(found, name) for name in PARTS} | {part: text.strip()}
    kept = [f"<!-- {name} -->\n\n{piece}\n\n<!-- end of {name} -->\n" for name, piece in pieces.items() if piece]
    DOCUMENT.write_text("\n".join([HEAD, *kept]), encoding="utf-8")
    return str(DOCUMENT.relative_to(ROOT))


def _between(text: str, name: str) -> str:
    _, opened, rest = text.partition(f"<!-- {name} -->")
    inside, closed, _ = rest.partition(f"<!-- end of {name} -->")
    return inside.strip() if opened and closed else ""
