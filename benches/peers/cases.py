"""What is measured: which contenders do what on which data."""

from __future__ import annotations

from dataclasses import dataclass, field

OURS = "this package"
OWN = "checkout"  # the environment of this checkout, which is built and installed already
PLAIN_THREADS = "two plain threads"


@dataclass(frozen=True)
class Figure:
    """One number of a case; `higher` says which way is better."""

    key: str
    title: str
    unit: str
    higher: bool = True


@dataclass(frozen=True)
class Entry:
    """A contender in a case.

    `stored` is the kind and form of the store it reads, `action` and `options` what its worker does. `group` says what
    it is: ours, a store, an array file, a loader, or a yardstick that no target counts as a peer.
    """

    label: str
    environment: str
    action: str
    stored: tuple[str, str] | None = None
    options: dict[str, object] = field(default_factory=dict)
    group: str = "store"


@dataclass(frozen=True)
class Case:
    """One kind of work on one data set."""

    name: str
    title: str
    data: str | None
    figures: tuple[Figure, ...]
    entries: tuple[Entry, ...]
    note: str = ""
    cold: bool = False  # files are dropped from memory and a process is started before every measurement
    once: bool = False  # one measurement is enough
    fio: tuple[str, str, tuple[int, ...]] | None = None  # access, block size, queue depths


@dataclass(frozen=True)
class Kind:
    """A way of storing: what it is called, its environment, its module, its form, and how it is opened."""

    label: str
    environment: str
    store: str
    form: str = "raw"
    opened: str | None = None
    group: str = "store"


RATE = Figure("rate", "rate", "GiB/s")
RECORDS = Figure("rate", "rate", "M records/s")
BATCHES = Figure("rate", "rate", "batches/s")
FIRST = Figure("first", "first batch", "ms", higher=False)

_OURS = Kind(OURS, OWN, "ours", group="ours")
_INDEX = Kind("NumPy, array[rows]", "numpy", "npy", "raw", "index", "array")
_TAKE = Kind("NumPy, np.take", "numpy", "npy", "raw", "take", "array")
_MEMORY = Kind("NumPy in memory, np.take", "numpy", "npy", "raw", "memory-take", "array")
_OLD = Kind("loaderx 0.5.4", "loaderx 0.5.4", "loaderx_old")
_NEW = Kind("loaderx newest", "loaderx newest", "loaderx_new")
_ARRAYRECORD = Kind("ArrayRecord", "grain", "arrayrecord")
_LMDB = Kind("LMDB", "lmdb", "lmdb_")
_HDF5 = Kind("HDF5", "hdf5", "hdf5")
_ZARR = Kind("Zarr", "zarr", "zarr_")
_TENSORSTORE = Kind("TensorStore", "tensorstore", "tensorstore_")
_LANCE = Kind("Lance", "lance", "lance_")
_HUGGINGFACE = Kind("HF datasets", "huggingface", "huggingface")
_MOSAICML = Kind("MosaicML Streaming", "mosaicml", "mosaicml_")
_LITDATA = Kind("LitData", "litdata", "litdata_")
_RELEASE = Kind("dataset-rt 0.4.8", "dataset-rt 0.4.8", "dataset_rt_release")


def _form(kind: Kind, form: str, suffix: str | None = None) -> Kind:
    return Kind(f"{kind.label}, {suffix or form}", kind.environment, kind.store, form, None, kind.group)


def _gather(kind: Kind, *, into: bool = False, **options: object) -> Entry:
    return Entry(
        f"{kind.label}, out=" if into else kind.label,
        kind.environment,
        "gather",
        (kind.store, kind.form),
        {"form": kind.opened or kind.form, "into": into, **options},
        kind.group,
    )


def _load(
    label: str, environment: str, loader: str, stored: tuple[str, str], group: str = "loader", **options: object
) -> Entry:
    return Entry(label, environment, "load", stored, {"loader": loader, "form": stored[1], **options}, group)


def _cold(kind: Kind, *, ordered: bool = False) -> Entry:
    options: dict[str, object] = {"form": kind.opened or kind.form, "ordered": ordered}
    return Entry(kind.label, kind.environment, "cold", (kind.store, kind.form), options, kind.group)


def _cold_ours(**order: object) -> Entry:
    options = {"loader": "ours", "form": "raw", **order}
    return Entry(f"{OURS}, batches", OWN, "cold_load", ("ours", "raw"), options, "ours")


def _rewrite(kind: Kind) -> Entry:
    return Entry(kind.label, kind.environment, "rewrite", None, {"store": kind.store, "form": kind.form}, kind.group)


def _yardstick(label: str, action: str, environment: str = "numpy", **options: object) -> Entry:
    stored = ("npy", "raw") if action == "threads" else None
    return Entry(label, environment, action, stored, options, "yardstick")


