"""Records that claim more than there is memory for: damage is told as damage, want of memory as that, and no abort."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from dataset_rt import ShardCompression
from tests.support import run, write

RECORD = 18 << 20
"""Bytes of a record that may claim 4 GiB: LZ4 shrinks 255 times at most."""

SCRIPT = """
    import json, resource, sys
    from dataset_rt import CachedDataset, ReaderConfig

    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

    def outcome(read):
        try:
            return read()
        except Exception as error:
            return type(error).__name__

    found = []
    for io in ("mmap", "pread"):
        config = dict(seed=1, shuffle=False, io=io, verify=sys.argv[2])
        dataset = CachedDataset([sys.argv[1]], reader_config=ReaderConfig(**config))
        skipping = CachedDataset([sys.argv[1]], reader_config=ReaderConfig(**config, on_corrupt="skip"))
        found += [
            outcome(lambda: dataset.gather([0, 3])),
            outcome(lambda: dataset[3]),
            outcome(lambda: [sample.sample_id for sample in dataset]),
            outcome(lambda: [sample.sample_id for sample in skipping]),
            outcome(lambda: [batch.valid.tolist() for batch in skipping.batches(2)]),
        ]
    print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="this system does not limit addresses")
@pytest.mark.parametrize("verify", ["first", "always", "never"])
def test_a_length_beyond_memory_is_damage_where_records_are_compared(tmp_path, verify):
    noise = np.random.default_rng(0).bytes(RECORD)
    compression = ShardCompression(algo="lz4")
    path = write(tmp_path, [(b"a" * 100, {})] * 3 + [(noise, {})], shard_compression=compression)
    _, offset, _ = np.fromfile(path / "index.bin", "<u8").reshape(-1, 3)[3].tolist()
    with (path / "shards" / "000000.bin").open("r+b") as shard:
        shard.seek(offset + 8 + len("{}"))
        assert int.from_bytes(shard.read(4), "little") == RECORD
        shard.seek(-4, 1)
        shard.write(0xFFFF_FFF0.to_bytes(4, "little"))
    found = run(SCRIPT, path, verify)
    if verify == "never":
        assert found == ["OutOfMemoryError"] * 10
    else:
        expected = ["CorruptRecordError"] * 3 + [[0, 1, 2], [[True, True], [True, False]]]
        assert found == expected * 2
