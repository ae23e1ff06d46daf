"""Tables and lists for people: columns where they fit, one value a line where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from dataset_rt.inspection.text import count, one_line, value, width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl
    from rich.console import Console

__all__ = ["facts", "frame", "heading", "note", "rows"]

_CELL_LONGEST = 60
"""Characters of a cell in a terminal; elsewhere cells are whole."""


def heading(console: Console, text: str) -> None:
    """Print the title of what follows."""
    console.print(Text(one_line(text), style="bold"))


def note(console: Console, text: str, style: str = "dim") -> None:
    """Print a remark."""
    console.print(Text(one_line(text), style=style))


def facts(console: Console, pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names with their values, one a line; values of `None` are left out."""
    kept = [(one_line(name), one_line(item)) for name, item in pairs if item is not None]
    if not console.is_terminal:
        _plain(console, [list(pair) for pair in kept], set())
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for pair in kept:
        grid.add_row(*map(Text, pair))
    console.print(grid)


def rows(
    console: Console,
    names: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    right: Iterable[int] = (),
    short: int = 20,
) -> None:
    """Print a table, or its rows one below the other if they do not fit the width.

    Args:
        console: Where to.
        names: Titles of the columns.
        lines: The cells of each row, as text.
        right: Numbers of the columns that are aligned to the right.
        short: Most rows that are printed one below the other.
    """
    titles = [one_line(name) for name in names]
    cells = [[one_line(cell) for cell in line] for line in lines]
    aligned = set(right)
    if not console.is_terminal:
        _plain(console, [titles, *cells], aligned)
        return
    needed = sum(
        max([width(title), *(width(line[number]) for line in cells)]) + 3 for number, title in enumerate(titles)
    )
    if needed > console.width and len(cells) <= short:
        for number, line in enumerate(cells):
            if number:
                console.print()
            facts(console, zip(titles, line, strict=True))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, title in enumerate(titles):
        justify = "right" if number in aligned else "left"
        table.add_column(Text(title), justify=justify, overflow="fold", header_style="bold")
    for line in cells:
        table.add_row(*(Text(cell, style="dim" if cell == "null" else "") for cell in line))
    console.print(table)


def frame(console: Console, found: pl.DataFrame, total: int | None = None) -> None:
    """Print the rows of a frame, and how many more there are."""
    longest = _CELL_LONGEST if console.is_terminal else None
    numeric = [number for number, dtype in enumerate(found.dtypes) if dtype.is_numeric()]
    lines = [[value(cell, longest) for cell in row] for row in found.iter_rows()]
    rows(console, found.columns, lines, right=numeric)
    if total is not None and total > found.height:
        note(console, f"… {count(total - found.height, 'more row')}")


def _plain(console: Console, lines: Sequence[Sequence[str]], right: set[int]) -> None:
    """Write aligned lines as they are: for files and other programs, and however many there are."""
    longest = [max(map(width, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            " " * (room - width(cell)) + cell if number in right else cell + " " * (room - width(cell))
            for number, (cell, room) in enumerate(zip(line, longest, strict=True))
        ]
        console.file.write("  ".join(cells).rstrip() + "\n")
