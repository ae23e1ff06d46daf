"""What is measured: the data, the work, the figures and how good each must be."""

from __future__ import annotations

from dataclasses import dataclass, field

OURS = "this package"
SCIPY = "SciPy"

SHAPES: dict[str, dict[str, int]] = {
    "1 KiB": {"caches": 1, "samples": 100_000, "payload": 1024},
    "12 KiB": {"caches": 1, "samples": 20_000, "payload": 12 * 1024},
    "1,000 caches": {"caches": 1_000, "samples": 100, "payload": 256},
    "10,000 caches": {"caches": 10_000, "samples": 100, "payload": 64},
    "million rows": {"caches": 4, "samples": 250_000, "payload": 8, "columns": 4},
    "10 million rows": {"caches": 4, "samples": 2_500_000, "payload": 8, "columns": 4, "checked": 100_000},
    "2,000 x 1 KiB": {"caches": 1, "samples": 2_000, "payload": 1024},
    "2,000 x 256 KiB": {"caches": 1, "samples": 2_000, "payload": 256 * 1024},
    "96 x 8 MiB": {"caches": 1, "samples": 96, "payload": 8 * 1024 * 1024},
}


@dataclass(frozen=True)
class Figure:
    """One number of a case.

    `target` is the least allowed ratio of the best peer's median to ours (for a rate: ours to theirs); `only`
    names the single peer that counts. `least` and `most` bound our own median, in the unit shown. A figure without any
    of them is shown for information.
    """

    key: str
    title: str
    unit: str = "ms"
    target: float | None = None
    only: str | None = None
    least: float | None = None
    most: float | None = None

    @property
    def higher_is_better(self) -> bool:
        """Whether the figure is a rate."""
        return self.unit == "M/s"


@dataclass(frozen=True)
class Case:
    """One action on one shape of data, for this package and, unless `ours_only`, every peer."""

    name: str
    title: str
    action: str
    shape: str
    figures: tuple[Figure, ...]
    options: dict[str, object] = field(default_factory=dict)
    stored: bool = True  # read caches that are prepared once, rather than write some
    ours_only: bool = False
    peers: tuple[str, ...] | None = None

    def arguments(self, base: str) -> dict[str, object]:
        """Return what the worker's action is called with."""
        return {"base": base, "shape": SHAPES[self.shape], **self.options}


def _iterate(size: str, target: float) -> list[Case]:
    return [
        Case(
            name=f"iterate-{size.removesuffix(' KiB')}k-{'shuffled' if shuffle else 'ordered'}",
            title=f"iterate {SHAPES[size]['samples']:,} x {size}, {'shuffled' if shuffle else 'in order'}",
            action="iterate",
            shape=size,
            options={"shuffle": shuffle},
            figures=(
                Figure("later", "a later pass", target=target),
                Figure("first", "the first pass of a process", target=target),
            ),
        )
        for shuffle in (True, False)
    ]


def _verify(size: str) -> list[Case]:
    return [
        Case(
            name=f"verify-{size.removesuffix(' KiB')}k-{verify}",
            title=f'verify="{verify}", {size}, in order',
            action="iterate",
            shape=size,
            options={"shuffle": False, "verify": verify},
            figures=(Figure("first", "first pass"), Figure("later", "later pass")),
            ours_only=True,
        )
        for verify in ("never", "first", "always")
    ]


