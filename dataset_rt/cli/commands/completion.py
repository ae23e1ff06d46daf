"""`completion`: words of the command line on the TAB key."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from dataset_rt.cli import display
from dataset_rt.cli.failures import Refused
from dataset_rt.cli.options import command
from dataset_rt.cli.session import current

__all__ = ["completion"]

_SHELLS = ("bash", "zsh", "fish")
_PROGRAM, _VARIABLE = "dataset-rt", "_DATASET_RT_COMPLETE"

_MARK = "# completion of dataset-rt"


@command
@click.argument("action", type=click.Choice(["show", "install"]))
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
def completion(action: str, shell: str | None) -> None:
    """Show or install shell completion for bash, zsh or fish.

    Without SHELL it is that of the environment. `install` puts a script below the home directory and, for bash and zsh,
    a line that reads it into .bashrc or .zshrc, once.
    """
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in _SHELLS:
        raise Refused(f"cannot tell the shell from SHELL={chosen!r}; name it: {', '.join(_SHELLS)}")
    script = _script(chosen)
    if action == "show":
        current().emit({"shell": chosen, "script": script}, lambda _: click.echo(script, nl=False))
        return
    target, start_file = _places(chosen)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(script, encoding="utf-8")
    if start_file is not None:
        before = start_file.read_text(encoding="utf-8") if start_file.exists() else ""
        if _MARK not in before:
            line = f"source '{target}'  {_MARK}\n"
            joint = "" if not before or before.endswith("\n") else "\n"
            with start_file.open("a", encoding="utf-8") as file:
                file.write(joint + line)
    document = {"shell": chosen, "script": str(target), "start_file": start_file and str(start_file)}
    text = f"completion for {chosen} is in {target}; it works in the next shell"
    current().emit(document, lambda console: display.note(console, text, style=""))


def _script(shell: str) -> str:
    from dataset_rt.cli.app import application

    kind = get_completion_class(shell)
    if kind is None:
        raise Refused(f"there is no completion for {shell}")
    # Not `source()`: for bash it first runs bash to look at its version, where there may be none.
    found = kind(application, {}, _PROGRAM, _VARIABLE)
    return found.source_template % found.source_vars()


def _places(shell: str) -> tuple[Path, Path | None]:
    """Return where the script goes, and the file that has to read it."""
    home = Path.home()
    if shell == "fish":
        return home / ".config" / "fish" / "completions" / f"{_PROGRAM}.fish", None
    return home / ".local" / "share" / _PROGRAM / f"completion.{shell}", home / f".{shell}rc"
