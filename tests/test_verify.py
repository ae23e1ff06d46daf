"""Verifying: a report of everything that is wrong with a cache, and no exception for it."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from dataset_rt import ReaderConfig, ShardCompression, VerifyReport, errors, verify_cache
from tests.support import edit_manifest, finish, flip, hear, manifest, numbered, open_in_order, start, write

PUBLISHED = Path(__file__).parent / "data" / "published"


def files(path):
    return sorted(file for file in path.rglob("*") if file.is_file())


def kinds(report):
    return [finding.kind for finding in report.findings]


@pytest.mark.parametrize("full", [False, True])
def test_a_sound_cache_has_no_findings(tmp_path, full):
    path = write(tmp_path, numbered(100), max_shard_bytes=500)
    report = verify_cache(str(path), full=full)
    assert isinstance(report, VerifyReport)
    assert report.ok
    assert report == VerifyReport(
        path=path,
        generation=0,
        full=full,
        samples=100,
        bytes_read=report.bytes_read,
        findings=[],
        finding_count=0,
    )
    sizes = {file.name: file.stat().st_size for file in files(path)}
    assert report.bytes_read == (sum(sizes.values()) - sizes["manifest.json"] + 2400 if full else 2400)


@pytest.mark.parametrize("release", ["0.2.0", "0.4.8"])
def test_caches_of_published_releases_are_sound(release):
    for path in sorted((PUBLISHED / release).iterdir()):
        if path.is_dir():
            assert verify_cache(path).findings == []


def test_a_finding_names_file_sample_place_and_both_values(tmp_path):
    path = write(tmp_path, numbered(50))
    index = np.frombuffer((path / "index.bin").read_bytes(), dtype="<u8").reshape(-1, 3)
    shard = path / "shards" / "000000.bin"
    flip(shard, int(index[17, 1] + index[17, 2] - 1))
    report = verify_cache(path)
    assert not report.ok
    assert kinds(report) == ["checksum", "record_checksum"]
    whole, record = report.findings
    assert (whole.path, whole.sample_id, whole.offset) == (shard, None, None)
    assert whole.subject == "checksum of the file"
    assert whole.expected == f"sha256 {manifest(path)['shards'][0]['sha256']}"
    assert (record.path, record.sample_id, record.offset) == (shard, 17, index[17, 1])
    assert record.expected.startswith("crc32c ")
    assert record.found.startswith("crc32c ")
    assert str(record) == record.message
    for fact in (str(shard), "sample 17", record.expected, record.found):
        assert fact in record.message
    assert pickle.loads(pickle.dumps(report)) == report
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, "kind", "other")  # noqa: B010 (a type checker knows as well)


@pytest.mark.parametrize("algo", ["none", "zstd"])
def test_every_flipped_cut_grown_or_lost_file_is_found_by_name(tmp_path, algo):
    path = write(tmp_path, numbered(20), shard_compression=ShardCompression(algo=algo), max_shard_bytes=300)
    rng = np.random.default_rng(3)
    for file in files(path):
        original = file.read_bytes()
        for position in rng.integers(0, len(original), 12):
            flip(file, int(position))
            assert file in [finding.path for finding in verify_cache(path).findings], (file, position)
            file.write_bytes(original)
        for other in (original[:-1], b"", original + b"\0"):
            file.write_bytes(other)
            assert file in [finding.path for finding in verify_cache(path).findings], (file, len(other))
        if file.name != "manifest.json":
            file.unlink()
            assert [(finding.kind, finding.path) for finding in verify_cache(path, full=False).findings] == [
                ("missing_file", file)
            ]
        file.write_bytes(original)
    assert verify_cache(path).ok


def test_all_damaged_records_are_listed(tmp_path):
    path = write(tmp_path, numbered(2000), max_shard_bytes=10_000)
    index = np.frombuffer((path / "index.bin").read_bytes(), dtype="<u8").reshape(-1, 3)
    damaged = sorted(np.random.default_rng(0).choice(2000, 1000, replace=False).tolist())
    shards = {shard: bytearray((path / "shards" / f"{shard:06}.bin").read_bytes()) for shard in np.unique(index[:, 0])}
    for sample in damaged:
        shard, offset, length = index[sample].tolist()
        shards[shard][offset + length - 1] ^= 1
    for shard, content in shards.items():
        (path / "shards" / f"{shard:06}.bin").write_bytes(content)
    report = verify_cache(path)
    assert [finding.sample_id for finding in report.findings if finding.kind == "record_checksum"] == damaged
    assert report.finding_count == 1000 + len(shards)


def test_more_than_the_kept_findings_are_counted(tmp_path):
    path = write(tmp_path, [(b"", {"n": n}) for n in range(10_050)])
    (path / "checksums.bin").write_bytes(bytes(4 * 10_050))
    report = verify_cache(path)
    assert (len(report.findings), report.finding_count) == (10_000, 10_051)


def test_without_a_manifest_there_is_no_cache_and_with_a_bad_one_a_finding(tmp_path):
    path = write(tmp_path, numbered(3))
    for change in ({"format_version": 99}, {"sample_count": -1}, {"shards": []}):
        copy = shutil.copytree(path, tmp_path / "copy")
        edit_manifest(copy, **change)
        report = verify_cache(copy)
        assert kinds(report) == ["manifest"]
        assert report.findings[0].path == copy / "manifest.json"
        shutil.rmtree(copy)
    (path / "manifest.json").unlink()
    for missing in (path, tmp_path / "nowhere", path / "index.bin"):
        with pytest.raises(errors.CacheNotFoundError):
            verify_cache(missing)


def test_a_cache_is_verified_while_it_is_read_and_read_again_afterwards(tmp_path):
    path = write(tmp_path, numbered(500), max_shard_bytes=2000)
    dataset = open_in_order(path)
    samples = iter(dataset)
    first = next(samples)
    assert verify_cache(path).ok
    assert [first.data, *(sample.data for sample in samples)] == [data for data, _ in numbered(500)]


def test_full_validation_at_open_is_the_first_finding(tmp_path):
    path = write(tmp_path, numbered(50))
    flip(path / "shards" / "000000.bin", 30)
    (path / "checksums.bin").write_bytes(bytes(200))
    with pytest.raises(errors.CorruptCacheError) as caught:
        open_in_order(path, validate_cache=True)
    assert str(caught.value) == verify_cache(path).findings[0].message
    assert ReaderConfig(seed=0).validate_cache is False


def test_ctrl_c_ends_a_check(tmp_path):
    write(tmp_path, numbered(10))
    child = start(
        """
        import signal, sys
        from dataset_rt import verify_cache
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            print("ready")
            while True:
                verify_cache(sys.argv[1])
        except KeyboardInterrupt:
            print('"interrupted"')
        """,
        tmp_path / "train",
    )
    assert hear(child) == "ready"
    child.send_signal(signal.SIGINT)
    assert finish(child) == "interrupted"
