"""The grid of samples on the page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dataset_rt.inspection.text import count, safe
from dataset_rt.report.charts import html, sparkline, text_cell

if TYPE_CHECKING:
    from dataset_rt.report.previews import FieldPreview, Preview

__all__ = ["samples"]

_COLUMNS = 4
"""Metadata columns that are shown with a sample."""


def samples(previews: list[Preview], caches: int) -> str:
    """Return the samples, each with its pictures, texts and some of its metadata."""
    if not previews:
        return ""
    tiles = "".join(_tile(one, has_caches=caches > 1) for one in previews)
    note = f"{count(len(previews), 'sample')}, drawn at random"
    return f'<section><h2>Samples</h2><p class="dim">{note}</p><div class="tiles">{tiles}</div></section>'


def _tile(one: Preview, *, has_caches: bool) -> str:
    place = f"{one.cache_id} / {one.sample_id}" if has_caches else f"{one.sample_id}"
    metadata = "".join(
        f"<div><dt>{html(name, 24)}</dt><dd>{text_cell(item, 40)}</dd></div>"
        for name, item in list(one.metadata.items())[:_COLUMNS]
    )
    if one.error is not None:
        body = f'<p class="bad">{html(one.error, 300)}</p>'
    else:
        body = "".join(_field(field) for field in one.fields)
        body += f'<p class="dim">{count(one.more_fields, "more field")}</p>' if one.more_fields else ""
    return f'<article class="tile"><h3>{place}</h3>{body}<dl>{metadata}</dl></article>'


def _field(field: FieldPreview) -> str:
    caption = f'<p class="dim">{html(field.name, 24)} · {html(field.words, 60)}</p>'
    if field.image is not None:
        kind = ' class="small"' if field.is_small else ""
        return f'<img src="{escape(field.image)}" alt="{html(field.name, 60)}"{kind}>{caption}'
    if field.text is not None:
        return f"<pre>{escape(safe(field.text))}</pre>{caption}"
    if field.line is not None:
        return sparkline(field.line) + caption
    return caption
