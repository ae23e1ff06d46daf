"""What the tests of the command line share: running it here or as a process, and caches to run it on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dataset_rt import CacheWriteSuccess, write_arrays
from dataset_rt.cli.app import run
from tests.support import PATIENCE, ROOT, writer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

HOSTILE = "[red]<script>alert(1)</script>[/red] \x1b[31m\u202e&amp; 'quoted'"
"""What a metadata value may be: markup of Rich, HTML, an escape sequence, and a mark that reverses text."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document on standard output; there is nothing else."""
        found = json.loads(self.out, parse_constant=_refused)
        assert isinstance(found, dict)
        return found


def _refused(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def cli(capsys: pytest.CaptureFixture[str], *arguments: object) -> Outcome:
    """Run a command in this process."""
    capsys.readouterr()
    code = run([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return Outcome(code, captured.out, captured.err)


def process(*arguments: object, **environment: str) -> Outcome:
    """Run a command as `python -m dataset_rt`."""
    done = subprocess.run(
        [sys.executable, "-m", "dataset_rt", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def digits(base: Path, name: str = "digits", count: int = 40, **changes: Any) -> Path:
    """Write a cache of small pictures with two columns of metadata."""
    pictures = np.arange(count * 3 * 8 * 8, dtype=np.uint32).reshape(count, 3, 8, 8).astype(np.uint8)
    metadata = pl.DataFrame({"label": [n % 4 for n in range(count)], "name": [f"digit {n}" for n in range(count)]})
    result = write_arrays(name, {"image": pictures}, base, metadata=metadata, writer_config=writer(**changes))
    assert isinstance(result, CacheWriteSuccess), result
    return result.path
