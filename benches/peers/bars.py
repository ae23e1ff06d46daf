"""How good this package must be against its peers, and whether one run found it so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benches.peers.cases import OURS, PLAIN_THREADS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benches.peers.driver import Result

Pick = Callable[["Result", str], "str | None"]
PEERS = ("store", "array", "loader")


@dataclass(frozen=True)
class Bar:
    """A bound on a ratio to some contender, or on a figure of ours."""

    title: str
    case: str
    figure: str
    bound: float
    ours: str
    against: Pick | None = None
    most: bool = False
    unit: str = ""


@dataclass(frozen=True)
class Finding:
    """A bound, what was found, and against whom."""

    title: str
    wanted: str
    found: str
    met: bool | None
    against: str = ""


def _best(*groups: str, holding: str = "", without: str = "out=") -> Pick:
    def pick(result: Result, key: str) -> str | None:
        (figure,) = (each for each in result.case.figures if each.key == key)
        return result.best(figure, groups, holding=holding, without=without)

    return pick


def _named(label: str) -> Pick:
    return lambda result, _: label if label in result.values else None


_BEST_PEER = _best(*PEERS)
_FIO = _best("yardstick", holding="fio")

_OF_LOADERX = _best("store", holding="loaderx")
_COMPRESSED = f"{OURS}, zstd level 3"
_INTO = f"{OURS}, out="
_BATCHES = f"{OURS}, batches"

BARS: tuple[Bar, ...] = (
    Bar("gather, 12 KiB raw, against the best peer", "gather-12k", "rate", 1.3, OURS, _BEST_PEER),
    Bar("the same, both with out=", "gather-12k", "rate", 1.3, _INTO, _best(*PEERS, holding="out=", without="")),
    Bar("gather, 12 KiB raw, against loaderx", "gather-12k", "rate", 1.8, OURS, _OF_LOADERX),
    Bar("gather, 12 KiB zstd, against the best", "gather-12k-compressed", "rate", 1.3, _COMPRESSED, _BEST_PEER),
    Bar("gather, lz4 where it shrinks, against the best", "gather-runs", "rate", 3.0, f"{OURS}, lz4", _BEST_PEER),
    Bar("gather, 256 B, against the best record store", "gather-256", "rate", 6.0, OURS, _best("store")),
    Bar("gather, 256 B, against a mapped .npy", "gather-256", "rate", 1.0, OURS, _best("array")),
    Bar("gather, variable bytes, against the best peer", "gather-variable", "rate", 1.5, OURS, _BEST_PEER),
    Bar("loader, 12 KiB raw, against the best over a store", "load-12k", "rate", 2.0, OURS, _best("loader")),
    Bar("loader, against PyTorch's over a .npy", "load-12k", "rate", 1.3, OURS, _best("array", holding="torch")),
    Bar("loader, against two plain threads", "load-12k", "rate", 0.7, OURS, _named(PLAIN_THREADS)),
    Bar("loader, compressed, against the best", "load-12k-compressed", "rate", 2.0, _COMPRESSED, _BEST_PEER),
    Bar("loader, weighted against uniform", "load-12k", "rate", 0.9, f"{OURS}, weighted", _named(OURS)),
    Bar("loader, first batch", "load-12k", "first", 10.0, OURS, most=True, unit="ms"),
    Bar("write_arrays with fsync, against loaderx raw", "write-12k", "write", 1.5, OURS, _OF_LOADERX),
    Bar("cold, random 12 KiB, against fio", "cold-12k", "rate", 0.9, _BATCHES, _FIO),
    Bar("cold, random 32 KiB, against fio", "cold-32k", "rate", 0.9, _BATCHES, _FIO),
    Bar("cold, sequential, against fio", "cold-sequential", "rate", 0.8, _BATCHES, _FIO),
    *(
        Bar(f"uniform rows, batches of {size:,}, against loaderx", "sampler", str(size), 1.0, OURS, _OF_LOADERX)
        for size in (256, 1024, 8192)
    ),
    Bar("endless loader, growth over 95,000 batches", "memory", "growth", 16.0, OURS, most=True, unit="MiB"),
)


def judge(bar: Bar, results: Mapping[str, Result]) -> Finding:
    """Compare one bar with what was found."""
    sign = "<=" if bar.most else ">="
    wanted = f"{sign} {bar.bound:g} {bar.unit or 'x'}"
    result = results.get(bar.case)
    own = None if result is None else result.median(bar.ours, bar.figure)
    if result is None or own is None:
        why = "not run" if result is None else result.missing.get(bar.ours, "not measured")
        return Finding(bar.title, wanted, why, None)
    if bar.against is None:
        return Finding(bar.title, wanted, f"{own:,.1f} {bar.unit}", own <= bar.bound if bar.most else own >= bar.bound)
    label = bar.against(result, bar.figure)
    other = None if label is None else result.median(label, bar.figure)
    if not label or not other:
        return Finding(bar.title, wanted, "no such peer was measured", None)
    ratio = own / other
    return Finding(bar.title, wanted, f"{ratio:.2f} x", ratio >= bar.bound, label)


def judged(results: Mapping[str, Result]) -> list[Finding]:
    """Compare all bars whose case was run."""
    return [judge(bar, results) for bar in BARS if bar.case in results]
