"""`info`: what the manifests of caches say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dataset_rt.cli import display
from dataset_rt.cli.failures import Exit, as_document, exit_code, sentence
from dataset_rt.cli.options import cache_paths, command
from dataset_rt.cli.session import current
from dataset_rt.inspection.caches import caches_at, summaries
from dataset_rt.inspection.text import count, share, size

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["info"]


@command
@cache_paths
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="Caches to list; 0 for all.")
def info(paths: tuple[str, ...], limit: int) -> int:
    """Show size, format and columns of caches, from their manifests alone.

    PATH is a cache or a folder of caches.
    """
    session = current()
    named = caches_at(paths)
    found = summaries(named)
    good = [summary for summary in found if not isinstance(summary, Exception)]
    bad = [(path, error) for path, error in zip(named, found, strict=True) if isinstance(error, Exception)]
    document = {
        "caches": [
            {"path": path, "error": as_document(summary)} if isinstance(summary, Exception) else summary
            for path, summary in zip(named, found, strict=True)
        ],
        "readable": len(good),
        "unreadable": len(bad),
        "samples": sum(summary["samples"] for summary in good),
        "stored_bytes": sum(summary["stored_bytes"] for summary in good),
        "payload_bytes": sum(summary["payload_bytes"] for summary in good),
    }

    def render(console: Console) -> None:
        if len(named) == 1 and good:
            _one(console, good[0])
        elif good:
            _several(console, good, document, limit or len(good))
        for path, error in bad[: limit or len(bad)]:
            text = sentence(error)
            shown = text if path in text else f"{path}: {text}"
            session.complain(shown)
        if limit and len(bad) > limit:
            display.note(session.err, f"… {count(len(bad) - limit, 'more error')}")

    session.emit(document, render)
    return max((exit_code(error) for _, error in bad), default=Exit.OK)


def _one(console: Console, found: dict[str, Any]) -> None:
    display.heading(console, found["name"])
    stored, payload = found["stored_bytes"], found["payload_bytes"]
    ratio = f", payloads {size(payload)} before compression" if set(found["compression"]) - {"none"} else ""
    display.facts(
        console,
        [
            ("path", found["path"]),
            ("samples", count(found["samples"])),
            ("deleted", count(found["deleted"]) if found["deleted"] else None),
            ("stored", f"{size(stored)} in {count(found['shards'], 'shard')}{ratio}"),
            ("of it tables", f"{size(stored - found['shard_bytes'])} ({share(stored - found['shard_bytes'], stored)})"),
            ("compression", _compression(found)),
            ("format", f"version {found['format_version']}, generation {found['generation']}"),
            ("record checksums", "crc32c" if found["record_checksums"] else "none"),
            ("written by", found["created_by"]),
            ("source version", found["source_version"]),
        ],
    )
    console.print()
    payload = [["payload", *field] for field in _fields(found)]
    columns = [["metadata", column["name"], _kind(column), ""] for column in found["metadata"]]
    display.rows(console, ["", "name", "type", "shape"], payload + columns, short=0)


def _several(console: Console, found: list[dict[str, Any]], document: dict[str, Any], limit: int) -> None:
    lines = [
        [
            one["path"],
            count(one["samples"]),
            size(one["stored_bytes"]),
            count(one["shards"]),
            _compression(one),
            f"v{one['format_version']} g{one['generation']}",
            count(len(one["metadata"])),
            ", ".join(name for name, _, _ in _fields(one)),
        ]
        for one in found[:limit]
    ]
    titles = ["cache", "samples", "stored", "shards", "compression", "format", "columns", "payload"]
    display.rows(console, titles, lines, right=[1, 2, 3, 6])
    if len(found) > limit:
        display.note(console, f"… {count(len(found) - limit, 'more cache')} (--limit 0 lists all)")
    console.print()
    total = f"{count(len(found), 'cache')}, {count(document['samples'], 'sample')}, {size(document['stored_bytes'])}"
    display.heading(console, total)


def _fields(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    if found["payload"] is None:
        return [("data", "bytes", "")]
    return [
        (
            field["name"],
            field["dtype"],
            "" if field["dtype"] == "bytes" else " × ".join("?" if n is None else str(n) for n in field["shape"]),
        )
        for field in found["payload"]
    ]


def _kind(column: dict[str, Any]) -> str:
    return f"{column['kind']} or null" if column.get("nullable") else column["kind"]


def _compression(found: dict[str, Any]) -> str:
    dictionary = " with dictionary" if found["dictionary_bytes"] else ""
    return ", ".join(found["compression"] or ["none"]) + dictionary
