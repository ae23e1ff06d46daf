//! Whole caches, written and read back by the plainest reader: their samples, bytes and shards.

use std::path::Path;

use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::names::DICTIONARY;

use crate::support::damage::files;
use crate::support::naive::{Cell, Sample, read};
use crate::support::writing::{ALGORITHMS, NAMES, Setup, entries, mixed, noise};

#[test]
fn samples_come_back_as_they_went_in() {
    for algorithm in ALGORITHMS {
        for (shard_bytes, prefetch) in [(64 << 20, 64), (100_000, 1), (1, 7), (5000, 1000)] {
            let base = tempfile::tempdir().unwrap();
            let setup = Setup {
                shard_bytes,
                prefetch,
                algorithm,
                version: Some("v7".to_owned()),
                ..Setup::default()
            };
            let samples = mixed(200);
            let summary = setup.write(base.path(), &NAMES, &samples).unwrap();
            assert_eq!(summary.path, base.path().join("train"));
            assert_eq!(entries(base.path()), std::slice::from_ref(&summary.path));
            let found = read(&summary.path);
            assert_eq!(found.samples, samples);
            assert_eq!(found.manifest, summary.manifest);
            let version = if algorithm == Algorithm::Zstd { 4 } else { 2 };
            assert_eq!(found.manifest.format_version, version);
            assert_eq!(found.manifest.source_name, "train");
            assert_eq!(found.manifest.source_version.as_deref(), Some("v7"));
            let shards = &found.manifest.shards;
            for (id, shard) in (0..).zip(shards) {
                let records = found.index.iter().filter(|row| row.shard == id).count();
                assert!(shard.byte_len <= shard_bytes || records == 1);
            }
            assert_eq!(shards.len() == 1, shard_bytes == 64 << 20);
        }
    }
}

#[test]
fn bytes_depend_on_samples_and_options_alone() {
    let samples = mixed(500);
    for (algorithm, level, dictionary_bytes) in [
        (Algorithm::Lz4, None, 0),
        (Algorithm::Lz4, Some(9), 0),
        (Algorithm::Zstd, Some(1), 0),
        (Algorithm::Zstd, Some(6), 0),
        (Algorithm::Zstd, None, 2048),
    ] {
        let written = |threads, prefetch| {
            let base = tempfile::tempdir().unwrap();
            let setup = Setup {
                threads,
                prefetch,
                shard_bytes: 300_000,
                algorithm,
                level,
                dictionary_bytes,
                ..Setup::default()
            };
            let path = setup.write(base.path(), &NAMES, &samples).unwrap().path;
            files(&path)
        };
        let expected = written(1, 1);
        let has_dictionary = expected.contains_key(Path::new(DICTIONARY));
        assert_eq!(has_dictionary, dictionary_bytes > 0);
        for (threads, prefetch) in [(1, 64), (2, 3), (4, 64), (16, 1000)] {
            assert!(
                written(threads, prefetch) == expected,
                "{algorithm:?} {level:?} {threads} {prefetch}"
            );
        }
    }
}

#[test]
fn shards_and_index_equal_those_of_the_published_release() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published/0.2.0");
    for (name, algorithm) in [
        ("mixed-none", Algorithm::None),
        ("mixed-lz4", Algorithm::Lz4),
    ] {
        let theirs = read(&data.join(name));
        let columns = theirs.manifest.metadata_schema.columns();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let base = tempfile::tempdir().unwrap();
        let setup = Setup {
            shard_bytes: 8192,
            algorithm,
            ..Setup::default()
        };
        let ours = setup.write(base.path(), &names, &theirs.samples).unwrap();
        assert_eq!(
            ours.manifest.metadata_schema,
            theirs.manifest.metadata_schema
        );
        assert_eq!(read(&ours.path).samples, theirs.samples);
        // Their lz4 is not promised to choose the same matches for ever, but shards must be cut in the same places.
        if algorithm == Algorithm::None {
            let (ours, theirs) = (files(&ours.path), files(&data.join(name)));
            for (name, bytes) in theirs {
                if name.starts_with("shards") || name.ends_with("index.bin") {
                    assert!(ours[&name] == bytes, "{}", name.display());
                }
            }
        }
        let lengths = |shards: &[dataset_rt::format::manifest::ShardEntry]| {
            let pairs = shards.iter().map(|s| s.uncompressed_byte_len);
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(
            lengths(&ours.manifest.shards),
            lengths(&theirs.manifest.shards)
        );
    }
}

#[test]
fn a_record_larger_than_a_shard_and_a_block_gets_its_own_shard() {
    let base = tempfile::tempdir().unwrap();
    let samples: Vec<Sample> = [10, 9 << 20, 10, 4 << 20, 0]
        .iter()
        .map(|&size| (noise(3, size), vec![Cell::Int(1)]))
        .collect();
    let setup = Setup {
        shard_bytes: 1 << 20,
        ..Setup::default()
    };
    let written = setup.write(base.path(), &["a"], &samples).unwrap();
    let found = read(&written.path);
    assert!(found.samples == samples);
    let shards: Vec<u64> = found.index.iter().map(|row| row.shard).collect();
    assert_eq!(shards, [0, 1, 2, 3, 4]);
}

#[test]
fn a_shard_may_be_filled_to_its_last_byte() {
    // As published releases do it: records of 100 bytes, two of which fit 200 bytes and not 199.
    let sample = (vec![7; 100 - 8 - 7], vec![Cell::Int(1)]);
    for (shard_bytes, expected) in [
        (199, vec![100; 4]),
        (200, vec![200; 2]),
        (201, vec![200; 2]),
    ] {
        let base = tempfile::tempdir().unwrap();
        let setup = Setup {
            shard_bytes,
            ..Setup::default()
        };
        let samples = std::iter::repeat_n(&sample, 4);
        let written = setup.write(base.path(), &["a"], samples).unwrap();
        let lengths: Vec<u64> = written.manifest.shards.iter().map(|s| s.byte_len).collect();
        assert_eq!(lengths, expected);
    }
}
