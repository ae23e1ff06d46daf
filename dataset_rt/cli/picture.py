"""Images in a terminal: two pixels a character, one above the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.color import Color
from rich.segment import Segment, Segments
from rich.style import Style

from dataset_rt.inspection.images import resized

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

__all__ = ["can_draw", "draw"]

_UPPER_HALF = "▀"


def can_draw(console: Console) -> bool:
    """Whether the terminal has enough colours, and shows them."""
    return (
        console.is_terminal
        and console.color_system in ("truecolor", "256")
        and not console.no_color
        and console.encoding.startswith("utf")
    )


def draw(console: Console, pixels: NDArray[np.uint8], columns: int) -> None:
    """Draw an image at most `columns` characters wide; small ones keep their size."""
    image = resized(pixels, min(columns, console.width), max(2 * (console.height - 4), 16))
    segments: list[Segment] = []
    for top in range(0, len(image), 2):
        for column in range(image.shape[1]):
            above = Color.from_rgb(*image[top, column].tolist())
            below = Color.from_rgb(*image[top + 1, column].tolist()) if top + 1 < len(image) else None
            segments.append(Segment(_UPPER_HALF, Style(color=above, bgcolor=below)))
        segments.append(Segment.line())
    console.print(Segments(segments), end="", no_wrap=True, crop=False)