_COMPRESSED = (
    _form(_OURS, "zstd", "zstd level 3"),
    _form(_OURS, "zstd-1", "zstd level 1"),
    _form(_OLD, "flate"),
    _form(_NEW, "zstd"),
    _form(_ARRAYRECORD, "zstd"),
    _form(_LMDB, "zlib"),
    _form(_HDF5, "gzip"),
    _form(_ZARR, "zstd"),
    _form(_TENSORSTORE, "zstd"),
    _form(_LANCE, "zstd"),
)
_RUNS = (
    _form(_OURS, "lz4"),
    _form(_OURS, "lz4-9", "lz4 level 9"),
    _form(_OURS, "zstd", "zstd level 3"),
    _form(_OLD, "flate"),
    _form(_NEW, "zstd"),
    _form(_ARRAYRECORD, "snappy"),
    _form(_ARRAYRECORD, "zstd"),
    _form(_HDF5, "lzf"),
    _form(_TENSORSTORE, "lz4"),
    _form(_LANCE, "zstd"),
    _form(_RELEASE, "lz4"),
)
_SMALL = (_OURS, _INDEX, _TAKE, _OLD, _NEW, _ARRAYRECORD, _LMDB, _LANCE, _HUGGINGFACE)
_COLD = (_OURS, _TAKE, _OLD, _NEW, _ARRAYRECORD, _LMDB)


