"""The program: its commands, the options they share, and how it ends."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from typing import Any

import click

from dataset_rt.cli.failures import Exit, as_document, exit_code, sentence
from dataset_rt.cli.session import Session

__all__ = ["application", "run"]

# The module of each command, which is loaded when it runs, and what it does in a few words.
_COMMANDS = {
    "info": ("inspect", "Size, format and columns, from the manifests alone."),
    "stats": ("health", "Where the bytes are, and what can be reclaimed."),
    "show": ("show", "Samples: metadata, and what is in each payload field."),
    "head": ("tables", "The first rows of the samples metadata."),
    "query": ("tables", "SQL over the samples metadata."),
    "order": ("order", "Which samples an epoch delivers, and where."),
    "diff": ("diff", "What distinguishes two caches."),
    "verify": ("health", "Check every byte, and list all damage."),
    "repair": ("health", "Keep what can be trusted of a damaged cache."),
    "write": ("combine", "A cache from files, arrays, tables or caches."),
    "append": ("combine", "More samples for a cache."),
    "merge": ("combine", "One cache from several, or from a part of them."),
    "delete": ("remove", "Take samples out."),
    "compact": ("remove", "Leave behind the bytes of deleted samples."),
    "vacuum": ("remove", "Remove old generations."),
    "report": ("report", "An overview as one HTML page."),
    "bench": ("bench", "How fast this machine reads a cache."),
    "completion": ("completion", "Commands and options on the TAB key."),
}


class _Commands(click.Group):
    """Commands in the order of the table above, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click's signature)
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        return getattr(import_module(f"dataset_rt.cli.commands.{module}"), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (click's)
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in _COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not ctx.resilient_parsing and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], _COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would end the process at once, with the code of a difference.
            raise _PipeClosedError from error


class _PipeClosedError(Exception):
    """Whoever read the output went away."""


def _version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"dataset-rt {version('dataset-rt')}")
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 findings or differences, 2 usage, 3 damaged or missing cache, 4 input or output, "
    "130 interrupted. `dataset-rt COMMAND --help` shows the options of a command.",
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
def application() -> None:
    """Look at, check, edit and combine DatasetRT caches."""


def run(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: What follows the name of the program; `None` takes it from `sys.argv`.

    Returns:
        The exit code. Nothing is raised: an error is one message on standard error.
    """
    session = Session()
    # Known before the arguments are understood: a wrong one is answered in the form that was asked for, too.
    session.json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments, session)
        sys.stdout.flush()
    except (BrokenPipeError, _PipeClosedError):
        # What is still in the buffer has nowhere to go; Python would complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.PIPE
    return code


def _run(arguments: list[str] | None, session: Session) -> int:
    try:
        outcome = application.main(arguments, prog_name="dataset-rt", standalone_mode=False, obj=session)
    except (_PipeClosedError, BrokenPipeError):
        raise
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return _answered(session, Exit.USAGE, {"kind": "UsageError", "message": error.format_message()})
    except Exception as error:  # noqa: BLE001 (the last place that can say it in words)
        if session.traceback:
            traceback.print_exc()
        session.complain(sentence(error))
        return _answered(session, exit_code(error), as_document(error))
    return outcome if isinstance(outcome, int) else Exit.OK


def _answered(session: Session, code: Exit, error: dict[str, Any]) -> Exit:
    """Print an error as the JSON document that was asked for, unless there is one already."""
    if session.json and not session.answered:
        session.emit({"error": {"exit_code": int(code), **error}}, lambda _: None)
    return code