CASES: list[Case] = [
    *_iterate("1 KiB", 5.0),
    *_iterate("12 KiB", 3.0),
    *_verify("1 KiB"),
    *_verify("12 KiB"),
    Case(
        "write-12k",
        "write 20,000 x 12 KiB (this package with fsync, the others without)",
        "write_once",
        "12 KiB",
        (Figure("write", "write", target=1.0),),
        stored=False,
    ),
    Case(
        "write-1k",
        "write 100,000 x 1 KiB (this package with fsync, the others without)",
        "write_once",
        "1 KiB",
        (Figure("write", "write", target=2.0),),
        stored=False,
    ),
    Case(
        "open-1000",
        "open 1,000 caches of 100 samples",
        "open_first",
        "1,000 caches",
        (Figure("ready", "until the first sample", target=1.5), Figure("open", "open alone")),
        options={"files": 1024},
    ),
    Case(
        "open-10000",
        "open 10,000 caches under a limit of 1,024 open files",
        "open_first",
        "10,000 caches",
        (Figure("ready", "until the first sample", target=1.3), Figure("open", "open alone")),
        options={"files": 1024},
    ),
    *(
        Case(
            f"resident-{at}",
            f"memory of an open dataset, {shape}",
            "resident",
            shape,
            (
                Figure("opened", "added by opening", "MiB"),
                Figure("epoch", "peak of an epoch, no file pages", "MiB"),
            ),
        )
        for at, shape in (("small", "2,000 x 1 KiB"), ("large", "2,000 x 256 KiB"))
    ),
    Case(
        "bounded",
        "memory while writing and reading 768 MiB of 8 MiB payloads, prefetch_size=4",
        "bounded",
        "96 x 8 MiB",
        (Figure("writing", "added while writing", "MiB"), Figure("reading", "added while reading", "MiB")),
        options={"prefetch_size": 4},
        stored=False,
    ),
    *(
        Case(
            name,
            f"{rows} metadata rows: bool, int, float, string",
            "metadata",
            shape,
            (
                Figure("out", "table out, first time", target=out, only="0.4.8"),
                Figure("again", "table out, after the edit"),
                Figure("use", "first look at every column"),
                Figure("back", "edited weights back", target=3.0, only="0.4.8"),
                Figure("peak", "memory peak of all that", "MiB", target=2.0, only="0.4.8"),
                Figure("tables", "memory peak / size of the table", "x", most=3.0),
            ),
        )
        for name, rows, shape, out in (
            ("metadata", "1,000,000", "million rows", 2.0),
            ("metadata-10m", "10,000,000", "10 million rows", 1.5),
        )
    ),
    *(
        Case(
            name,
            f"weighted draws on one core, {rows} distinct weights",
            "draws",
            shape,
            (Figure("rate", "draws", "M/s", target=3.0, only=SCIPY), Figure("build", "table built")),
            options={"count": 20_000_000},
            peers=(SCIPY,),
        )
        for name, rows, shape in (
            ("draws", "1,000,000", "million rows"),
            ("draws-10m", "10,000,000", "10 million rows"),
        )
    ),
    Case(
        "permutation",
        "uniform permutation on one core, 1,000,000 rows",
        "permutation",
        "million rows",
        (Figure("rate", "positions", "M/s", least=40.0),),
        options={"count": 20_000_000},
        ours_only=True,
    ),
    *(
        Case(
            f"resume-{name}",
            f"open, load a state, first sample: position 10,000,000 against 0, {title}",
            "resume",
            "1 KiB",
            (
                Figure("ratio", "time at 10,000,000 / time at 0", "x", most=1.5),
                Figure("far", "at 10,000,000"),
                Figure("near", "at 0"),
            ),
            options={"position": 10_000_000, "replacement": replacement, "weighted": weighted},
            ours_only=True,
        )
        for name, title, replacement, weighted in (
            ("permutation", "permutation", False, False),
            ("quota", "weights without replacement", False, True),
            ("uniform", "with replacement", True, False),
            ("weighted", "weights with replacement", True, True),
        )
    ),
    Case(
        "view",
        "iterate a view of 1 % of 1,000,000 rows, against the whole",
        "view",
        "million rows",
        (
            Figure("ratio", "rate of the view / rate of the whole", "x", least=0.9),
            Figure("view", "rate of the view", "M/s"),
            Figure("whole", "rate of the whole", "M/s"),
        ),
        ours_only=True,
    ),
    *(
        Case(
            f"torch-{name}",
            f"PyTorch DataLoader without workers, 100,000 x 1 KiB, {title}, against plain iteration",
            "torch_loader",
            "1 KiB",
            (
                Figure("ratio", "rate of the loader / rate of iteration", "x", least=least),
                Figure("loader", "rate of the loader", "M/s"),
                Figure("plain", "rate of iteration", "M/s"),
            ),
            options={"batch_size": size},
            ours_only=True,
        )
        # What a DataLoader itself does for each item is many times what a sample costs: no target without batches.
        for name, title, size, least in (
            ("samples", "sample by sample", None, None),
            ("batches", "lists of 64 samples", 64, 0.8),
        )
    ),
]
