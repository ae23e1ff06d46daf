"""What one run of the program shares: where output goes, and in which form."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import os
import sys
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from dataset_rt.inspection.text import safe

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["Session", "current", "plain"]

_ENDLESS = 100_000
"""Columns of an output that is no terminal: a line is never broken for whoever searches it."""


class _Console(Console):
    """A console that prints data as it is, and leaves a reader that went away to whoever runs the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Session:
    """Output of one run."""

    def __init__(self) -> None:
        self.json = False
        self.traceback = bool(os.environ.get("DATASET_RT_TRACEBACK"))
        self.answered = False

    @cached_property
    def out(self) -> Console:
        """Standard output, for people."""
        return _console(stderr=False)

    @cached_property
    def err(self) -> Console:
        """Standard error: progress and messages."""
        return _console(stderr=True)

    @property
    def is_interactive(self) -> bool:
        """Whether a person can be asked."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def emit(self, document: dict[str, Any], render: Callable[[Console], None]) -> None:
        """Print the result of a command, once: as JSON, if that was asked for, or for people."""
        self.answered = True
        if not self.json:
            render(self.out)
            return
        indent = 2 if sys.stdout.isatty() else None
        click.echo(json.dumps(plain(document), indent=indent, allow_nan=False))

    def complain(self, message: str) -> None:
        """Print the message of an error."""
        self.err.print(Text.assemble(("error:", "bold red"), " ", safe(message)))

    @contextmanager
    def waiting(self, what: str) -> Generator[None]:
        """Show that work goes on, where somebody can see it."""
        with self.progress() as update:
            update(what)
            yield

    @contextmanager
    def progress(self) -> Generator[Callable[[str], None]]:
        """Show what goes on, as the function that is handed out is told, where somebody can see it."""
        if not sys.stderr.isatty():
            yield lambda _: None
            return
        with self.err.status("") as status:
            yield lambda what: status.update(safe(what))


def current() -> Session:
    """Return the session of the command that runs."""
    return click.get_current_context().ensure_object(Session)


def plain(item: Any) -> Any:
    """Return a result as JSON can hold it.

    Paths and times become text, frames lists of rows, and the floats that JSON lacks the strings `"NaN"`, `"Infinity"`
    and `"-Infinity"`, as in the storage format.
    """
    match item:
        case None | bool() | str() | int():
            found = item
        case float():
            found = item if math.isfinite(item) else json.dumps(item)
        case dict():
            found = {str(name): plain(part) for name, part in item.items()}
        case list() | tuple():
            found = [plain(part) for part in item]
        case dt.date() | dt.time():
            found = item.isoformat()
        case dt.timedelta():
            found = item.total_seconds()
        case _:
            found = _plain_object(item)
    return found


def _plain_object(item: Any) -> Any:
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: plain(getattr(item, field.name)) for field in dataclasses.fields(item)}
    # Frames of Polars, then series, arrays and numbers of NumPy: none of them need be loaded.
    for convert in ("to_dicts", "tolist", "to_list"):
        if hasattr(item, convert):
            return plain(getattr(item, convert)())
    return item.hex() if isinstance(item, bytes) else str(item)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    options: dict[str, Any] = {} if stream.isatty() else {"width": _ENDLESS}
    return _Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=False, **options)
