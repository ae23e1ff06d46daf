"""What several test modules share: sources, configurations, threads of ours, and child processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_rt import (
    CachedDataset,
    CachedSample,
    CacheInput,
    CacheWriteError,
    CacheWriteResult,
    CacheWriteSuccess,
    ReaderConfig,
    WriterConfig,
    write_cache,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[1]

PATIENCE = 120
"""Seconds after which a child that should have ended counts as hanging. No test waits for it when all is well."""

HOLDER = """
    import json, sys
    from pathlib import Path
    from dataset_rt import CacheWriteSuccess, write_cache
    from tests.support import Source, numbered, writer

    def items():
        yield from numbered(50)
        print("holding")
        sys.stdin.readline()
        yield from numbered(50, 50)

    [result] = write_cache(Source("train", items()), Path(sys.argv[1]), writer_config=writer())
    assert isinstance(result, CacheWriteSuccess), result
    print(json.dumps(result.path.name))
"""
"""A child that holds the cache `train` half written until it is told to go on: see `start`."""


@dataclass
class Source:
    """A cache source over any iterable of (data, metadata)."""

    name: Any = "train"
    items: Iterable[Any] = ()
    version: Any = None
    schema: Any = None
    passes: list[int] = field(default_factory=list)
    """One entry per iteration: how many samples it gave before it ended."""

    def __iter__(self) -> Iterator[CacheInput]:
        self.passes.append(0)
        for data, metadata in self.items:
            self.passes[-1] += 1
            yield CacheInput(data, metadata)


def writer(**changes: Any) -> WriterConfig:
    """Return a writer configuration that draws no progress bar."""
    options: dict[str, Any] = {"show_progress": False, **changes}
    return WriterConfig(**options)


def reader(**changes: Any) -> ReaderConfig:
    """Return a reader configuration with a fixed seed."""
    options: dict[str, Any] = {"seed": 7, **changes}
    return ReaderConfig(**options)


def numbered(count: int, start: int = 0) -> list[tuple[bytes, dict[str, Any]]]:
    """Return samples that can be told apart by payload and by metadata."""
    return [(b"payload %d" % n, {"n": n, "name": f"sample {n}"}) for n in range(start, start + count)]


def write(
    base: Path, items: Iterable[Any], name: str = "train", *, version: Any = None, schema: Any = None, **changes: Any
) -> Path:
    """Write one cache and return its directory."""
    [result] = write_cache(Source(name, items, version, schema), base, writer_config=writer(**changes))
    assert isinstance(result, CacheWriteSuccess), result
    assert result.path == base / name
    return result.path


def path_of(result: CacheWriteResult) -> Path:
    """Return the directory of a cache that was written."""
    assert isinstance(result, CacheWriteSuccess), result
    return result.path


def refuse(base: Path, items: Iterable[Any], name: Any = "train", *, schema: Any = None, version: Any = None) -> str:
    """Try to write one cache and return why it was refused; checks that nothing is left of it."""
    before = set(base.iterdir()) if base.exists() else set()
    [result] = write_cache(Source(name, items, version, schema), base, writer_config=writer())
    assert isinstance(result, CacheWriteError), result
    assert (set(base.iterdir()) if base.exists() else set()) == before
    return result.message


def open_in_order(*paths: str | Path, **changes: Any) -> CachedDataset:
    """Open caches for reading in physical order."""
    return CachedDataset(paths, reader_config=reader(shuffle=False, **changes))


def read(*paths: str | Path, **changes: Any) -> list[CachedSample]:
    """Read caches in physical order."""
    return list(open_in_order(*paths, **changes))


def pairs(samples: Iterable[CachedSample]) -> list[tuple[bytes, dict[str, Any]]]:
    """Return payload and metadata of samples."""
    return [(sample.data, sample.metadata) for sample in samples]


def manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a cache."""
    return json.loads((path / "manifest.json").read_text(encoding="utf-8"))


def edit_manifest(path: Path, **changes: Any) -> None:
    """Change fields of a manifest (`...` removes one) and drop its seal, as published releases write it."""
    fields = {**manifest(path), "manifest_crc32c": ..., **changes}
    fields = {name: value for name, value in fields.items() if value is not ...}
    (path / "manifest.json").write_text(json.dumps(fields), encoding="utf-8")


def flip(path: Path, position: int, mask: int = 0xFF) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def own_threads() -> list[str]:
    """Return the names of the threads of this process that the package started."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            continue  # it has just ended
    return [name for name in names if name.startswith("dataset_rt-")]


def start(script: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start a child interpreter that runs `script`, with this module at hand; talk to it through its pipes."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        cwd=ROOT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        **pipes,
    )


def hear(child: subprocess.Popen[str]) -> str:
    """Return the next line of a child's output; empty once it has ended."""
    assert child.stdout is not None
    return child.stdout.readline().rstrip("\n")


def say(child: subprocess.Popen[str], line: str) -> None:
    """Send a line to a child; it leaves with the next `finish`."""
    assert child.stdin is not None
    child.stdin.write(line + "\n")


def finish(child: subprocess.Popen[str]) -> Any:
    """Wait for a child that must end well; return the JSON in its last line of output."""
    try:
        output, errors = child.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        output, errors = child.communicate()
        raise AssertionError(f"the child hangs; it wrote {output!r} and {errors!r}") from None
    assert child.returncode == 0, (child.returncode, output, errors)
    lines = output.splitlines()
    return json.loads(lines[-1]) if lines else None


def run(script: str, *arguments: object) -> Any:
    """Run a child interpreter to its end; return the JSON in its last line of output."""
    return finish(start(script, *arguments))
