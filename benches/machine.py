"""Where figures come from: processor, memory, disk and versions."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path


def busy() -> float:
    """Return how many processes wanted to run in the last minute; warn when others disturb the figures."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > 0.5:
        print(f"other work keeps this machine busy (load {load:.1f}): expect wide spreads", file=sys.stderr)
    return load


def described(base: Path, load: float) -> list[str]:
    """Return lines of a Markdown list."""
    kib = _first_value("/proc/meminfo", "MemTotal").split()[0]
    memory = f"{int(kib) / 1024 / 1024:.0f} GiB" if kib.isdigit() else "unknown"
    filesystem = _output("stat", "--file-system", "--format=%T", str(base))
    return [
        f"* processor: {_first_value('/proc/cpuinfo', 'model name')}, {os.cpu_count()} logical cores",
        f"* other work: load of {load:.1f} when the run started",
        f"* memory: {memory}; data on {filesystem}",
        f"* system: {platform.system()} {platform.release()}, Python {platform.python_version()}",
        f"* compiler: {_output('rustc', '--version')}",
    ]


def _first_value(path: str, key: str) -> str:
    try:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return "unknown"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
