"""Values as text that is safe to print: whatever comes from data can neither move the cursor nor reorder a line."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

__all__ = ["count", "duration", "one_line", "rate", "safe", "share", "size", "value"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

# Controls, marks that change the direction of text, line separators, surrogates of undecodable file names.
_DANGEROUS = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (
        *(n for n in range(0x20) if n not in (0x09, 0x0A)),
        *range(0x7F, 0xA0),
        *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        *range(0xD800, 0xE000),
    )
}
_LINE = {**_DANGEROUS, 0x09: "\\t", 0x0A: "\\n"}


def safe(text: Any) -> str:
    """Return text with everything that a terminal would obey spelled out; tabs and line ends stay."""
    return str(text).translate(_DANGEROUS)


def one_line(text: Any, longest: int | None = None) -> str:
    """Return `safe(text)` in one line, cut to `longest` characters with an ellipsis."""
    found = str(text)
    if longest is not None and len(found) > longest:
        found = found[: max(longest - 1, 0)] + "…"
    return found.translate(_LINE)


def size(count_of_bytes: float) -> str:
    """Return a number of bytes for people, such as `1.5 MiB`."""
    number = float(count_of_bytes)
    for unit in _UNITS:
        if abs(number) < 1024 or unit == _UNITS[-1]:
            return f"{number:.0f} {unit}" if unit == "B" or abs(number) >= 100 else f"{number:.3g} {unit}"
        number /= 1024
    raise AssertionError


def count(number: int, noun: str = "", plural: str | None = None) -> str:
    """Return a number with separators, and the noun that fits it."""
    name = noun if number == 1 else plural or f"{noun}s"
    return f"{number:,} {name}" if noun else f"{number:,}"


def share(part: float, whole: float) -> str:
    """Return a part in percent of a whole."""
    return f"{100 * part / whole:.3g} %" if whole else "–"


def rate(amount: float, seconds: float) -> float | None:
    """Return an amount per second, if there is one."""
    return amount / seconds if seconds > 0 else None


def duration(seconds: float) -> str:
    """Return a time for people."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def value(item: Any, longest: int | None = None) -> str:
    """Return one value of a table."""
    if item is None:
        return "null"
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, float):
        return f"{item:.6g}" if math.isfinite(item) else str(item)
    return one_line(item, longest)


def width(text: str) -> int:
    """Return the cells that text takes in a terminal, nearly: wide characters count twice, joining ones not at all."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) != 0 for letter in text)
