"""`stats`, `verify` and `repair`: how a cache is, and what can be saved of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dataset_rt.cli import display
from dataset_rt.cli.failures import Exit, as_document, exit_code, sentence
from dataset_rt.cli.opening import one_cache
from dataset_rt.cli.options import cache_path, cache_paths, command, confirmation, generation
from dataset_rt.cli.session import current, plain
from dataset_rt.errors import DatasetRTError
from dataset_rt.inspection.caches import caches_at
from dataset_rt.inspection.text import count, share, size

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

__all__ = ["repair", "stats", "verify"]

_FINDINGS = 50
"""Findings that are printed for people; JSON has all."""


_IDS = 20
"""Lost sample ids that are printed for people."""


@command
@cache_path
@generation
@click.option("--shards", is_flag=True, help="List the shards, too.")
def stats(path: str, generation: int | None, shards: bool) -> None:
    """Show where the bytes of a cache are, what can be reclaimed, and its generations."""
    from dataset_rt.cache import cache_stats

    session = current()
    cache = one_cache(path)
    with session.waiting("reading the index"):
        found = cache_stats(cache, generation=generation)

    def render(console: Console) -> None:
        deleted = f", {count(found.deleted)} deleted" if found.deleted else ""
        display.facts(
            console,
            [
                ("cache", cache),
                ("generation", found.generation),
                ("samples", f"{count(found.samples)}{deleted}"),
                ("stored", size(found.stored_bytes)),
                ("of it live", f"{size(found.live_bytes)} ({share(found.live_bytes, found.stored_bytes)})"),
                ("reclaimable", size(found.reclaimable_bytes)),
                ("payloads", f"{size(found.payload_bytes)} before compression"),
                ("metadata", size(found.metadata_bytes)),
                ("index", size(found.index_bytes)),
                ("shards", count(found.shards.height)),
            ],
        )
        for table in (found.generations, found.shards.drop("path") if shards else None):
            if table is not None and table.height > 0:
                console.print()
                display.frame(console, table)

    session.emit(plain(found), render)


@command
@cache_paths
@generation
@click.option("--fast", is_flag=True, help="Compare lengths and tables only; payloads are not read.")
def verify(paths: tuple[str, ...], generation: int | None, fast: bool) -> int:
    """Check every byte of caches against its checksum, and list all damage.

    The exit code is 1 if there are findings, 3 if a cache cannot be opened at all.
    """
    from dataset_rt.cache import verify_cache

    session = current()
    reports: dict[str, Any] = {}
    for path in caches_at(paths):
        with session.waiting(f"verifying {path}"):
            try:
                reports[path] = verify_cache(path, full=not fast, generation=generation)
            except DatasetRTError as error:
                # The next cache is checked all the same.
                reports[path] = error
    caches = [
        {"path": path, "ok": False, "error": as_document(report)}
        if isinstance(report, DatasetRTError)
        else {**plain(report), "ok": report.ok}
        for path, report in reports.items()
    ]

    def render(console: Console) -> None:
        for report in reports.values():
            if isinstance(report, DatasetRTError):
                session.complain(sentence(report))
            else:
                _verified(console, report)

    session.emit({"ok": all(cache["ok"] for cache in caches), "caches": caches}, render)
    return max(map(_code, reports.values()), default=Exit.OK)


@command
@cache_path
@confirmation
def repair(path: str, yes: bool) -> int:
    """Publish a generation with what can be trusted of a damaged cache; lost samples count as deleted.

    Nothing is removed: the damaged generation stays until `vacuum`. The exit code is 1 if something is lost.
    """
    from dataset_rt.cache import repair_cache
    from dataset_rt.cli.asking import confirm

    session = current()
    # Not asked for `one_cache`: what is damaged may not even look like one.
    confirm(f"repair {path}?", yes=yes)
    with session.waiting("repairing"):
        report = repair_cache(path)

    document = plain(report)
    document["change"]["changed"] = report.change.changed
    session.emit(document, lambda console: _repaired(console, path, report))
    return Exit.DIFFERENT if len(report.lost_sample_ids) or report.lost_generations else Exit.OK


def _code(report: Any) -> Exit:
    if isinstance(report, DatasetRTError):
        return exit_code(report)
    return Exit.OK if report.ok else Exit.DIFFERENT


def _verified(console: Console, report: Any) -> None:
    how = "full" if report.full else "fast"
    checked = f"{count(report.samples, 'sample')}, {size(report.bytes_read)} read, {how}"
    if report.ok:
        display.note(console, f"{report.path}: ok, generation {report.generation}, {checked}", style="")
        return
    found = count(report.finding_count, "finding")
    display.heading(console, f"{report.path}: {found} in generation {report.generation} ({checked})")
    for finding in report.findings[:_FINDINGS]:
        display.note(console, f"  {finding.kind}: {finding.message}", style="")
    if report.finding_count > _FINDINGS:
        display.note(console, f"  … {count(report.finding_count - _FINDINGS, 'more finding')} (--json lists them)")


def _repaired(console: Console, path: str, report: Any) -> None:
    change, lost = report.change, report.lost_sample_ids
    if not change.changed:
        display.note(console, f"{path}: sound, generation {change.generation} stays", style="")
        return
    ids = ", ".join(map(str, lost[:_IDS].tolist())) + (" …" if len(lost) > _IDS else "")
    display.facts(
        console,
        [
            ("cache", path),
            ("generation", f"{change.generation} (from generation {report.started_from})"),
            ("samples", count(change.samples)),
            ("lost samples", f"{count(len(lost))}: {ids}" if len(lost) else "none"),
            *((f"lost generation {number}", reason) for number, reason in report.lost_generations.items()),
            *(("damaged", _inside(file, change.path)) for file in report.damaged_files),
        ],
    )


def _inside(file: Path, cache: Path) -> Path:
    """Return the path of a file as it is seen from its cache."""
    return file.relative_to(cache) if file.is_relative_to(cache) else file
