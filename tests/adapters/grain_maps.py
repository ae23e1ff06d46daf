"""Maps of Grain that its worker processes can import."""

from __future__ import annotations

import grain
import numpy as np


def decoded(element):
    """Make an element of one shape, which Grain can stack."""
    text = element["jpeg"].tobytes().rstrip(b"\0").decode()
    return {"image": element["image"], "number": np.int64(text.removeprefix("jpeg ")), "label": element["label"]}


class Decode(grain.transforms.Map):
    def map(self, element):
        return decoded(element)