CASES: tuple[Case, ...] = (
    Case(
        "sampler",
        "row numbers drawn with replacement from a million, per batch size",
        "256",
        tuple(Figure(str(size), f"batches of {size:,}", "M rows/s") for size in (256, 1024, 8192)),
        (
            Entry(OURS, OWN, "sample", ("ours", "raw"), {"sampler": "ours"}, "ours"),
            Entry("NumPy randint", "numpy", "sample", None, {"sampler": "randint"}),
            Entry("NumPy default_rng", "numpy", "sample", None, {"sampler": "default_rng"}),
            Entry("loaderx 0.5.4", "loaderx 0.5.4", "sample", None, {"sampler": "loaderx_old"}),
            Entry("loaderx newest", "loaderx newest", "sample", None, {"sampler": "loaderx_new"}),
        ),
        "Ours is `dataset.rows(epoch, start, stop)`: a new array with every call, unbiased, and a function of the "
        "position. The newest loaderx hands out one buffer that the next draw overwrites.",
    ),
    Case(
        "gather-12k",
        "batches of 256 random records of 12 KiB, raw, synchronous",
        "12k",
        (RATE,),
        (
            _gather(_OURS),
            _gather(_OURS, into=True),
            _gather(_INDEX),
            _gather(_TAKE),
            _gather(_TAKE, into=True),
            _gather(_MEMORY),
            *(_gather(kind) for kind in (_OLD, _NEW)),
            _gather(_OLD, into=True),
            *(_gather(kind) for kind in (_ARRAYRECORD, _LMDB, _HDF5, _ZARR, _TENSORSTORE, _LANCE)),
            *(_gather(kind) for kind in (_HUGGINGFACE, _MOSAICML, _LITDATA, _RELEASE)),
            _yardstick("memcpy, 1 thread", "memcpy", threads=1),
            _yardstick("memcpy, 2 threads", "memcpy", threads=2),
        ),
        "`out=` fills one array that is used again; the others return a new batch with every call. NumPy's arrays are "
        "memory-mapped unless it says otherwise. WebDataset has no random access.",
    ),
    Case(
        "gather-12k-compressed",
        "the same, compressed record by record to about 1.2 times smaller",
        "12k",
        (RATE,),
        tuple(_gather(kind) for kind in _COMPRESSED),
    ),
    Case(
        "load-12k",
        "loaders with 2 workers, random batches of 256 records of 12 KiB, raw",
        "12k",
        (BATCHES, FIRST),
        (
            _load(OURS, OWN, "ours", ("ours", "raw"), "ours"),
            _load(f"{OURS}, weighted", OWN, "ours", ("ours", "raw"), "ours", weighted=True),
            _load("loaderx 0.5.4", "loaderx 0.5.4", "loaderx_old", ("loaderx_old", "raw")),
            _load("loaderx newest", "loaderx newest", "loaderx_new", ("loaderx_new", "raw")),
            _load("Grain, ArrayRecord, threads", "grain", "grain_", ("arrayrecord", "raw")),
            _load("Grain, ArrayRecord, 2 processes", "grain", "grain_", ("arrayrecord", "raw"), processes=True),
            _load(
                "torch, mapped .npy, 2 processes, by sample",
                "torch",
                "torch_npy",
                ("npy", "raw"),
                "array",
                batched=False,
                workers=2,
            ),
            _load(
                "torch, mapped .npy, 2 processes, by batch",
                "torch",
                "torch_npy",
                ("npy", "raw"),
                "array",
                batched=True,
                workers=2,
            ),
            _load(
                "torch, mapped .npy, no process, by batch",
                "torch",
                "torch_npy",
                ("npy", "raw"),
                "array",
                batched=True,
                workers=0,
            ),
            _load("NumPy, 2 threads and a queue", "numpy", "plain", ("npy", "raw"), "array"),
            _load("HF datasets, torch, 2 processes", "huggingface", "huggingface", ("huggingface", "raw")),
            _load("MosaicML Streaming, 2 processes", "mosaicml", "mosaicml_", ("mosaicml_", "raw")),
            _load("LitData, 2 processes", "litdata", "litdata_", ("litdata_", "raw")),
            _load("WebDataset, 2 processes", "webdataset", "webdataset_", ("webdataset_", "raw")),
            _load(
                "dataset-rt 0.4.8, torch",
                "dataset-rt 0.4.8",
                "dataset_rt_release",
                ("dataset_rt_release", "raw"),
                workers=0,
            ),
            _yardstick(PLAIN_THREADS, "threads", threads=2),
            _yardstick("one plain thread", "threads", threads=1),
        ),
        "The first batch counts from before opening, in a process that has imported everything. The plain threads take "
        "batches into their own array and hand them to no one.",
    ),
    Case(
        "load-12k-compressed",
        "loaders with 2 workers, compressed record by record",
        "12k",
        (BATCHES, FIRST),
        (
            _load(f"{OURS}, zstd level 3", OWN, "ours", ("ours", "zstd"), "ours"),
            _load("loaderx 0.5.4, flate", "loaderx 0.5.4", "loaderx_old", ("loaderx_old", "flate")),
            _load("loaderx newest, zstd", "loaderx newest", "loaderx_new", ("loaderx_new", "zstd")),
            _load("Grain, ArrayRecord zstd, threads", "grain", "grain_", ("arrayrecord", "zstd")),
            _load("Grain, ArrayRecord zstd, 2 processes", "grain", "grain_", ("arrayrecord", "zstd"), processes=True),
            _yardstick("zstd alone, 1 thread", "zstd", "zstandard", level=3),
        ),
        "zstd alone decompresses records that are in memory and hands them to no one; two cores can do twice that.",
    ),
    Case(
        "write-12k",
        "writing a mapped array of 20,000 x 12 KiB (this package with fsync, the others as they come)",
        "12k",
        (Figure("write", "rate", "GiB/s"),),
        (
            *(_rewrite(kind) for kind in (_OURS, _INDEX, _OLD, _NEW, _ARRAYRECORD, _LMDB, _HDF5, _TENSORSTORE, _LANCE)),
            _yardstick("one file, written in order, with fsync", "file", durable=True),
            _yardstick("one file, written in order, without", "file", durable=False),
        ),
    ),
    Case(
        "memory",
        "memory of an endless loader over 100,000 batches of 256 records of 12 KiB",
        "12k",
        (
            Figure("growth", "growth after 5,000 batches", "MiB", higher=False),
            Figure("held", "held", "MiB", higher=False),
        ),
        (Entry(OURS, OWN, "endless", ("ours", "raw"), {"loader": "ours", "form": "raw", "batches": 100_000}, "ours"),),
        once=True,
    ),
    Case(
        "gather-runs",
        "batches of 256 random records of 12 KiB with long runs, which lz4 shrinks",
        "12k-runs",
        (RATE,),
        tuple(_gather(kind) for kind in _RUNS),
    ),
    Case(
        "gather-256",
        "batches of 256 random records of 256 bytes, raw, synchronous",
        "256",
        (RECORDS,),
        (
            *(_gather(kind, rate="records") for kind in _SMALL),
            _gather(_OURS, into=True, rate="records"),
            _gather(_TAKE, into=True, rate="records"),
        ),
    ),
    Case(
        "gather-256-large",
        "batches of 4,096 random records of 256 bytes, raw, synchronous",
        "256",
        (RECORDS,),
        tuple(_gather(kind, rate="records", batch=4096) for kind in (_OURS, _INDEX, _TAKE, _OLD, _NEW, _LMDB)),
    ),
    Case(
        "gather-variable",
        "batches of 256 random records of 1 KiB to 1 MiB (lognormal, mean 20 KiB), raw bytes, synchronous",
        "variable",
        (RATE,),
        tuple(
            _gather(kind) for kind in (_OURS, _INDEX, _OLD, _NEW, _ARRAYRECORD, _LMDB, _LANCE, _HUGGINGFACE, _RELEASE)
        ),
        "Ours, both loaderx, Lance and NumPy return one buffer with offsets; the others return separate bytes, which "
        "spares them a copy.",
    ),
    Case(
        "cold-12k",
        "distinct random records of 12 KiB from files that are not in memory",
        "cold-12k",
        (RATE,),
        (_cold_ours(replacement=False), *(_cold(kind) for kind in _COLD)),
        cold=True,
        fio=("randread", "12k", (1, 8, 32, 64, 128)),
    ),
    Case(
        "cold-32k",
        "distinct random records of 32 KiB from files that are not in memory",
        "cold-32k",
        (RATE,),
        (_cold_ours(replacement=False), *(_cold(kind) for kind in _COLD)),
        cold=True,
        fio=("randread", "32k", (1, 8, 32, 64, 128)),
    ),
    Case(
        "cold-sequential",
        "records of 12 KiB in order from files that are not in memory",
        "cold-12k",
        (RATE,),
        (_cold_ours(shuffle=False), *(_cold(kind, ordered=True) for kind in _COLD)),
        cold=True,
        fio=("read", "1m", (1, 4, 8, 16, 32)),
    ),
)
