"""The report: what it says is true, nothing from data is markup, and it stays small."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

from dataset_rt.inspection.images import as_image, mime_type, resized
from dataset_rt.inspection.png import encoded
from dataset_rt.inspection.values import hexdump, summary, text_of
from dataset_rt.report import html_report
from dataset_rt.report.distributions import distribution, histogram
from tests.cli_support import HOSTILE, cli, digits
from tests.support import write

VOID = {"meta", "img", "br", "rect", "polyline"}


class Page(HTMLParser):
    """The tags, attributes and text of a page; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def images(self) -> list[bytes]:
        """Return the files of all pictures."""
        sources = [attributes["src"] or "" for tag, attributes in self.tags if tag == "img"]
        return [base64.b64decode(source.partition("base64,")[2]) for source in sources]


def test_a_page_needs_neither_network_nor_script(tmp_path):
    text = html_report([digits(tmp_path)], check=False)
    page = Page(text)
    assert "script" not in {tag for tag, _ in page.tags}
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert not {name for _, attributes in page.tags for name in attributes if name.startswith("on")}
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_nothing_from_data_becomes_markup(tmp_path):
    source = [(f"{HOSTILE} {n}".encode(), {HOSTILE: HOSTILE, "label": f"<b>{n % 2}"}) for n in range(20)]
    path = write(tmp_path, source, version="<i>1</i>")
    page = Page(html_report([path], title="<h1>" + HOSTILE, balance="label", check=False))
    assert not {"script", "b>", "i>"} & {tag for tag, _ in page.tags}
    assert page.text.count("<script>alert(1)</script>") >= 20
    assert "<i>1</i>" in page.text
    assert "<b>0" in page.text
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text


def test_the_figures_are_those_of_the_cache(tmp_path, capsys):
    path = digits(tmp_path, count=1200)
    stored = cli(capsys, "info", path, "--json").document["stored_bytes"]
    page = Page(html_report([path], check=False))
    assert "1,200" in page.text
    assert f"{stored / 1024:.0f} KiB" in page.text
    assert "uint8 3 × 8 × 8" in page.text
    assert page.text.count("25.0 %") == 8  # four labels, as a column and as its balance
    assert "too many" not in page.text


def test_weights_change_the_balance(tmp_path):
    path = write(tmp_path, [(b"x", {"label": int(n < 10)}) for n in range(100)])
    rare_often = pl.DataFrame({"cache_id": [0] * 100, "sample_id": range(100)}).cast(pl.UInt64)
    rare_often = rare_often.with_columns(weight=pl.when(pl.col("sample_id") < 10).then(27.0).otherwise(1.0))
    weighted = Page(html_report([path], weights=rare_often, check=False)).text
    assert "samplesstoreddrawn09090.0 %25.0 %11010.0 %75.0 %" in weighted
    even = Page(html_report([path], balance="label", check=False)).text
    assert even.count("50.0 %") == 2
    assert "36 samples of equal weight" in even


def test_pictures_are_the_payloads(tmp_path):
    from PIL import Image

    path = digits(tmp_path, count=5)
    pictures = Page(html_report([path], check=False)).images()
    assert len(pictures) == 5
    shown = np.asarray(Image.open(io.BytesIO(pictures[2])).convert("RGB"))
    assert np.array_equal(np.moveaxis(shown, -1, 0), np.arange(2 * 192, 3 * 192).astype(np.uint8).reshape(3, 8, 8))


def test_pages_about_many_samples_are_small(tmp_path):
    rows = 200_000
    path = tmp_path / "many.parquet"
    frame = pl.DataFrame({"n": range(rows)}).with_columns(
        data=pl.lit(b"payload"), text=pl.format("text {}", "n"), score=pl.col("n") / 7, kind=pl.col("n") % 5
    )
    frame.write_parquet(path)
    from dataset_rt.cli.app import run

    assert run(["write", str(tmp_path / "many"), str(path), "--json"]) == 0
    text = html_report([tmp_path / "many"], check=False)
    assert len(text) < 60_000
    assert "too many different values" in text


def test_a_damaged_sample_is_shown_as_one(tmp_path):
    path = write(tmp_path, [(bytes([n]) * 100, {"n": n}) for n in range(5)])
    shard = path / "shards" / "000000.bin"
    data = bytearray(shard.read_bytes())
    data[30] ^= 1
    shard.write_bytes(data)
    assert "checksum" in Page(html_report([path], check=False)).text


