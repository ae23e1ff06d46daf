"""Memory is bounded by what is in flight, however much is written or read."""

from __future__ import annotations

import pytest

from tests.support import run

MEMORY = """
    import json, sys
    from pathlib import Path
    from dataset_rt import ShardCompression
    from tests.support import open_in_order, write

    def status(field):
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field + ":")]
        return int(line.split()[1]) << 10

    base, payload, count, in_flight = Path(sys.argv[1]), 4 << 20, 128, 4
    write(base, [(bytes(payload), {"n": 0})], "warm up")
    list(open_in_order(base / "warm up"))
"""

MIB = 1 << 20


def test_memory_of_writing_is_bounded_by_what_is_in_flight(tmp_path):
    told = run(
        MEMORY
        + """
    before = status("VmHWM")
    buffer = bytearray(payload)
    write(base, ((buffer, {"n": n}) for n in range(count)), "train", prefetch_size=in_flight, max_shard_bytes=1 << 40)
    print(json.dumps(status("VmHWM") - before))
        """,
        tmp_path,
    )
    # 512 MiB pass through; 4 samples of 4 MiB may be in flight, as payload and as record, beside a few write blocks.
    assert told < 4 * 4 * MIB * 2 + 64 * MIB, told / MIB


@pytest.mark.parametrize("io", ["pread", "mmap"])
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_memory_of_reading_is_bounded_by_what_is_in_flight(tmp_path, io, algo):
    told = run(
        MEMORY
        + """
    path = write(
        base,
        ((bytes(payload), {"n": n}) for n in range(count)),
        "train",
        prefetch_size=in_flight,
        shard_compression=ShardCompression(algo=sys.argv[3]),
    )
    dataset = open_in_order(path, io=sys.argv[2], prefetch_size=in_flight, num_workers=2)
    # Mapped files count as resident though the system may take their pages back at any time: only our own memory
    # counts.
    before = peak = status("RssAnon")
    for sample in dataset:
        assert len(sample.data) == payload
        peak = max(peak, status("RssAnon"))
    print(json.dumps(peak - before))
        """,
        tmp_path,
        io,
        algo,
    )
    assert told < 4 * 4 * MIB * 2 + 32 * MIB, told / MIB


def test_an_open_dataset_holds_no_payload(tmp_path):
    told = run(
        MEMORY
        + """
    path = write(base, ((bytes(payload), {"n": n}) for n in range(count)), "train", prefetch_size=in_flight)
    before = status("VmRSS")
    dataset = open_in_order(path)
    dataset.samples_metadata()
    print(json.dumps(status("VmRSS") - before))
        """,
        tmp_path,
    )
    assert told < 16 * MIB, told / MIB
