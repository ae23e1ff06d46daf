"""Put PyTorch into this environment for the tests of its adapters, when a wheel of it lies at hand.

Usage: torch_for_tests.py FOLDER. Installs nothing when PyTorch is there already, and never fails: where the tests have
to be skipped, one line says why.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

PINS = Path(__file__).resolve().parents[1] / "requirements" / "dev.txt"


def fitting(folder: Path) -> str | None:
    """Return the newest version of PyTorch in `folder` that this Python can use."""
    known, versions = set(sys_tags()), []
    for path in folder.glob("torch-*.whl"):
        try:
            name, version, _, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        if name == "torch" and known & tags:
            versions.append(version)
    return str(max(versions)) if versions else None


def why_not(folder: Path) -> str | None:
    """Install what is missing; return why that cannot be done, or `None`."""
    has_torch = find_spec("torch") is not None
    if has_torch and find_spec("torchdata") is not None:
        return None
    release = version("torch") if has_torch else fitting(folder)
    if release is None:
        return f"PyTorch is not installed, and {folder} has no wheel of it for this Python"
    # Named beside torchdata, so that torchdata does not choose a release of its own.
    packages = [f"torch=={release}", "torchdata"]
    command = ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--constraints", str(PINS)]
    found = ["--find-links", str(folder)] if folder.is_dir() else []
    try:
        done = subprocess.run([*command, *found, *packages], check=False, capture_output=True, text=True)
    except OSError as error:
        return f"uv does not start: {error}"
    if done.returncode == 0:
        return None
    return f"uv could not install {' and '.join(packages)}: {' '.join(done.stderr.split())[:300]}"


if __name__ == "__main__":
    if reason := why_not(Path(sys.argv[1])):
        print(f"tests that need PyTorch or torchdata are skipped: {reason}")
