"""What people have on disk, as cache sources: folders of files, arrays, tables, and other caches.

Nothing is held as a whole but the list of the names in a folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_rt.cli.failures import Exit, Refused
from dataset_rt.cli.opening import open_dataset
from dataset_rt.errors import CacheNotFoundError
from dataset_rt.inspection.caches import caches_at, summaries
from dataset_rt.records import CacheInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from dataset_rt import CachedDataset

__all__ = ["Input", "Samples", "understood"]

_TABLES = (".parquet", ".arrow", ".feather", ".ipc")
_BLOCK_ROWS = 8192
"""Rows of a table that are in memory at a time."""


class Input:
    """One thing to store: a source for `write_cache`, or arrays and metadata for `write_arrays`."""

    def __init__(
        self, kind: str, source: Any = None, arrays: dict[str, Any] | None = None, metadata: pl.DataFrame | None = None
    ) -> None:
        self.kind = kind
        self.source = source
        self.arrays = arrays
        self.metadata = metadata


def understood(path: str, name: str, payload: Sequence[str]) -> Input:
    """Return what lies at a path as input of a cache.

    Args:
        path: A cache, a folder of files, or a file: `.npy`, `.npz`, `.parquet`, `.arrow`.
        name: Name of the cache to be written.
        payload: Columns or arrays that are payload fields; without any, the kind of a column decides.

    Raises:
        Refused: There is nothing, or nothing that is understood.
        InvalidCacheError: There is a cache, and it is damaged.
    """
    if not Path(path).exists():
        raise Refused(f"{path}: there is no such file or folder", Exit.SYSTEM)
    suffix = Path(path).suffix.lower()
    if Path(path).is_dir():
        caches = caches_at([path])
        # A damaged cache is no folder of files: opening it says what is wrong.
        if isinstance(summaries(caches)[0], CacheNotFoundError):
            return Input("files", _Files(name, Path(path)))
        return Input("caches", Samples(name, open_dataset(caches)))
    if suffix == ".npy":
        return _arrays({(payload or ["array"])[0]: _loaded(path)}, [(payload or ["array"])[0]])
    if suffix == ".npz":
        return _arrays(dict(_loaded(path)), payload)
    if suffix in _TABLES:
        return Input("table", _Table(name, path, payload))
    raise Refused(f"{path}: expected a cache, a folder of files, .npy, .npz, {', '.join(_TABLES)}")


class _Files:
    """Each file below a folder, in the order of their paths; the first folder is its label."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.paths = sorted(self._found(folder))
        if not self.paths:
            raise Refused(f"{folder}: there is no file in it")
        has_label = all("/" in path for path in self.paths)
        self.schema = {"label": str if has_label else str | None, "path": str}

    def _found(self, folder: Path) -> Iterator[str]:
        for place, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in files:
                if not name.startswith("."):
                    yield Path(place, name).relative_to(folder).as_posix()

    def __iter__(self) -> Iterator[CacheInput]:
        for path in self.paths:
            label, slash, _ = path.partition("/")
            yield CacheInput((self.folder / path).read_bytes(), {"path": path, "label": label if slash else None})


class _Table:
    """The rows of a file of columns."""

    def __init__(self, name: str, path: str, payload: Sequence[str]) -> None:
        import polars as pl

        self.name = name
        self._frame = pl.scan_parquet(path) if Path(path).suffix.lower() == ".parquet" else pl.scan_ipc(path)
        names = self._frame.collect_schema().names()
        _check_known(payload, names)
        if payload:
            self.payload_columns = list(payload)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        import polars as pl

        height = self._frame.select(pl.len()).collect().item()
        for start in range(0, height, _BLOCK_ROWS):
            yield self._frame.slice(start, _BLOCK_ROWS).collect()


class Samples:
    """The samples of open caches, one after the other."""

    def __init__(self, name: str, dataset: CachedDataset) -> None:
        self.name = name
        self.dataset = dataset
        fields = dataset.payload_fields
        if fields is not None:
            self.payload_schema = {
                field.name: bytes if field.is_opaque else (field.dtype, field.shape) for field in fields
            }
        kinds = {"bool": bool, "int": int, "float": float, "string": str}
        columns: dict[str, Any] = {}
        for one in summaries([str(path) for path in dataset.cache_paths]):
            for column in [] if isinstance(one, Exception) else one["metadata"]:
                kind = kinds[column["kind"]]
                # A column that may be null anywhere may be so here.
                is_open = column.get("nullable") or columns.get(column["name"], kind) != kind
                columns[column["name"]] = kind | None if is_open else kind
        self.schema = columns

    def __iter__(self) -> Iterator[CacheInput]:
        with iter(self.dataset) as samples:
            for sample in samples:
                yield CacheInput(sample.data, sample.metadata)


def _loaded(path: str) -> Any:
    import numpy as np

    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise Refused(f"{path}: no arrays of numbers: {error}") from error


def _arrays(found: dict[str, Any], payload: Sequence[str]) -> Input:
    """Divide arrays into payload fields and metadata columns: without a choice, one axis makes a column."""
    import polars as pl

    _check_known(payload, list(found))
    is_field = {name: name in payload if payload else array.ndim > 1 for name, array in found.items()}
    arrays = {name: array for name, array in found.items() if is_field[name]}
    if not arrays:
        names = ", ".join(found)
        raise Refused(f"none of the arrays {names} has more than one axis; choose payload fields by --payload NAME")
    columns = {name: array for name, array in found.items() if not is_field[name]}
    return Input("arrays", arrays=arrays, metadata=pl.DataFrame(columns) if columns else None)


def _check_known(payload: Sequence[str], names: Sequence[str]) -> None:
    unknown = [name for name in payload if name not in names]
    if unknown:
        raise Refused(f"there is no {', '.join(unknown)} to be payload; there are {', '.join(names)}")