@pytest.mark.parametrize("count", [0, 1, 2])
def test_pages_about_hardly_anything_are_whole(tmp_path, count):
    path = write(tmp_path, [(b"", {"label": None, "x": float("nan")})] * 3, schema={"label": int | None, "x": float})
    Page(html_report([path], previews=count, check=False))
    Page(html_report([write(tmp_path, [(b"", {})], f"c{count}")], check=False))


def test_a_column_is_described_by_its_kind():
    ints = distribution(pl.Series("n", [1, 2, 2, None]))
    assert [(one.value, one.count) for one in ints.top] == [(1, 1), (2, 2)]
    assert ints.nulls == 1
    wide = distribution(pl.Series("n", range(1000)))
    assert (wide.numbers["min"], wide.numbers["max"], wide.numbers["median"]) == (0, 999, 499.5)
    assert wide.histogram is not None
    assert sum(wide.histogram.counts) == 1000
    floats = distribution(pl.Series("x", [1.0, float("nan"), float("inf"), None, -1e308, 1e308]))
    assert (floats.numbers["nan"], floats.numbers["infinite"], floats.nulls) == (1, 1, 1)
    texts = distribution(pl.Series("t", [f"{n % 40}" for n in range(400)]))
    assert (len(texts.top), texts.others, texts.distinct) == (12, 280, 40)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([0, 2**64 - 1], id="all of u64"),
        pytest.param([5, 5, 5], id="one value"),
        pytest.param([1, 10, 100, 1000, 100_000], id="orders of magnitude"),
        pytest.param([0, 1], id="two values"),
    ],
)
def test_every_value_is_in_a_bin(values):
    array = np.array(values, np.uint64)
    found = histogram(array)
    assert found is not None
    assert sum(found.counts) == len(values)
    assert found.edges == sorted(found.edges)
    assert (found.edges[0], found.edges[-1]) == (float(min(values)), float(max(values)))


@pytest.mark.parametrize("shape", [(9, 5, 3), (9, 5, 1), (9, 5, 4), (3, 9, 5), (9, 5)])
def test_arrays_with_the_shape_of_an_image_are_images(shape):
    pixels = as_image(np.zeros(shape, np.uint8))
    assert pixels is not None
    assert pixels.shape == (9, 5, 3)
    assert as_image(np.zeros(shape, np.float32)) is None


def test_an_image_that_shrinks_keeps_its_proportions_and_its_mean():
    pixels = np.random.default_rng(0).integers(0, 256, (300, 200, 3)).astype(np.uint8)
    small = resized(pixels, 64, 64)
    assert small.shape == (64, 43, 3)
    assert abs(small.mean() - pixels.mean()) < 1
    assert resized(small, 64, 64) is small


@pytest.mark.parametrize("is_grey", [True, False])
def test_png_files_hold_the_pixels(is_grey):
    from PIL import Image

    pixels = np.random.default_rng(1).integers(0, 256, (7, 11, 3)).astype(np.uint8)
    pixels = np.repeat(pixels[..., :1], 3, 2) if is_grey else pixels
    image = Image.open(io.BytesIO(encoded(pixels)))
    assert image.mode == ("L" if is_grey else "RGB")
    assert np.array_equal(np.asarray(image.convert("RGB")), pixels)


def test_bytes_are_described_as_what_they_are():
    assert mime_type(b"\x89PNG\r\n\x1a\n...") == "image/png"
    assert mime_type(b"BMW is no bitmap") is None
    assert text_of(b"caf\xc3\xa9") == "café"
    assert text_of(("é" * 400).encode()) == "é" * 400
    assert text_of(("é" * 401).encode()) == "é" * 400 + "…"
    assert text_of(b"\xff") is None
    assert text_of(b"a\x00") is None
    assert hexdump(bytes(range(17))).splitlines()[1] == f"{'00000010  10':<59}."
    assert summary("x", np.array([1.0, np.nan], np.float32))["nan"] == 1
    assert summary("x", np.zeros((0, 3), np.int8))["min"] is None
    assert summary("x", np.array([1 + 2j]))["values"] == ["(1+2j)"]
