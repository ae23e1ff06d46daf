//! Index rows, records and payloads that lie under checksums that fit: right bytes or a typed error, and no hang, panic
//! or huge allocation.

use std::sync::Arc;

use dataset_rt::dataset::Caches;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::envelope;
use dataset_rt::format::index::IndexRow;
use dataset_rt::limits::METADATA_JSON_BYTES_MAX;
use dataset_rt::reader::{Chunk, Loader};
use dataset_rt::types::{Io, SampleRef, Verify};

use crate::support::caches::{Forge, record};
use crate::support::forgeries::{PAYLOADS, fault_of, read, with_record};

#[test]
fn a_sound_forgery_reads() {
    for algorithm in [Algorithm::None, Algorithm::Lz4, Algorithm::Zstd] {
        let reading = read(&Forge::sound(algorithm, &PAYLOADS));
        assert!(reading.is_sound(), "{reading:?}");
        let payloads: Vec<_> = reading
            .delivered
            .samples
            .into_iter()
            .map(|(p, _)| p)
            .collect();
        assert_eq!(payloads, PAYLOADS);
        assert!(read(&with_record(algorithm, b"anything").0).is_sound());
    }
}

#[test]
fn an_index_row_that_points_at_another_sample_is_refused() {
    for (from, to) in [(0, 2), (2, 0), (1, 0)] {
        let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
        forge.checksums = Some(forge.truthful());
        forge.index[from] = forge.index[to];
        let fault = fault_of(&forge, from);
        assert!(fault.contains("checksum of the record"), "{fault}");
        // Not even together with its checksum, which covers the sample id.
        let mut checksums = forge.checksums.clone().unwrap();
        checksums[from] = checksums[to];
        forge.checksums = Some(checksums);
        let fault = fault_of(&forge, from);
        assert!(fault.contains("checksum of the record"), "{fault}");
    }
    // The same bytes twice, under a different row each: refused for one of them.
    let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
    forge.index.swap(0, 2);
    forge.checksums = Some(Forge::sound(Algorithm::None, &PAYLOADS).truthful());
    assert!(fault_of(&forge, 0).contains("checksum of the record"));
}

#[test]
fn index_rows_that_overlap_or_leave_their_shard_are_refused() {
    let sound = Forge::sound(Algorithm::None, &PAYLOADS);
    let len = sound.shards[0].len() as u64;
    let IndexRow {
        offset, byte_len, ..
    } = sound.index[1];
    let bad = [
        (0, offset - 1, byte_len),
        (0, offset + 1, byte_len),
        (0, offset, byte_len + 1),
        (0, offset, byte_len - 1),
        (0, offset, 0),
        (0, offset, 7),
        (0, 0, len),
        (0, 0, len + 1),
        (0, len, 0),
        (0, len, 1),
        (0, len + 1, 0),
        (0, u64::MAX, 0),
        (0, u64::MAX, 1),
        (0, 1, u64::MAX),
        (0, u64::MAX, u64::MAX),
        (0, 1 << 63, 1 << 63),
        (0, (1 << 32) + offset, byte_len),
        (0, offset, (1 << 32) + byte_len),
        (1, offset, byte_len),
        (1 << 32, offset, byte_len),
        (u64::MAX, offset, byte_len),
    ];
    for (shard, offset, byte_len) in bad {
        let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
        forge.checksums = Some(forge.truthful());
        forge.index[1] = IndexRow {
            shard,
            offset,
            byte_len,
        };
        let fault = fault_of(&forge, 1);
        assert!(fault.contains("sample 1 "), "{fault}");
        // With a checksum of what the row points at, a row may hold any record, but nothing outside its shard.
        forge.checksums = None;
        let outside = shard > 0 || offset.checked_add(byte_len).is_none_or(|end| end > len);
        let failure = read(&forge).delivered.failure;
        assert!(!outside || failure.is_some());
    }
}

