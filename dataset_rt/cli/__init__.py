"""The command line `dataset-rt`; what it does is in `docs/guides/command-line.md`.

Nothing here is imported by `import dataset_rt`, and nothing heavy before a command needs it.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run one command and end the process with its exit code.

    Args:
        arguments: What follows the name of the program; `None` takes it from `sys.argv`.
    """
    try:
        from dataset_rt.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(arguments))
