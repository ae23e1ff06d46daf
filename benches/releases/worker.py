"""Do one piece of work in this environment and print its figures as JSON.

Usage: worker.py ACTION JSON. Every action is a function here that takes the JSON's entries as keyword
arguments and returns a dict of figures: seconds, MiB, or counts per second. Imports and preparation stay
outside the timed parts. Runs under published releases too.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import shutil
import sys
import time
from pathlib import Path
from statistics import median

import polars as pl
from workload import Shape, Source, check, open_dataset, paths_below, table_back, table_out, write

Figures = dict[str, float]
MIB = 1024 * 1024


def memory(field: str = "VmRSS") -> float:
    """Return a line of this process's memory status in MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} on this platform")


def forget_peak() -> None:
    """Start a new high-water mark of resident memory."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def prepare(base: str, shape: dict[str, int]) -> Figures:
    """Write the caches of a shape, unless they are there already."""
    made = Shape(**shape)
    todo = [number for number, path in enumerate(paths_below(Path(base), made)) if not path.exists()]
    for at in range(0, len(todo), 500):
        write([Source(number, made) for number in todo[at : at + 500]], Path(base))
    return {}


def check_epochs(base: str, shape: dict[str, int]) -> Figures:
    """Compare a shuffled and an ordered epoch with the sources, byte for byte."""
    made = Shape(**shape)
    paths = paths_below(Path(base), made)
    return {f"checked {shuffle}": check(open_dataset(paths, shuffle=shuffle), made) for shuffle in (True, False)}


def iterate(base: str, shape: dict[str, int], shuffle: bool, **options: object) -> Figures:
    """Time three epochs: the first pass of this process, then the faster of the later two."""
    made = Shape(**shape)
    dataset = open_dataset(paths_below(Path(base), made), shuffle=shuffle, **options)
    passes = []
    for _ in range(3):
        size = labels = 0
        started = time.perf_counter()
        for sample in dataset:
            size += len(sample.data)
            labels += sample.metadata["label"]
        passes.append(time.perf_counter() - started)
        if size != made.total * made.payload:
            raise RuntimeError(f"expected {made.total * made.payload} bytes in an epoch, found {size}")
    return {"first": passes[0], "later": min(passes[1:])}


def write_once(base: str, shape: dict[str, int], **options: object) -> Figures:
    """Time one write from ready payloads into a fresh folder."""
    made = Shape(**shape)
    folder = Path(base) / f"write-{os.getpid()}"
    sources = [Source(number, made) for number in range(made.caches)]
    os.sync()
    try:
        started = time.perf_counter()
        write(sources, folder, **options)
        figures = {"write": time.perf_counter() - started}
        check(open_dataset(paths_below(folder, made), shuffle=False), made)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.sync()
    return figures


def open_first(base: str, shape: dict[str, int], files: int) -> Figures:
    """Time the first opening in this process up to the first sample, with a limit on open files."""
    import resource  # noqa: PLC0415 - Unix only

    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    made = Shape(**shape)
    paths = paths_below(Path(base), made)
    started = time.perf_counter()
    dataset = open_dataset(paths, shuffle=False)
    opened = time.perf_counter()
    sample = next(iter(dataset))
    ready = time.perf_counter()
    if sample.data != Source(0, made).payload(0):
        raise RuntimeError("the first sample came back changed")
    return {"open": opened - started, "ready": ready - started}


def resident(base: str, shape: dict[str, int]) -> Figures:
    """Measure what an open dataset adds to resident memory, and what an epoch adds without file pages."""
    made = Shape(**shape)
    paths = paths_below(Path(base), made)
    gc.collect()
    before, anonymous = memory(), memory("RssAnon")
    dataset = open_dataset(paths, shuffle=True)
    opened = memory()
    peak = 0.0
    for at, _ in enumerate(dataset):
        if at % 20 == 0:
            peak = max(peak, memory("RssAnon"))
    return {"opened": opened - before, "epoch": peak - anonymous}


def metadata(base: str, shape: dict[str, int]) -> Figures:
    """Time the metadata table out, its first use and the edited weights back; measure the peak they add."""
    made = Shape(**shape)
    dataset = open_dataset(paths_below(Path(base), made), shuffle=True)
    weight = pl.Series("weight", range(1, made.total + 1), dtype=pl.Float64)
    pl.DataFrame({"a": [1.0]}).with_columns(b=pl.col("a") * 2)  # Polars starts its threads outside the clock
    gc.collect()
    forget_peak()
    before = memory()
    started = time.perf_counter()
    table = table_out(dataset)
    out = time.perf_counter() - started
    started = time.perf_counter()
    used = table.select(pl.col("flag").sum(), pl.col("label", "score").sum(), pl.col("text").str.len_bytes().sum())
    use = time.perf_counter() - started
    if used.item(0, "flag") != made.caches * -(-made.samples // 3) or table.height != made.total:
        raise RuntimeError("the metadata table is not what was written")
    edited = table.with_columns(weight)
    size = table.estimated_size("mb")
    del table
    started = time.perf_counter()
    table_back(dataset, edited)
    back = time.perf_counter() - started
    peak = memory("VmHWM") - before
    del edited
    started = time.perf_counter()
    again = table_out(dataset)
    out_again = time.perf_counter() - started
    if not again.get_column("weight").equals(weight):
        raise RuntimeError("the weights did not come back")
    return {"out": out, "use": use, "back": back, "again": out_again, "peak": peak, "tables": peak / size}


def draws(base: str, shape: dict[str, int], count: int) -> Figures:
    """Time weighted draws through `CachedDataset.rows` on one core, with as many distinct weights as rows."""
    made = Shape(**shape)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    dataset = open_dataset(paths_below(Path(base), made), shuffle=True)
    if not hasattr(dataset, "rows"):
        return {}
    table = table_out(dataset)
    table_back(dataset, table.with_columns(pl.Series("weight", range(1, made.total + 1), dtype=pl.Float64)))
    started = time.perf_counter()
    dataset.rows(epoch=0, start=0, stop=1)
    build = time.perf_counter() - started
    drawn, epoch = 0, 0
    started = time.perf_counter()
    while drawn < count:
        drawn += len(dataset.rows(epoch=epoch))
        epoch += 1
    return {"build": build, "rate": drawn / (time.perf_counter() - started)}


def permutation(base: str, shape: dict[str, int], count: int) -> Figures:
    """Time a permutation through `CachedDataset.rows` on one core, epoch after epoch."""
    made = Shape(**shape)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    dataset = open_dataset(paths_below(Path(base), made), shuffle=True, replacement=False)
    dataset.rows(epoch=0)
    drawn, epoch = 0, 1
    started = time.perf_counter()
    while drawn < count:
        drawn += len(dataset.rows(epoch=epoch))
        epoch += 1
    return {"rate": drawn / (time.perf_counter() - started)}


def resume(base: str, shape: dict[str, int], position: int, replacement: bool, weighted: bool) -> Figures:
    """Time opening, loading a state and the first sample, in turns far into an epoch and at its start."""
    made = Shape(**shape)
    paths = paths_below(Path(base), made)
    options = {"shuffle": True, "replacement": replacement, "epoch_length": 2 * position}
    table = None
    if weighted:
        table = table_out(open_dataset(paths, **options)).with_columns(weight=1.0 + pl.int_range(pl.len()) % 7)

    def opened() -> object:
        dataset = open_dataset(paths, **options)
        if table is not None:
            table_back(dataset, table)
        return dataset

    state = opened().state_dict()
    places = {"near": {**state, "position": 0}, "far": {**state, "position": position}}
    found: dict[str, list[float]] = {name: [] for name in places}
    for turn in range(42):
        for name in sorted(places, reverse=turn % 2 == 0):
            gc.collect()
            started = time.perf_counter()
            dataset = opened()
            dataset.load_state_dict(places[name])
            iterator = iter(dataset)
            sample = next(iterator)
            took = time.perf_counter() - started
            iterator.close()
            at = places[name]["position"]
            if sample.sample_id != dataset.order(0, at, at + 1).item(0, "sample_id"):
                raise RuntimeError("the first sample is not that of the position")
            if turn >= 2:
                found[name].append(took)
    figures = {name: median(times) for name, times in found.items()}
    return {**figures, "ratio": figures["far"] / figures["near"]}


def _rate(samples: object) -> float:
    """Return how many samples a pass delivers in a second; items may be lists of samples."""
    count = size = 0
    started = time.perf_counter()
    for item in samples:
        for sample in item if isinstance(item, list) else (item,):
            size += len(sample.data)
            count += 1
    took = time.perf_counter() - started
    if not size:
        raise RuntimeError("a pass delivered nothing")
    return count / took


def view(base: str, shape: dict[str, int]) -> Figures:
    """Time a view of every hundredth row and the whole in turns."""
    made = Shape(**shape)
    dataset = open_dataset(paths_below(Path(base), made), shuffle=True)
    part = dataset.select(table_out(dataset).sample(fraction=0.01, seed=7))
    _rate(dataset)  # the first pass checks every sample
    parts, wholes = [], []
    for _ in range(4):
        parts += [_rate(part) for _ in range(25)]
        wholes.append(_rate(dataset))
    figures = {"view": median(parts), "whole": median(wholes)}
    return {**figures, "ratio": figures["view"] / figures["whole"]}


def torch_loader(base: str, shape: dict[str, int], batch_size: int | None) -> Figures:
    """Time a DataLoader without workers over the iterable adapter, and plain iteration, in turns."""
    try:
        from torch.utils.data import DataLoader  # noqa: PLC0415 (only here)
    except ImportError:
        sys.exit("PyTorch is not installed: `just test-python` installs it where a wheel lies at hand")
    made = Shape(**shape)
    dataset = open_dataset(paths_below(Path(base), made), shuffle=True)
    loader = DataLoader(dataset.to_torch_iterable_dataset(), batch_size=batch_size, collate_fn=lambda item: item)
    _rate(dataset)
    loaders, plains = [], []
    for _ in range(5):
        loaders.append(_rate(loader))
        plains.append(_rate(dataset))
    figures = {"loader": median(loaders), "plain": median(plains)}
    return {**figures, "ratio": figures["loader"] / figures["plain"]}


def bounded(base: str, shape: dict[str, int], prefetch_size: int) -> Figures:
    """Measure the memory without file pages that writing and then reading large payloads adds."""
    made = Shape(**shape)
    folder = Path(base) / f"bounded-{os.getpid()}"
    peaks = {"writing": 0.0, "reading": 0.0}

    class Watched(Source):
        """A source that looks at memory whenever the writer asks for a sample."""

        def __iter__(self):  # noqa: ANN204
            """Yield the samples and note the memory at each."""
            for sample in super().__iter__():
                peaks["writing"] = max(peaks["writing"], memory("RssAnon"))
                yield sample

    sources = [Watched(number, made) for number in range(made.caches)]
    gc.collect()
    before = memory("RssAnon")
    try:
        write(sources, folder, prefetch_size=prefetch_size)
        peaks["writing"] -= before
        dataset = open_dataset(paths_below(folder, made), shuffle=True, prefetch_size=prefetch_size)
        before = memory("RssAnon")
        for _ in dataset:
            peaks["reading"] = max(peaks["reading"], memory("RssAnon"))
        peaks["reading"] -= before
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.sync()
    return peaks


def versions() -> dict[str, str]:
    """Return the versions that matter here."""
    return {name: importlib.metadata.version(name) for name in ("dataset-rt", "polars")}


ACTIONS = {
    action.__name__: action
    for action in (
        prepare,
        check_epochs,
        iterate,
        write_once,
        open_first,
        resident,
        metadata,
        draws,
        permutation,
        resume,
        view,
        torch_loader,
        bounded,
        versions,
    )
}

if __name__ == "__main__":
    print(json.dumps(ACTIONS[sys.argv[1]](**json.loads(sys.argv[2]))))