#[test]
fn records_that_lie_about_lengths_are_refused() {
    let sound = record(Algorithm::None, 1, b"payload");
    let with_len = |len: u64| [&len.to_le_bytes(), &sound[8..]].concat();
    let json_len = 8;
    let bad = [
        with_len(u64::MAX),
        with_len(1 << 63),
        with_len(1 << 32),
        with_len((1 << 32) + json_len),
        with_len(16 << 20),
        with_len((16 << 20) + 1),
        with_len(json_len + 8),
        with_len(json_len - 1),
        with_len(json_len + 1),
        with_len(0),
        sound[..7].to_vec(),
        sound[..8 + 7].to_vec(),
        vec![],
    ];
    for bytes in bad {
        let (mut forge, row) = with_record(Algorithm::None, &bytes);
        forge.index[1] = row;
        let fault = fault_of(&forge, 1);
        assert!(fault.contains("sample 1"), "{fault}");
    }
    let (mut forge, row) = with_record(Algorithm::None, &sound);
    forge.index[1] = row;
    assert!(read(&forge).is_sound());
    let long = |len: u64| [&len.to_le_bytes()[..], &vec![b' '; len as usize]].concat();
    assert!(envelope::split(&long(METADATA_JSON_BYTES_MAX)).is_ok());
    assert!(envelope::split(&long(METADATA_JSON_BYTES_MAX + 1)).is_err());
}

#[test]
fn compressed_payloads_that_lie_about_lengths_are_refused() {
    for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
        payloads_that_lie_about_lengths_are_refused(algorithm);
    }
}

fn payloads_that_lie_about_lengths_are_refused(algorithm: Algorithm) {
    let head = record(Algorithm::None, 1, b"");
    let mut bad: Vec<Vec<u8>> = Vec::new();
    let noise: Vec<u8> = (0..100_u32)
        .map(|at| (at * at * 7 + at / 3) as u8)
        .collect();
    for payload in [&noise[..], &[7; 5000], b"x", b""] {
        let stored = record(algorithm, 1, payload)[head.len()..].to_vec();
        for claimed in [
            0,
            1,
            payload.len() as u32 - u32::from(!payload.is_empty()),
            payload.len() as u32 + 1,
            u32::MAX,
            1 << 31,
        ] {
            if claimed != payload.len() as u32 {
                bad.push([&claimed.to_le_bytes(), &stored[4..]].concat());
            }
        }
        bad.extend(
            (0..stored.len())
                .step_by(5)
                .map(|len| stored[..len].to_vec()),
        );
        // Bytes after the end of the block.
        bad.push([&stored[..], b"\0more"].concat());
    }
    // A match that reaches back before the payload begins, and one of the distance 0.
    bad.push([&20_u32.to_le_bytes()[..], &[0x10, b'a', 9, 0, 0x10, b'b']].concat());
    bad.push([&20_u32.to_le_bytes()[..], &[0x10, b'a', 0, 0, 0x10, b'b']].concat());
    for stored in bad {
        let (mut forge, row) = with_record(algorithm, &[&head[..], &stored].concat());
        forge.index[1] = row;
        let fault = fault_of(&forge, 1);
        assert!(fault.contains("sample 1"), "{fault}: {stored:?}");
    }
}

#[test]
fn a_sample_that_cannot_be_loaded_leaves_no_trace_in_its_chunk() {
    let head = record(Algorithm::None, 1, b"");
    let mut cut = record(Algorithm::Lz4, 1, &[7; 500]);
    cut.truncate(cut.len() - 1);
    let bad_column = [&13_u64.to_le_bytes()[..], br#"{"id":"text"}"#, b"payload"].concat();
    assert!(head.len() < cut.len());
    let mut short = record(Algorithm::Zstd, 1, &[7; 500]);
    short.truncate(short.len() - 1);
    for (algorithm, bytes) in [
        (Algorithm::Lz4, cut),
        (Algorithm::Zstd, short),
        (Algorithm::None, bad_column),
    ] {
        let (mut forge, row) = with_record(algorithm, &bytes);
        forge.index[1] = row;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        forge.write(&path);
        let caches = Caches::open(&[path], Io::Auto, false).unwrap();
        let list = Arc::clone(caches.list());
        let mut loader = Loader::new(list, caches.io(), Verify::First);
        let mut chunk = Chunk::default();
        let mut load =
            |sample, chunk: &mut Chunk| loader.append(SampleRef { cache: 0, sample }, chunk);
        load(0, &mut chunk).unwrap();
        assert!(load(1, &mut chunk).is_err());
        load(2, &mut chunk).unwrap();
        assert_eq!(chunk.len(), 2);
        assert_eq!(chunk.get(1).unwrap().payload, PAYLOADS[2]);
    }
}
