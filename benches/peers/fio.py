"""Ask fio what the disk can do."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1024**3
SECONDS = 0.8  # of each fio run


class FioUnavailableError(Exception):
    """fio cannot be run here; the message says why."""


def fio(file: Path, access: str, block: str, depth: int) -> float:
    """Return the GiB a second that fio reads from a file past the page cache at one queue depth."""
    program = shutil.which("fio")
    if program is None:
        raise FioUnavailableError("fio is not installed (Debian: apt-get install fio)")
    reason = ""
    for engine in ("io_uring", "libaio"):
        command = [
            program,
            "--name=bench",
            f"--filename={file}",
            "--readonly",
            "--direct=1",
            f"--rw={access}",
            f"--bs={block}",
            f"--iodepth={depth}",
            f"--ioengine={engine}",
            "--time_based",
            f"--runtime={SECONDS}",
            "--output-format=json",
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        start = done.stdout.find("{")
        if done.returncode == 0 and start >= 0:
            return json.loads(done.stdout[start:])["jobs"][0]["read"]["bw_bytes"] / GIB
        reason = " ".join((done.stderr or done.stdout).split())[:200]
    raise FioUnavailableError(f"fio does not run here: {reason}")
