"""Damage: whatever happens to the files, a reader gets the right bytes or a typed error."""

from __future__ import annotations

import hashlib
import math
import shutil
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dataset_rt import CachedDataset, ShardCompression, errors
from tests.support import edit_manifest, flip, manifest, numbered, open_in_order, pairs, reader, write

PUBLISHED = Path(__file__).parent / "data" / "published"

ITEMS = [
    (b"first payload", {"flag": True, "n": 1, "score": 0.25, "text": "a"}),
    (b"", {"flag": None, "n": -5, "score": math.nan, "text": "漢"}),
    (b"x" * 40, {"flag": False, "n": 2**40, "score": -0.0, "text": None}),
]


def files(path):
    return sorted(file for file in path.rglob("*") if file.is_file())


def served(path, **options):
    """Everything that a dataset gives out, each part or the typed error instead of it, with default checks."""

    def attempt(part):
        try:
            return repr(part())
        except errors.DatasetRTError as error:
            return None if str(error) else "an error without a message"

    try:
        dataset = CachedDataset([path], reader_config=reader(num_workers=1, shuffle=False, **options))
    except errors.DatasetRTError:
        return [None, None, None, *[None] * len(ITEMS)]
    return [
        attempt(lambda: len(dataset)),
        attempt(lambda: pairs(dataset)),
        attempt(lambda: dataset.samples_metadata().to_dicts()),
        *(attempt(lambda row=row: dataset[row]) for row in range(len(ITEMS))),
    ]


