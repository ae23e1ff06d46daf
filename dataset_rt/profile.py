"""`ReaderProfile`: where the time of reading a dataset went, and what to change about it."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from dataset_rt.errors import ConsumerStarvedWarning

__all__ = ["Bottleneck", "ReaderProfile"]

Bottleneck: TypeAlias = Literal["disk", "decode", "copy", "consumer", "balanced"]
"""What takes the time; see `ReaderProfile.bottleneck`."""

_KEEPS_UP = 0.1
"""Share of its time that a consumer may wait while loading still counts as keeping up with it."""

_MOST = 0.5
"""Share of the work from which on one part of it is the bottleneck."""

_ADVICE: dict[str, str] = {
    "disk": "put the cache on faster storage or in memory, or have more reads under way with a larger num_workers and "
    "prefetch_size",
    "decode": "raise num_workers if there are idle cores, write the cache with a lighter shard_compression, or see "
    'what verify="never" gains',
    "copy": "raise num_workers if there are idle cores, or leave fields out with columns=",
    "balanced": "raise num_workers if there are idle cores, and prefetch_size with it",
}

_ROWS = (
    ("consumer", ("waiting", "working", "gather")),
    ("loading", ("disk", "plan", "locate", "verify", "decode", "copy")),
    ("idle", ("room",)),
)
"""Rows of the table, by heading."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReaderProfile:
    """Counters and times of one dataset in one process; what `CachedDataset.profile()` returns.

    Times of loading are thread-seconds: with four workers there are four of them in a second. Those of verifying,
    decoding and copying are estimates, divided by a few records that are timed now and then.

    Example:
        >>> for batch in dataset.batches(4):
        ...     pass
        >>> dataset.profile().batches
        3
    """

    elapsed_seconds: float
    """Since the dataset was opened, or the counters last began again."""

    samples: int
    """Samples handed out, those of batches and of `gather` included; of an iterator over samples that is not the last
    one, without those of the chunk that it is in."""

    batches: int
    """Batches handed out."""

    gathers: int
    """Calls of `gather`."""

    payload_bytes: int
    """Bytes of payloads handed out, or of those fields that were asked for."""

    waiting_seconds: float
    """Consumers waiting for the next sample or batch."""

    working_seconds: float
    """What consumers did from getting something to asking for more: the training step, and making Python objects."""

    gather_seconds: float
    """Callers of `gather` in it."""

    disk_seconds: float
    """Threads that load, kept from running, and not for want of a processor: waiting for a disk or a network. 0 on
    Windows, which does not tell."""

    plan_seconds: float
    """Computing which samples come."""

    locate_seconds: float
    """Looking up index rows and lengths and opening files; with `io="pread"` also reading and verifying."""

    verify_seconds: float
    """Comparing records with their checksums."""

    decode_seconds: float
    """Decompressing; for single samples also decoding metadata."""

    copy_seconds: float
    """Copying values to where they belong, and fetching them from memory for that."""

    room_seconds: float
    """Workers with nothing to do until the consumer takes something."""

    @property
    def waiting_share(self) -> float:
        """The share of its time, 0 to 1, that the consumer of iterators waits."""
        total = self.waiting_seconds + self.working_seconds
        return self.waiting_seconds / total if total > 0 else 0.0

    @property
    def bottleneck(self) -> Bottleneck:
        """What to look at to become faster.

        `"consumer"` if loading keeps up: the consumer of iterators waits for less than a tenth of its time. Otherwise
        what takes at least half of the work of loading: `"disk"`, `"decode"` (with verifying) or `"copy"` (with
        planning and locating). `"balanced"` if nothing does, or nothing was loaded yet.
        """
        if self.waiting_seconds + self.working_seconds > 0 and self.waiting_share < _KEEPS_UP:
            return "consumer"
        return self._most_work()

    def _most_work(self) -> Bottleneck:
        work: dict[Bottleneck, float] = {
            "disk": self.disk_seconds,
            "decode": self.verify_seconds + self.decode_seconds,
            "copy": self.plan_seconds + self.locate_seconds + self.copy_seconds,
        }
        part = max(work, key=work.__getitem__)
        total = sum(work.values())
        return part if total > 0 and work[part] >= _MOST * total else "balanced"

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers by name, and the bottleneck, fit for JSON and for the logs of an experiment."""
        return {**asdict(self), "waiting_share": self.waiting_share, "bottleneck": self.bottleneck}

    def __str__(self) -> str:
        """Return a table to read."""
        counts = f"{self.samples:,} samples, {self.batches:,} batches, {self.gathers:,} gathers"
        lines = [f"{counts}, {self.payload_bytes:,} payload bytes in {self.elapsed_seconds:.3f} s"]
        for heading, names in _ROWS:
            times = {name: getattr(self, f"{name}_seconds") for name in names}
            total = sum(times.values())
            for name, seconds in times.items():
                share = seconds / total if total > 0 else 0.0
                lines.append(f"{heading:<9}{name:<8}{seconds:>12.3f} s{share:>7.0%}")
                heading = ""  # noqa: PLW2901 (only in the first row)
        return "\n".join([*lines, f"bottleneck: {self.bottleneck}"])


def warn_starving(counters: dict[str, Any]) -> None:
    """Warn the caller of the native function that calls this: it waits for most of its time."""
    profile = ReaderProfile(**counters)
    part = profile._most_work()  # noqa: SLF001 (ours)
    cause = "no single stage takes most of it" if part == "balanced" else f"most of the work of loading is: {part}"
    seconds = profile.waiting_seconds + profile.working_seconds
    warnings.warn(
        f"the consumer has waited {profile.waiting_share:.0%} of {seconds:.0f} s for samples; {cause}. To change that, "
        f"{_ADVICE[part]}. dataset.profile() has the numbers; this is said once.",
        ConsumerStarvedWarning,
        stacklevel=2,
    )
