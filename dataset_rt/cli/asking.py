"""Questions before something is changed."""

from __future__ import annotations

import click

from dataset_rt.cli.failures import Exit, Refused
from dataset_rt.cli.session import current
from dataset_rt.inspection.text import one_line

__all__ = ["confirm"]


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless the answer was given with `--yes`.

    Raises:
        Refused: Nobody is there to answer, or the answer is no.
    """
    session = current()
    if yes:
        return
    if session.json or not session.is_interactive:
        raise Refused("this changes the cache; confirm it with --yes", Exit.USAGE)
    if not click.confirm(one_line(question), err=True):
        raise Refused("nothing was changed", Exit.DIFFERENT)
