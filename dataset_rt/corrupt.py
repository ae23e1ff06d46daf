"""The warning that a damaged sample was met and not raised."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from dataset_rt.errors import CorruptSampleWarning

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["warn_corrupt"]


def warn_corrupt(cache_id: int, sample_id: int, path: Path, reason: str) -> None:
    """Warn the caller of the native function that calls this: a sample is damaged."""
    warnings.warn(
        f"{path}: sample {sample_id} of cache {cache_id} is damaged ({reason}) and was not delivered, as on_corrupt= "
        "asks. dataset.corrupt_samples() lists all that this process has met, verify_cache finds the rest; this is "
        "said once.",
        CorruptSampleWarning,
        stacklevel=2,
    )
