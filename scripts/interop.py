"""Write caches with this package and let published releases read them back, sample for sample.

Each release runs in its own environment and process. Payload bytes, metadata values with their types, the
samples metadata table and the physical order must all be what the sources yielded, with and without
`validate_cache`.
One line per case; the exit status is 1 when any case differs.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benches.environments import RELEASES, clean_environment, peer_python
from dataset_rt import (
    CacheInput,
    CacheWriteError,
    ShardCompression,
    WriterConfig,
    write_cache,
)
from scripts.interop_reader import describe_row, describe_sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Algo = Literal["none", "lz4"]
Sample = tuple[bytes, dict[str, bool | int | float | str]]
READER = Path(__file__).with_name("interop_reader.py")
RNG = random.Random(20_261_129)  # noqa: S311 - test data, not a secret

TEXTS = (
    "",
    "plain",
    "Grüße",
    "漢字かな",
    "🦀🐍",
    "a\tb\nc",
    'quote " and \\',
    "\u2028\u200f",
    "nul\x00inside",
    "e\u0301",
)
INTEGERS = (0, 1, -1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 0.1, 1e-320, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1e300, 2.0**60)
SIZES = (0, 1, 3, 255, 256, 4095, 4096, 70_000)


@dataclass(frozen=True)
class Listed:
    """A cache source over a list of samples."""

    name: str
    samples: list[Sample]

    def __iter__(self) -> Iterator[CacheInput]:
        """Yield the samples in order."""
        return (CacheInput(data, metadata) for data, metadata in self.samples)


@dataclass(frozen=True)
class Case:
    """What to write, and how."""

    title: str
    sources: Callable[[], list[Listed]]
    algo: Algo = "none"
    max_shard_bytes: int = 64 * 1024 * 1024
    level: int | None = None


@dataclass(frozen=True)
class Written:
    """A case on disk, and what a reader must deliver from it."""

    title: str
    paths: list[Path]
    expected: list[str]
    rows: int


def small(count: int = 50) -> list[Sample]:
    """Return compressible samples of every metadata kind."""
    return [
        (b"sample %d " % row * row, {"b": row % 3 == 0, "i": row, "f": row / 7, "s": f"row {row}"})
        for row in range(count)
    ]


def extremes() -> list[Sample]:
    """Return samples that hold the ends of every metadata range and awkward text."""
    count = max(len(TEXTS), len(INTEGERS), len(FLOATS))
    return [
        (
            TEXTS[row % len(TEXTS)].encode(),
            {
                "integer": INTEGERS[row % len(INTEGERS)],
                "float": FLOATS[row % len(FLOATS)],
                "text": TEXTS[row % len(TEXTS)],
                "ключ 鍵 🗝": TEXTS[-1 - row % len(TEXTS)],
                "Upper": row % 2 == 0,
                "_under": row % 2 == 1,
            },
        )
        for row in range(count)
    ]


def random_bytes() -> list[Sample]:
    """Return payloads that no compressor shrinks, in sizes around the usual boundaries."""
    return [(RNG.randbytes(size), {"size": size}) for size in SIZES * 4]


def mixed() -> list[Sample]:
    """Return payloads that shrink, payloads that do not and empty ones, side by side."""
    kinds = (bytes, RNG.randbytes, lambda size: RNG.randbytes(size // 2) * 2)
    return [(kinds[row % 3](SIZES[row % len(SIZES)]), {"row": row}) for row in range(60)]


def many_rows() -> list[Sample]:
    """Return more rows than one record batch of the metadata file holds."""
    return [(row.to_bytes(4, "little"), {"row": row, "even": row % 2 == 0}) for row in range(70_000)]


def one(make: Callable[[], list[Sample]], name: str = "cache") -> Callable[[], list[Listed]]:
    """Return a maker of a single source of that name."""
    return lambda: [Listed(name, make())]


def plain_and_lz4(title: str, sources: Callable[[], list[Listed]], **options: int) -> list[Case]:
    """Return the case once without compression and once with lz4."""
    algorithms: tuple[Algo, ...] = ("none", "lz4")
    return [Case(f"{title}, {algo}", sources, algo, **options) for algo in algorithms]


CASES = [
    *plain_and_lz4("every metadata kind", one(small)),
    *plain_and_lz4("several shards", one(small), max_shard_bytes=2048),
    *plain_and_lz4("a shard per sample", one(small), max_shard_bytes=1),
    *plain_and_lz4("extreme values, unicode", one(extremes, "Grüße 漢字 🦀")),
    *plain_and_lz4("incompressible payloads", one(random_bytes)),
    *plain_and_lz4("mixed payloads, several shards", one(mixed), max_shard_bytes=100_000),
    Case("mixed payloads, lz4 level 9", one(mixed), "lz4", level=9),
    *plain_and_lz4("only empty payloads", one(lambda: [(b"", {"row": row}) for row in range(5)])),
    *plain_and_lz4("no metadata", one(lambda: [(b"x" * row, {}) for row in range(5)])),
    *plain_and_lz4("one sample", one(lambda: [(b"alone", {"only": True})])),
    *plain_and_lz4("70,000 rows", one(many_rows)),
    *plain_and_lz4("three caches", lambda: [Listed(f"part-{part}", small(10 + part)) for part in range(3)]),
]


def expected_lines(sources: list[Listed]) -> list[str]:
    """Return what a reader must print: every sample, then every table row."""
    samples, rows = [], []
    for cache_id, source in enumerate(sources):
        for sample_id, (data, metadata) in enumerate(source.samples):
            samples.append(describe_sample(data, metadata, cache_id, sample_id))
            columns = {key: metadata[key] for key in sorted(metadata)}
            ids = {"cache_id": cache_id, "sample_id": sample_id}
            rows.append(describe_row(ids | columns | {"weight": 1.0}))
    return samples + rows


def write(case: Case, base: Path) -> Written:
    """Write one case below `base` and note what must come back."""
    sources = case.sources()
    config = WriterConfig(
        max_shard_bytes=case.max_shard_bytes,
        shard_compression=ShardCompression(algo=case.algo, level=case.level),
        show_progress=False,
    )
    paths = []
    for result in write_cache(sources, base, writer_config=config):
        if isinstance(result, CacheWriteError):
            sys.exit(f"{case.title}: not written: {result.message}")
        paths.append(result.path)
    return Written(case.title, paths, expected_lines(sources), sum(len(source.samples) for source in sources))


def read_all(python: Path, written: list[Written], *, validate: bool) -> list[tuple[list[str], str]]:
    """Read every case with another environment; return the lines and the error of each."""
    jobs = [{"validate": validate, "paths": [str(path) for path in case.paths]} for case in written]
    done = subprocess.run(
        [str(python), str(READER)],
        check=False,
        input=json.dumps(jobs),
        capture_output=True,
        encoding="utf-8",
        env=clean_environment(PYTHONUTF8="1"),
        timeout=600,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    lost = f"the reader ended with status {done.returncode}: {done.stderr.strip()[-300:]}"
    answers += [{"lines": [], "error": lost}] * (len(written) - len(answers))
    return [(answer["lines"], answer["error"]) for answer in answers]


def difference(expected: list[str], found: list[str], error: str) -> str:
    """Say in a few words where two outputs part, or nothing when they are equal."""
    if error:
        return error
    for at, (wanted, got) in enumerate(zip(expected, found, strict=False)):
        if wanted != got:
            return f"line {at}: expected {wanted[:300]}, found {got[:300]}"
    return "" if len(expected) == len(found) else f"expected {len(expected)} lines, found {len(found)}"


def main() -> None:
    """Write every case, read all with every release, and exit with 1 when one differs."""
    peers = {release: peer_python(release) for release in RELEASES}
    with tempfile.TemporaryDirectory(prefix="interop-") as folder:
        written = [write(case, Path(folder) / str(number)) for number, case in enumerate(CASES)]
        faults: list[list[str]] = [[] for _ in written]
        for release, python in peers.items():
            for validate in (False, True):
                answers = read_all(python, written, validate=validate)
                for case, fault, (lines, error) in zip(written, faults, answers, strict=True):
                    if found := difference(case.expected, lines, error):
                        fault.append(f"{release}, validate_cache={validate}: {found}")
        for case, fault in zip(written, faults, strict=True):
            shards = sum(len(list((path / "shards").iterdir())) for path in case.paths)
            print(f"{'FAIL' if fault else 'ok':6}{case.title}: {case.rows:,} samples, {shards} shards")
            print("".join(f"      {line}\n" for line in fault), end="")
    good = faults.count([])
    print(f"\n{good} of {len(CASES)} cases read back equal by {' and '.join(RELEASES)}")
    sys.exit(good != len(CASES))


if __name__ == "__main__":
    main()
