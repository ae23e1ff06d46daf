"""The page: facts in, HTML out. Whatever comes from data goes through `html` or `text_cell`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_rt.inspection.text import count, size
from dataset_rt.report import charts
from dataset_rt.report.charts import html, text_cell
from dataset_rt.report.samples import samples

if TYPE_CHECKING:
    from dataset_rt.report.distributions import Distribution
    from dataset_rt.report.facts import Balance, Facts, Health, Sizes

__all__ = ["page"]

_CACHES = 50
"""Caches in the table."""

# Even if something were escaped wrongly, nothing could run or be fetched.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(facts: Facts, title: str | None = None) -> str:
    """Return the page about some facts."""
    names = [one["name"] for one in facts.caches]
    shown = title or ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        _key_figures(facts),
        _caches(facts),
        _sizes(facts.sizes),
        _balance(facts.balance),
        _columns(facts.columns),
        samples(facts.previews, len(facts.caches)),
        _health(facts.health),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{html(shown)}</title><style>{style}</style></head>\n'
        f'<body><main><header><p class="over">DatasetRT report</p><h1>{html(shown)}</h1>'
        f'<p class="dim">{made}</p></header>\n'
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def section(title: str, body: str, note: str = "") -> str:
    """Return a section with its heading."""
    remark = f'<p class="dim">{note}</p>' if note else ""
    return f"<section><h2>{html(title)}</h2>{remark}{body}</section>"


def _key_figures(facts: Facts) -> str:
    stored, payload, shards = (
        sum(one[name] for one in facts.caches) for name in ("stored_bytes", "payload_bytes", "shard_bytes")
    )
    deleted = sum(one["deleted"] for one in facts.caches)
    figures = [
        (count(facts.samples), "samples", f"{count(deleted)} deleted" if deleted else ""),
        (size(stored), "on disk", f"{size(stored - shards)} of it tables"),
    ]
    if any(set(one["compression"]) - {"none"} for one in facts.caches) and stored:
        figures.append((size(payload), "of payloads", f"{payload / stored:.2f} : 1 on disk"))
    if len(facts.caches) > 1:
        figures.append((count(len(facts.caches)), "caches", ""))
    if facts.sizes is not None:
        figures.append((size(facts.sizes.quantiles["median"]), "per sample", "median, stored"))
    figures.append((_verdict(facts.health), "health", "tables and lengths" if facts.health else ""))
    cells = [f"<div><b>{value}</b><span>{name}</span><small>{more}</small></div>" for value, name, more in figures]
    return f'<div class="figures">{"".join(cells)}</div>'


def _verdict(health: list[Health]) -> str:
    if not health:
        return "not checked"
    bad = sum(bool(one.finding_count or one.error) for one in health)
    return f'<span class="bad">{count(bad, "cache")} damaged</span>' if bad else '<span class="good">good</span>'


def _caches(facts: Facts) -> str:
    lines = [_cache(one) for one in facts.caches[:_CACHES]]
    head = (
        '<thead><tr><th>cache</th><th class="num">samples</th><th class="num">stored</th><th class="num">shards</th>'
        "<th>compression</th><th>format</th><th>payload</th></tr></thead>"
    )
    more = len(facts.caches) - _CACHES
    rest = f'<p class="dim">and {count(more, "more cache")}</p>' if more > 0 else ""
    return section("Caches", f'<div class="wide"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>{rest}')


def _cache(one: dict[str, Any]) -> str:
    fields = one["payload"] or [{"name": "data", "dtype": "bytes", "shape": [None]}]
    payload = "<br>".join(html(_field(field), 80) for field in fields[:6]) + (" …" if len(fields) > 6 else "")
    compression = ", ".join(one["compression"] or ["none"]) + (" + dictionary" if one["dictionary_bytes"] else "")
    origin = " · ".join(html(one[name], 60) for name in ("source_version", "created_by") if one[name])
    generation = f", generation {one['generation']}" if one["generation"] else ""
    return (
        f"<tr><td><b>{html(one['name'], 60)}</b><small>{html(one['path'], 120)}</small><small>{origin}</small></td>"
        f'<td class="num">{count(one["samples"])}</td><td class="num">{size(one["stored_bytes"])}</td>'
        f'<td class="num">{count(one["shards"])}</td><td>{html(compression)}</td>'
        f"<td>{one['format_version']}{generation}</td><td>{payload}</td></tr>"
    )


def _field(field: dict[str, Any]) -> str:
    if field["dtype"] == "bytes":
        return f"{field['name']}: bytes"
    axes = " × ".join("?" if extent is None else str(extent) for extent in field["shape"])
    return f"{field['name']}: {field['dtype']} {axes}".rstrip()


def _sizes(sizes: Sizes | None) -> str:
    if sizes is None or sizes.histogram is None:
        return ""
    facts = "".join(
        f"<div><dt>{html(name)}</dt><dd>{charts.exact(found)}</dd></div>" for name, found in sizes.quantiles.items()
    )
    chart = ""
    if len(sizes.histogram.counts) > 1:
        chart = charts.bars(sizes.histogram, "Histogram of the stored bytes of a sample", charts.exact)
    return section(
        "Sample sizes", f'<div class="card wide-chart">{chart}<dl>{facts}</dl></div>', "Stored bytes of a sample"
    )


def _balance(balance: Balance | None) -> str:
    if balance is None:
        return ""
    rest = balance.values - len(balance.shares)
    more = f'<p class="dim">and {count(rest, "more value")}</p>' if rest > 0 else ""
    name = f"<code>{html(balance.column, 60)}</code>"
    if balance.is_weighted:
        rows = [(text_cell(one.value), one.samples, one.stored, one.drawn) for one in balance.shares]
        note = (
            f'Shares of {name}: <span class="key before"></span> of the samples stored, <span class="key"></span> of '
            f"those drawn with these weights. They vary like {balance.effective:,.0f} samples of equal weight."
        )
        return section("Balance", f'<div class="card">{charts.paired_bars(rows)}</div>{more}', note)
    total = round(balance.shares[0].samples / balance.shares[0].stored)
    shares = [(text_cell(one.value), one.samples) for one in balance.shares]
    return section("Balance", f'<div class="card">{charts.meter(shares, total)}</div>{more}', f"Samples by {name}")


def _columns(columns: list[Distribution]) -> str:
    if not columns:
        return ""
    cards = "".join(_column(one) for one in columns)
    return section("Metadata", f'<div class="cards">{cards}</div>', count(len(columns), "column"))


def _column(one: Distribution) -> str:
    about = "≈ " if one.is_estimate else ""
    facts = [
        one.kind,
        f"{about}{count(one.distinct)} different" if one.distinct is not None else "",
        f'<span class="warn">{count(one.nulls, "null")} ({charts.percent(one.nulls, one.rows)})</span>'
        if one.nulls
        else "",
    ]
    facts += [
        f'<span class="warn">{int(one.numbers[name]):,} {shown}</span>'
        for name, shown in (("nan", "NaN"), ("infinite", "infinite"))
        if one.numbers.get(name)
    ]
    body = ""
    if one.histogram is not None:
        if len(one.histogram.counts) > 1:
            body = charts.bars(one.histogram, f"Histogram of {one.name}")
        names = ("min", "median", "mean", "max")
        pairs = "".join(f"<div><dt>{name}</dt><dd>{charts.number(one.numbers[name])}</dd></div>" for name in names)
        body += f"<dl>{pairs}</dl>"
    elif one.kind == "string" and one.top and one.top[0].count == 1 and one.others:
        # Each value comes once: a few of them say more than bars of equal length.
        shown = "".join(f"<li>{text_cell(each.value, 60)}</li>" for each in one.top[:3])
        body = f'<p class="dim">each comes once, such as</p><ul>{shown}</ul>'
    elif one.top:
        rows = [(text_cell(each.value, 28), each.count) for each in one.top]
        if one.others:
            rows.append(('<i class="null">others</i>', one.others))
        body = charts.meter(rows, one.rows)
    elif one.distinct:
        body = '<p class="dim">too many different values to count</p>'
    heading = f'<h3>{html(one.name, 60)}</h3><p class="dim">{" · ".join(fact for fact in facts if fact)}</p>'
    return f'<article class="card">{heading}{body}</article>'


def _health(health: list[Health]) -> str:
    if not health:
        return ""
    lines = []
    for one in health:
        state = '<span class="good">good</span>'
        if one.error is not None or one.finding_count:
            state = (
                f'<span class="bad">{html(one.error, 400) if one.error else count(one.finding_count, "finding")}</span>'
            )
        details = "".join(f"<li>{html(finding, 400)}</li>" for finding in one.findings)
        if one.finding_count > len(one.findings):
            details += f"<li>and {count(one.finding_count - len(one.findings))} more</li>"
        lines.append(
            f"<tr><td>{html(one.path, 120)}{f'<ul>{details}</ul>' if details else ''}</td><td>{state}</td>"
            f'<td class="num">{count(one.deleted)}</td><td class="num">{size(one.reclaimable_bytes)}</td></tr>'
        )
    head = (
        '<thead><tr><th>cache</th><th>state</th><th class="num">deleted</th>'
        '<th class="num">reclaimable</th></tr></thead>'
    )
    note = (
        "Manifests, tables and lengths were checked, payloads were not; <code>dataset-rt verify</code> reads them too"
    )
    return section(
        "Health", f'<div class="wide"><table>{head}<tbody>{"".join(lines[:200])}</tbody></table></div>', note
    )
