"""Two caches side by side: what their manifests, metadata tables and record checksums say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dataset_rt.cli.opening import open_dataset
from dataset_rt.inspection.caches import record_checksums, summary

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["compare"]

_MANIFEST = (
    "name",
    "samples",
    "format_version",
    "generation",
    "shards",
    "stored_bytes",
    "payload_bytes",
    "compression",
    "dictionary_bytes",
    "record_checksums",
    "source_version",
    "created_by",
)


def compare(left: str, right: str, limit: int) -> dict[str, Any]:
    """Return what distinguishes two caches; samples are matched by id.

    Args:
        left: Cache A.
        right: Cache B.
        limit: Most sample ids of a kind.

    Returns:
        `equal`, the members of the manifests that differ, metadata `columns` and payload `fields` that differ, and
        `samples`: ids that only one has, ids whose record differs (`changed`), and of these the ones whose metadata
        does. `checksums` is `"compared"`, `"encoded differently"` or `None`, if a cache has none.
    """
    one, other = summary(left), summary(right)
    found: dict[str, Any] = {
        "a": left,
        "b": right,
        "equal": False,
        "manifest": {name: [one[name], other[name]] for name in _MANIFEST if one[name] != other[name]},
        "columns": _differing(_columns(one), _columns(other)),
        "fields": _differing(_fields(one), _fields(other)),
    }
    differs = {"compression": one["compression"].keys() != other["compression"].keys(), **found}
    if any(differs[name] for name in ("compression", "columns", "fields")) or "dictionary_bytes" in found["manifest"]:
        state, checksums = "encoded differently", None
    else:
        checksums = [record_checksums(left), record_checksums(right)]
        state = "compared" if all(part is not None for part in checksums) else None
    tables = [open_dataset([path]).samples_metadata() for path in (left, right)]
    samples: dict[str, Any] = {
        "checksums": state,
        **_samples(tables, checksums if state == "compared" else None, limit),
    }
    found["samples"] = samples
    counts = ("only_in_a", "only_in_b", "changed", "metadata_changed")
    is_same = all(samples[name]["count"] == 0 for name in counts)
    found["equal"] = state == "compared" and is_same and not found["columns"] and not found["fields"]
    return found


def _columns(one: dict[str, Any]) -> dict[str, str]:
    return {
        column["name"]: column["kind"] + (" or null" if column.get("nullable") else "") for column in one["metadata"]
    }


def _fields(one: dict[str, Any]) -> dict[str, str]:
    if one["payload"] is None:
        return {"data": "bytes"}
    return {field["name"]: f"{field['dtype']} {field['shape']}" for field in one["payload"]}


def _differing(one: dict[str, str], other: dict[str, str]) -> dict[str, list[str | None]]:
    names = sorted({*one, *other})
    return {name: [one.get(name), other.get(name)] for name in names if one.get(name) != other.get(name)}


def _samples(tables: list[pl.DataFrame], checksums: list[Any] | None, limit: int) -> dict[str, Any]:
    """Match samples by id, then compare their checksums and metadata; both as columns."""
    import polars as pl

    ids = [table["sample_id"].to_numpy() for table in tables]
    if np.array_equal(ids[0], ids[1]):
        common, both = ids[0], tables
    else:
        common, *rows = np.intersect1d(*ids, assume_unique=True, return_indices=True)
        both = [table[row] for table, row in zip(tables, rows, strict=True)]
    names = [name for name in both[0].columns if name in both[1].columns and name not in ("cache_id", "weight")]
    differs = pl.DataFrame(
        {
            name: both[0][name].ne_missing(both[1][name])
            for name in names
            if both[0][name].dtype == both[1][name].dtype and name != "sample_id"
        }
    )
    per_column = {name: int(differs[name].sum()) for name in differs.columns}
    is_changed = differs.select(pl.any_horizontal(pl.all()))[:, 0].to_numpy() if differs.width else np.zeros(0, bool)
    metadata = common[is_changed] if differs.width else common[:0]
    if checksums is None:
        changed = metadata
    else:
        one, other = checksums
        changed = common[one[common.astype(np.intp)] != other[common.astype(np.intp)]]
    return {
        "compared": len(common),
        "only_in_a": _listed(np.setdiff1d(*ids, assume_unique=True), limit),
        "only_in_b": _listed(np.setdiff1d(*reversed(ids), assume_unique=True), limit),
        "changed": _listed(changed, limit),
        "metadata_changed": _listed(metadata, limit),
        "metadata_changes": {name: number for name, number in per_column.items() if number},
    }


def _listed(ids: NDArray[np.uint64], limit: int) -> dict[str, Any]:
    return {"count": len(ids), "ids": ids[:limit].tolist(), "truncated": len(ids) > limit}
