"""`show`: single samples, with a preview of each field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from dataset_rt.cli import display
from dataset_rt.cli.failures import Refused
from dataset_rt.cli.opening import one_cache, open_dataset
from dataset_rt.cli.options import cache_path, command, generation
from dataset_rt.cli.session import current
from dataset_rt.inspection.text import safe, size, value

if TYPE_CHECKING:
    from rich.console import Console

    from dataset_rt import CachedSample

__all__ = ["show"]


@command
@cache_path
@click.argument("sample_ids", metavar="SAMPLE_ID...", nargs=-1, required=True, type=click.IntRange(min=0))
@generation
@click.option("--images/--no-images", default=True, help="Draw images where the terminal can.")
@click.option("--width", type=click.IntRange(min=4), default=64, show_default=True, help="Columns of an image.")
@click.option("--bytes", "hex_bytes", type=click.IntRange(min=0), default=64, show_default=True, help="Bytes to dump.")
def show(
    *, path: str, sample_ids: tuple[int, ...], generation: int | None, images: bool, width: int, hex_bytes: int
) -> None:
    """Show samples: metadata, and what is in each payload field."""
    from dataset_rt.cli.picture import can_draw
    from dataset_rt.inspection.values import fields_of, summary

    session = current()
    cache = one_cache(path)
    samples = _samples(cache, sample_ids, generation)
    document = {
        "path": cache,
        "samples": [
            {
                "sample_id": sample.sample_id,
                "metadata": sample.metadata,
                "payload": [summary(name, item, hex_bytes) for name, item in fields_of(sample.data)],
            }
            for sample in samples
        ],
    }

    def render(console: Console) -> None:
        for number, (sample, described) in enumerate(zip(samples, document["samples"], strict=True)):
            if number:
                console.print()
            _sample(console, sample, described, width if images and can_draw(console) else 0)

    session.emit(document, render)


def _samples(cache: str, sample_ids: tuple[int, ...], generation: int | None) -> list[CachedSample]:
    """Read samples by id."""
    import polars as pl

    from dataset_rt.errors import WeightsError

    dataset = open_dataset([cache], generation=generation)
    wanted = pl.DataFrame({"cache_id": [0] * len(sample_ids), "sample_id": sample_ids}).cast(pl.UInt64)
    try:
        view = dataset.select(wanted)
    except WeightsError as error:
        ids = dataset.samples_metadata()["sample_id"]
        unknown = ", ".join(str(number) for number in sample_ids if number not in ids)
        raise Refused(f"{cache} has no sample {unknown}; it has {len(ids)}, up to number {ids.max()}") from error
    return [view[row] for row in range(len(sample_ids))]


def _sample(console: Console, sample: CachedSample, described: dict[str, Any], image_width: int) -> None:
    from dataset_rt.cli.picture import draw
    from dataset_rt.inspection.images import as_image
    from dataset_rt.inspection.values import fields_of

    display.heading(console, f"sample {sample.sample_id}")
    display.facts(console, [(name, value(item)) for name, item in sample.metadata.items()])
    for (name, item), found in zip(fields_of(sample.data), described["payload"], strict=True):
        shape = " × ".join(map(str, found["shape"]))
        kind = found["image"] or ("text" if found["text"] is not None else None)
        console.print()
        title = [name, found["dtype"], shape if found["dtype"] != "bytes" else None, size(found["bytes"]), kind]
        display.heading(console, "  ".join(part for part in title if part))
        _content(console, item, found)
        pixels = as_image(item) if image_width else None
        if pixels is not None:
            draw(console, pixels, image_width)


def _content(console: Console, item: Any, found: dict[str, Any]) -> None:
    from dataset_rt.inspection.values import hexdump

    if found["min"] is not None:
        nan = f"   NaN {found['nan']}" if found["nan"] else ""
        numbers = [f"{name} {value(found[name])}" for name in ("min", "max", "mean")]
        display.note(console, "   ".join(numbers) + nan, style="")
    if found["values"]:
        more = " …" if len(found["values"]) < item.size else ""
        display.note(console, " ".join(value(number) for number in found["values"]) + more)
    if found["text"] is not None:
        console.print(Text(safe(found["text"])))
    elif found["hex"] is not None:
        dump = bytes.fromhex(found["hex"])
        console.print(Text(hexdump(dump), no_wrap=True))
        if len(dump) < found["bytes"]:
            display.note(console, f"… {size(found['bytes'] - len(dump))} more")
