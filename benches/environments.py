"""Environments of the contenders: made on demand with uv, kept in a cache folder outside the checkout, pinned.

The folder is `$DATASET_RT_BENCH_CACHE`, or `dataset-rt-bench` in the user's cache folder. An environment's folder is
named by what it holds, so that a changed pin makes a new one; nothing is ever changed in place.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.torch_for_tests import fitting

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "requirements" / "dev.txt"
RELEASES = ("0.2.0", "0.4.8")
TORCH = "torch"

# What newer releases of loaderx need NumPy 2.5 for, which needs Python 3.12.
_NEWEST_LOADERX = "2.8.19" if sys.version_info >= (3, 12) else "2.8.6"

PACKAGES: dict[str, tuple[str, ...]] = {
    "numpy": ("numpy==2.4.6",),
    "loaderx 0.5.4": ("loaderx==0.5.4", "numpy==2.4.6"),
    "loaderx newest": (f"loaderx=={_NEWEST_LOADERX}", "numpy>=2.4.6"),
    "grain": ("grain==0.2.18", "array-record==0.8.6", "numpy==2.4.6"),
    "zstandard": ("zstandard==0.25.0", "numpy==2.4.6"),
    "lmdb": ("lmdb==3.0.0", "numpy==2.4.6"),
    "hdf5": ("h5py==3.16.0", "numpy==2.4.6"),
    "zarr": ("zarr==3.1.6", "numcodecs==0.16.6", "numpy==2.4.6"),
    "tensorstore": ("tensorstore==0.1.86", "numpy==2.4.6"),
    "lance": ("pylance==14.0.2", "pyarrow==26.0.1", "numpy==2.4.6"),
    "huggingface": (TORCH, "datasets==5.2.0", "pyarrow==26.0.1", "numpy==2.4.6"),
    "torch": (TORCH, "numpy==2.4.6"),
    "webdataset": (TORCH, "webdataset==1.0.2", "numpy==2.4.6"),
    "litdata": (TORCH, "litdata==0.2.76", "numpy==2.4.6"),
    "mosaicml": (TORCH, "mosaicml-streaming==0.13.0", "numpy==2.1.3"),
    "dataset-rt 0.4.8": (TORCH, "dataset-rt==0.4.8", "pyarrow==26.0.1", "numpy==2.4.6"),
}


class UnavailableError(Exception):
    """An environment cannot be made here; the message says why."""


def cache_folder() -> Path:
    """Return the folder that keeps environments from one run to the next."""
    named = os.environ.get("DATASET_RT_BENCH_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else base / "dataset-rt-bench"


def clean_environment(**changes: str) -> dict[str, str]:
    """Return this process's variables without those that would let one environment see another's packages."""
    hidden = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX"}
    return {key: value for key, value in os.environ.items() if key not in hidden} | changes


def environment_python(name: str) -> Path:
    """Return the interpreter of a peer's environment; raise `UnavailableError` when it cannot be made."""
    links = Path(os.environ.get("DATASET_RT_WHEELS") or ROOT.parent / "shared" / "wheels")
    wanted, options = [], []
    for package in PACKAGES[name]:
        if package != TORCH:
            wanted.append(package)
            continue
        release = fitting(links)
        if release is None:
            raise UnavailableError(f"needs PyTorch, and {links} has no wheel of it for this Python")
        # Always the wheel at hand: the build on PyPI brings several GiB of libraries for CUDA.
        wanted.append(f"torch=={release}")
        options = ["--find-links", str(links)]
    return _made(name, wanted, options)


def peer_python(release: str) -> Path:
    """Return the interpreter of an environment with that release and this project's pinned libraries.

    The libraries they share with this project are pinned to the same versions, so that a comparison is about
    dataset-rt alone. Raises `UnavailableError` when uv cannot make the environment.
    """
    # 0.2.0 hands tables over through pyarrow without declaring it.
    return _made(f"release {release}", [f"dataset-rt=={release}", "pyarrow"], ["--constraints", str(PINS)])


def _made(name: str, wanted: list[str], options: list[str]) -> Path:
    pins = PINS.read_bytes() if str(PINS) in options else b""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    mark = hashlib.sha256("\n".join([version, *wanted]).encode() + pins).hexdigest()[:12]
    folder = cache_folder() / f"{name.replace(' ', '-')}-{mark}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / ".ready"
    if stamp.is_file():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    make = ["uv", "venv", "--quiet", "--clear", "--no-project", "--python", version, str(folder)]
    fill = ["uv", "pip", "install", "--quiet", "--python", str(python), *options, *wanted]
    for command in (make, fill):
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, env=clean_environment())
        except OSError as error:
            raise UnavailableError(f"uv does not start: {error}") from error
        if done.returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)
            raise UnavailableError(f"uv could not install it: {' '.join(done.stderr.split())[:300]}")
    stamp.touch()
    return python