def differences(path, expected, **options):
    found = served(path, **options)
    return [part for part, right in zip(found, expected, strict=True) if part not in (None, right)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Tiny caches by name: plain, compressed, and of a published release."""
    base = tmp_path_factory.mktemp("tiny")
    plain = write(base, ITEMS, "plain", max_shard_bytes=150)
    assert len(manifest(plain)["shards"]) == 2
    lz4 = ShardCompression(algo="lz4", ratio=2.0)
    zstd = ShardCompression(algo="zstd")
    return {
        "plain": plain,
        "lz4": write(base, ITEMS, "lz4", shard_compression=lz4),
        "zstd": write(base, ITEMS, "zstd", shard_compression=zstd),
    }


@pytest.mark.parametrize("name", ["plain", "lz4", "zstd"])
@pytest.mark.parametrize("file", ["manifest.json", "metadata.arrow", "index.bin", "checksums.bin", "shards/000000.bin"])
def test_every_flipped_byte_gives_right_bytes_or_a_typed_error(tiny, tmp_path, name, file):
    path = shutil.copytree(tiny[name], tmp_path / "copy")
    expected = served(path)
    assert None not in expected
    original = (path / file).read_bytes()
    noticed = 0
    for position in range(len(original)):
        # 0x20 keeps letters letters and digits printable, which is what slips through text formats
        for mask in (0xFF, 0x20) if file == "manifest.json" else (0xFF, 1 << position % 8):
            flip(path / file, position, mask)
            assert differences(path, expected) == [], (file, position, mask)
            noticed += served(path) != expected if position % 16 == 0 else 0
            (path / file).write_bytes(original)
    assert noticed > 0
    assert served(path) == expected


@pytest.mark.parametrize("name", ["plain", "lz4", "zstd"])
def test_every_cut_of_every_file_is_found_at_open(tiny, tmp_path, name):
    path = shutil.copytree(tiny[name], tmp_path / "copy")
    expected = served(path)
    for file in files(path):
        original = file.read_bytes()
        for length in range(len(original)):
            file.write_bytes(original[:length])
            if file.name == "metadata.arrow":  # its length is not in the manifest: found when it is first used
                found = served(path)
                assert found[2] is None, length
                assert [part for part, right in zip(found, expected, strict=True) if part not in (None, right)] == []
            elif file.name == "manifest.json":
                # The end of a manifest may be white space; nothing else can be missed.
                assert length == len(original) - 1 or served(path)[0] is None, length
                assert differences(path, expected) == []
            else:
                with pytest.raises(errors.CorruptCacheError):
                    CachedDataset([path], reader_config=reader())
        for more in (b"\0", b"{}", original):
            file.write_bytes(original + more)
            assert differences(path, expected) == []
        file.unlink()
        with pytest.raises(errors.InvalidCacheError):
            CachedDataset([path], reader_config=reader())
        file.write_bytes(original)
    assert served(path) == expected


def test_flipped_records_are_found_by_positional_reads_too(tiny, tmp_path):
    path = shutil.copytree(tiny["plain"], tmp_path / "copy")
    expected = served(path, io="pread")
    for file in ("index.bin", "checksums.bin", "shards/000000.bin", "shards/000001.bin"):
        original = (path / file).read_bytes()
        for position in range(len(original)):
            flip(path / file, position)
            assert differences(path, expected, io="pread") == [], (file, position)
            (path / file).write_bytes(original)


def test_caches_of_published_releases_are_checked_by_whole_files(tmp_path):
    path = shutil.copytree(PUBLISHED / "0.2.0" / "mixed-none", tmp_path / "copy")
    expected = served(path)
    assert None not in expected
    rng = np.random.default_rng(5)
    for file in files(path):
        original = file.read_bytes()
        for position in rng.integers(0, len(original), 40):
            flip(file, int(position))
            found = served(path)
            # A manifest of that release has no checksum of its own: what is in it counts.
            if file.name != "manifest.json":
                assert [part for part, right in zip(found, expected, strict=True) if part not in (None, right)] == []
            file.write_bytes(original)


def test_full_validation_finds_every_flip_that_first_reads_find(tiny, tmp_path):
    path = shutil.copytree(tiny["plain"], tmp_path / "copy")
    for file in files(path):
        original = file.read_bytes()
        for position in range(0, len(original), 7):
            flip(file, position)
            with pytest.raises(errors.InvalidCacheError):
                CachedDataset([path], reader_config=reader(validate_cache=True)).samples_metadata()
            file.write_bytes(original)


def test_without_verification_flips_in_payloads_are_served_as_they_are(tiny, tmp_path):
    path = shutil.copytree(tiny["plain"], tmp_path / "copy")
    index = np.frombuffer((path / "index.bin").read_bytes(), dtype="<u8").reshape(-1, 3)
    flip(path / "shards" / "000000.bin", int(index[0, 1] + index[0, 2] - 1), 1)
    assert open_in_order(path, verify="never")[0].data == b"first payloae"
    with pytest.raises(errors.CorruptRecordError, match="checksum"):
        open_in_order(path, verify="first")[0]


def test_damage_after_the_first_read_is_found_by_verifying_always(tmp_path):
    path = write(tmp_path, numbered(3))
    first, always = (open_in_order(path, verify=verify, io="pread") for verify in ("first", "always"))
    assert pairs(first) == pairs(always) == numbered(3)
    shard = path / "shards" / "000000.bin"
    flip(shard, shard.stat().st_size - 1)
    assert first[2].data != numbered(3)[2][0]
    with pytest.raises(errors.CorruptRecordError):
        always[2]


# Defects by name, in files that are consistent otherwise


def reseal(path, file):
    """Make the manifest agree with a file that a test has replaced."""
    digest = hashlib.sha256((path / file).read_bytes()).hexdigest()
    match file:
        case "metadata.arrow":
            edit_manifest(path, metadata_sha256=digest, metadata_crc32c=...)
        case "index.bin":
            edit_manifest(path, index_sha256=digest)
        case _:
            raise ValueError(file)


def replace_table(path, change):
    with pa.OSFile(str(path / "metadata.arrow")) as source:
        table = pa.ipc.open_file(source).read_all()
    table = change(table)
    with pa.OSFile(str(path / "metadata.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda table: table.slice(0, 2), "rows"),
        (lambda table: pa.concat_tables([table, table]), "rows"),
        (lambda table: table.drop(["n"]), "n"),
        (lambda table: table.rename_columns(["m", "name"]), "m"),
        (lambda table: table.set_column(0, "n", table["n"].cast(pa.int32())), "n"),
        (lambda table: table.append_column("z", table["n"]), "z"),
    ],
    ids=["fewer-rows", "more-rows", "missing-column", "other-name", "other-type", "more-columns"],
)
def test_a_metadata_table_of_another_shape_is_found_when_it_is_used(tmp_path, change, part):
    path = write(tmp_path, numbered(3))
    replace_table(path, change)
    for seal in (False, True):
        if seal:
            reseal(path, "metadata.arrow")
        with pytest.raises(errors.CorruptCacheError) as caught:
            open_in_order(path).samples_metadata()
        assert Path(caught.value.path) == path / "metadata.arrow"
        assert ("checksum" in caught.value.subject or "sha256" in str(caught.value)) is not seal
    assert part in str(caught.value)
    with pytest.raises(errors.CorruptCacheError):
        open_in_order(path, validate_cache=True)


def test_a_metadata_table_that_differs_from_the_records_is_found_by_full_validation(tmp_path):
    path = write(tmp_path, numbered(3))
    replace_table(path, lambda table: table.set_column(0, table.schema.field("n"), pa.array([0, 77, 2], pa.int64())))
    reseal(path, "metadata.arrow")
    with pytest.raises(errors.CorruptRecordError) as caught:
        open_in_order(path, validate_cache=True)
    assert caught.value.sample_id == 1
    assert "`n`" in caught.value.subject
    assert "77" in caught.value.expected
    assert "1" in caught.value.found


@pytest.mark.parametrize(
    "row",
    [
        (1, 0, 10),
        (2**64 - 1, 0, 10),
        (0, 2**63, 10),
        (0, 2**64 - 1, 2**64 - 1),
        (0, 0, 2**40),
        (0, 10**6, 0),
        (0, 0, 0),
        (0, 0, 7),
    ],
    ids=str,
)
def test_an_index_row_that_points_elsewhere_is_found(tmp_path, row):
    path = write(tmp_path, numbered(3))
    rows = bytearray((path / "index.bin").read_bytes())
    rows[24:48] = struct.pack("<QQQ", *row)
    (path / "index.bin").write_bytes(rows)
    reseal(path, "index.bin")
    for io in ("mmap", "pread"):
        dataset = open_in_order(path, io=io)
        assert dataset[0].data == b"payload 0"
        with pytest.raises(errors.CorruptRecordError) as caught:
            dataset[1]
        assert caught.value.sample_id == 1
        with pytest.raises(errors.CorruptRecordError):
            open_in_order(path, io=io, verify="never")[1]
        with pytest.raises(errors.InvalidCacheError):
            open_in_order(path, io=io, validate_cache=True)


def test_index_rows_that_are_swapped_are_found(tmp_path):
    path = write(tmp_path, numbered(3))
    rows = (path / "index.bin").read_bytes()
    (path / "index.bin").write_bytes(rows[24:48] + rows[:24] + rows[48:])
    dataset = open_in_order(path)
    for row in (0, 1):
        with pytest.raises(errors.CorruptRecordError, match="checksum"):
            dataset[row]
    assert dataset[2].data == b"payload 2"


def test_shards_that_are_swapped_are_found(tmp_path):
    path = write(tmp_path, [(b"same length", {"n": n}) for n in range(6)], max_shard_bytes=60)
    one, other = (path / "shards" / f"00000{n}.bin" for n in range(2))
    assert one.stat().st_size == other.stat().st_size
    swapped = one.read_bytes(), other.read_bytes()
    one.write_bytes(swapped[1])
    other.write_bytes(swapped[0])
    with pytest.raises(errors.CorruptRecordError):
        list(open_in_order(path))


@pytest.mark.parametrize(
    "changes",
    [
        {"sample_count": -1},
        {"sample_count": 1.5},
        {"sample_count": "3"},
        {"sample_count": None},
        {"sample_count": ...},
        {"format_version": 0},
        {"format_version": 1},
        {"format_version": 5},
        {"format_version": 2**70},
        {"format_version": "2"},
        {"shards": []},
        {"shards": {}},
        {"shards": [{}]},
        {"metadata_schema": [{"name": "n", "kind": "complex"}]},
        {"metadata_schema": [{"name": "n", "kind": "int"}, {"name": "n", "kind": "int"}]},
        {"metadata_schema": [{"name": "weight", "kind": "int"}]},
        {"metadata_sha256": "00"},
        {"index_sha256": "zz" * 32},
        {"record_checksums": {"algo": "md5", "sha256": "00" * 32}},
        {"manifest_crc32c": "00000000"},
    ],
    ids=str,
)
def test_a_manifest_with_impossible_values_is_refused(tmp_path, changes):
    path = write(tmp_path, numbered(3))
    edit_manifest(path, **changes)
    with pytest.raises(errors.InvalidCacheError) as caught:
        open_in_order(path).samples_metadata()
    assert Path(caught.value.path).name in {"manifest.json", "metadata.arrow"}


@pytest.mark.parametrize("name", ["../000000.bin", "/etc/passwd", "..", "", "a/b", "a\\b", "con"], ids=repr)
def test_a_shard_outside_its_folder_is_refused(tmp_path, name):
    path = write(tmp_path, numbered(3))
    [shard] = manifest(path)["shards"]
    edit_manifest(path, shards=[{**shard, "name": name}])
    with pytest.raises(errors.ManifestError):
        open_in_order(path)


@pytest.mark.parametrize("file", ["index.bin", "checksums.bin", "metadata.arrow", "shards/000000.bin"])
def test_a_file_that_is_a_link_out_of_the_cache_is_not_followed(tmp_path, file):
    path = write(tmp_path, numbered(3))
    outside = (path / file).rename(tmp_path / "outside")
    (path / file).symlink_to(outside)
    with pytest.raises(errors.CorruptCacheError, match=file):
        open_in_order(path)
