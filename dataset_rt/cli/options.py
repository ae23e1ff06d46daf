"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from dataset_rt.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DURATION", "cache_path", "cache_paths", "command", "confirmation", "generation", "where"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class _Duration(click.ParamType):
    """A length of time such as `7d`, `12h` or `0s`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no length of time; write a number and s, m, h, d or w, such as 7d", param, ctx)
        try:
            return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
        except OverflowError:
            self.fail(f"{value!r} is longer than can be counted", param, ctx)


DURATION = _Duration()

# A path need not exist for click: the commands say what is wrong with it, with the exit code that belongs to it.
_PATH = click.Path()

cache_path = click.argument("path", metavar="PATH", type=_PATH)
cache_paths = click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=_PATH)
generation = click.option(
    "--generation", type=click.IntRange(min=0), metavar="N", help="This generation instead of the newest."
)
where = click.option("--where", metavar="CONDITION", help='SQL condition over the samples, such as "label = 3".')


def confirmation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--yes`, for a command that asks before it changes something."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(function)


def command(function: Callable[..., Any]) -> click.Command:
    """Make a command of a function: its docstring is the help, and every command has `--json` and `--traceback`."""
    made = click.command(function)
    for flag, text in (("json", "Print one JSON document."), ("traceback", "Show where an error arose.")):
        option = click.Option([f"--{flag}"], is_flag=True, expose_value=False, is_eager=True, help=text, callback=_keep)
        made.params.append(option)
    return made


def _keep(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        setattr(ctx.ensure_object(Session), parameter.name or "", True)
