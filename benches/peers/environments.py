"""Environments of the published releases, made once with uv and kept under `target/peers/`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASES = ("0.2.0", "0.4.8")
EXTRA = ("pyarrow",)  # 0.2.0 hands tables over through it without declaring it


def peer_python(release: str) -> Path:
    """Return the interpreter of an environment that holds that release and this project's pinned libraries.

    The libraries they share with this project are pinned to the same versions, so that a comparison is about
    dataset-rt alone. Raises `CalledProcessError` when uv cannot make the environment.
    """
    folder = ROOT / "target" / "peers" / release
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / ".ready"
    pins = ROOT / "requirements" / "dev.txt"
    if stamp.is_file() and stamp.read_bytes() == pins.read_bytes():
        return python
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    wanted = [f"dataset-rt=={release}", *EXTRA]
    make = ["uv", "venv", "--quiet", "--clear", "--no-project", "--python", version, str(folder)]
    fill = ["uv", "pip", "install", "--quiet", "--python", str(python), "--constraints", str(pins), *wanted]
    for command in (make, fill):
        subprocess.run(command, check=True, env=environment)
    stamp.write_bytes(pins.read_bytes())
    return python


def clean_environment(**changes: str) -> dict[str, str]:
    """Return this process's variables without those that would let one environment see another's packages."""
    hidden = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX"}
    return {key: value for key, value in os.environ.items() if key not in hidden} | changes
