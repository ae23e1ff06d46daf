"""`write`, `append` and `merge`: caches from files, arrays, tables and caches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dataset_rt.cli import display
from dataset_rt.cli.failures import Exit, Refused
from dataset_rt.cli.opening import one_cache, open_dataset, rows_of
from dataset_rt.cli.options import cache_path, cache_paths, command, where
from dataset_rt.cli.session import current
from dataset_rt.inspection.caches import caches_at, summary
from dataset_rt.inspection.text import count, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataset_rt import CachedDataset, CacheWriteResult, WriterConfig

__all__ = ["append", "merge", "write"]

_input = click.argument("source", metavar="INPUT", type=click.Path())
_payload = click.option("--payload", metavar="NAME", multiple=True, help="A column or array that is a payload field.")
_out = click.argument("out", metavar="OUT", type=click.Path())


def _compression(function: Callable[..., Any]) -> Callable[..., Any]:
    level = click.option("--level", type=int, help="Level of lz4, 1 to 12, or of zstd, -7 to 19.")
    algorithm = click.option(
        "--compression",
        type=click.Choice(["none", "lz4", "zstd"]),
        help="Compress payloads so. By default samples of caches stay as they are stored, new ones are appended as the "
        "cache has its others, and those of new caches are not compressed.",
    )
    return algorithm(level(function))


@command
@_out
@_input
@_payload
@_compression
def write(out: str, source: str, payload: tuple[str, ...], compression: str | None, level: int | None) -> None:
    """Write the cache OUT from INPUT.

    INPUT is a folder of files (each file is a sample, with its `path` and, as `label`, the folder it is in), a .npy or
    .npz file (arrays of one axis are metadata, others payload), a .parquet or .arrow file (columns of bytes and lists
    are payload), a cache, or a folder of caches.
    """
    from dataset_rt import write_arrays, write_cache
    from dataset_rt.cli.inputs import Samples, understood

    base, name = _parts(out)
    found = understood(source, name, payload)
    config = _config(compression, level)
    if isinstance(found.source, Samples) and compression is None:
        _copy(found.source.dataset, base, name, config, {"input": found.kind})
        return
    if found.arrays is not None:
        result = write_arrays(name, found.arrays, base, metadata=found.metadata, writer_config=config)
    else:
        [result] = write_cache(found.source, base, writer_config=config)
    _report(result, {"input": found.kind})


@command
@cache_path
@_input
@_payload
@_compression
def append(path: str, source: str, payload: tuple[str, ...], compression: str | None, level: int | None) -> None:
    """Append INPUT to the cache PATH as a new generation; INPUT is what `write` takes.

    Columns and payload fields have to be those of the cache.
    """
    from dataset_rt.cache import append_cache
    from dataset_rt.cli.changes import report_change
    from dataset_rt.cli.inputs import understood

    cache = one_cache(path)
    before = summary(cache)
    found = understood(source, before["name"], payload)
    if compression is None and len(before["compression"]) == 1:
        [compression] = before["compression"]
    added = found.source if found.arrays is None else found.arrays
    change = append_cache(added, cache, metadata=found.metadata, writer_config=_config(compression, level))
    report_change(cache, change)


@command
@_out
@cache_paths
@where
@_compression
def merge(out: str, paths: tuple[str, ...], where: str | None, compression: str | None, level: int | None) -> None:
    """Write one cache OUT with the samples of several, in their order.

    Sample ids are new: they count from 0.
    """
    from dataset_rt import write_cache
    from dataset_rt.cli.inputs import Samples

    base, name = _parts(out)
    config = _config(compression, level)
    dataset = open_dataset(caches_at(paths))
    if where is not None:
        kept = rows_of(dataset, where)
        if kept.is_empty():
            raise Refused(f"no sample fulfils {where!r}; nothing was written")
        dataset = dataset.select(kept)
    facts = {"inputs": [str(path) for path in dataset.cache_paths]}
    if compression is None:
        _copy(dataset, base, name, config, facts)
        return
    [result] = write_cache(Samples(name, dataset), base, writer_config=config)
    _report(result, facts)


def _copy(dataset: CachedDataset, base: Path, name: str, config: WriterConfig, facts: dict[str, Any]) -> None:
    """Write the rows of a dataset as they are stored."""
    from dataset_rt import write_cache

    [result] = write_cache(dataset, base, name=name, writer_config=config)
    _report(result, facts)


def _parts(out: str) -> tuple[Path, str]:
    """Return base directory and name of a cache to be written."""
    from dataset_rt.errors import CacheExistsError

    path = Path(out)
    if path.name in ("", ".."):
        raise Refused(f"{out!r} does not end in the name of a cache")
    if path.exists():
        raise CacheExistsError(f"{out}: exists already; nothing was written", path=path)
    return path.parent, path.name


def _config(compression: str | None, level: int | None) -> WriterConfig:
    from pydantic import ValidationError

    from dataset_rt import ShardCompression, WriterConfig

    if level is not None and compression is None:
        raise Refused(f"--level {level}: say with --compression what it is a level of")
    try:
        packed = ShardCompression.model_validate({"algo": compression or "none", "level": level})
    except ValidationError as error:
        raise Refused(f"--level {level}: {error.errors()[0]['ctx']['error']}") from None
    return WriterConfig(shard_compression=packed, show_progress=not current().json)


def _report(result: CacheWriteResult, facts: dict[str, Any]) -> None:
    from dataset_rt import CacheWriteError

    if isinstance(result, CacheWriteError):
        raise Refused(f"{result.source_name}: {result.message}", Exit.SYSTEM)
    written = summary(str(result.path))
    document = {
        "path": written["path"],
        "samples": written["samples"],
        "stored_bytes": written["stored_bytes"],
        **facts,
    }
    text = f"{count(written['samples'], 'sample')}, {size(written['stored_bytes'])}, in {written['path']}"
    current().emit(document, lambda console: display.note(console, text, style=""))
