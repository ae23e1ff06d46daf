//! Samples of open caches as a cache of their own, compared with the samples they come from.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use dataset_rt::dataset::{Dataset, DatasetOptions};
use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::names::{DICTIONARY, SHARDS};
use dataset_rt::maintain::compact::{CompactOptions, compact};
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::vfs::OsVfs;
use dataset_rt::types::Io;

use crate::generations::without;
use crate::support::caches::{Forge, Layout, samples, write_here};
use crate::support::naive::{Sample, read};
use crate::support::reading::{deliver, options};

fn open(paths: &[PathBuf], io: Io) -> Dataset {
    Dataset::open(paths, options(io)).unwrap()
}

/// The rows `(cache, sample)` of a dataset, in this order.
fn view(dataset: &Dataset, rows: &[(u64, u64)]) -> Dataset {
    let column = |values: Vec<u64>| Arc::new(UInt64Array::from(values)) as ArrayRef;
    let batch = RecordBatch::try_from_iter([
        ("cache_id", column(rows.iter().map(|row| row.0).collect())),
        ("sample_id", column(rows.iter().map(|row| row.1).collect())),
    ]);
    dataset.select([Ok(batch.unwrap())]).unwrap()
}

fn copied(dataset: &Dataset, base: &Path, name: &str) -> Result<PathBuf> {
    let lock = CacheLock::try_acquire(base, name)?;
    dataset.copy_to(Arc::new(OsVfs), (base, name), lock, 700, &mut || Ok(()))
}

/// The cache holds exactly these samples, by the plainest reader and by the full validation.
fn assert_is(path: &Path, expected: &[Sample]) {
    assert_eq!(read(path).samples, expected);
    let validated = DatasetOptions {
        validate_cache: true,
        ..options(Io::Auto)
    };
    let dataset = Dataset::open(&[path.to_owned()], validated).unwrap();
    assert_eq!(deliver(&dataset).samples, expected);
}

const LAYOUTS: [Layout; 4] = [
    Layout {
        algorithm: Algorithm::None,
        shard_bytes: 600,
        dictionary_bytes: 0,
    },
    Layout {
        algorithm: Algorithm::Lz4,
        shard_bytes: 400,
        dictionary_bytes: 0,
    },
    Layout {
        algorithm: Algorithm::Zstd,
        shard_bytes: 1 << 20,
        dictionary_bytes: 0,
    },
    Layout {
        algorithm: Algorithm::Zstd,
        shard_bytes: 1 << 20,
        dictionary_bytes: 1024,
    },
];

#[test]
fn any_samples_of_any_caches_become_a_cache_in_the_order_asked_for() {
    let root = tempfile::tempdir().unwrap();
    // Different payloads, so that the two dictionaries differ too.
    let sources: Vec<Vec<Sample>> = (0..5).map(|n| samples(40, 60 + 30 * n)).collect();
    let layouts = LAYOUTS.into_iter().chain([LAYOUTS[3]]);
    let paths: Vec<PathBuf> = (0..)
        .zip(layouts)
        .zip(&sources)
        .map(|((number, layout), rows)| {
            write_here(root.path(), &format!("from{number}"), layout, rows)
        })
        .collect();
    let mut seed = 7u64;
    let mut random = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % bound
    };
    for (number, io) in (0..6).zip([Io::Mmap, Io::Pread].into_iter().cycle()) {
        let dataset = open(&paths, io);
        let rows: Vec<(u64, u64)> = match number {
            0 => (0..5)
                .flat_map(|cache| (0..40).map(move |id| (cache, id)))
                .collect(),
            1 => (0..40)
                .flat_map(|id| (0..5).map(move |cache| (cache, id)))
                .collect(),
            2 => (0..40)
                .rev()
                .map(|id| (3, id))
                .chain([(4, 0), (3, 0), (3, 0)])
                .collect(),
            _ => (0..100).map(|_| (random(5), random(40))).collect(),
        };
        let view = view(&dataset, &rows);
        let path = copied(&view, root.path(), &format!("to{number}")).unwrap();
        let expected: Vec<Sample> = rows
            .iter()
            .map(|(cache, id)| sources[*cache as usize][*id as usize].clone())
            .collect();
        assert_is(&path, &expected);
        assert_eq!(read(&path).manifest.source_name, format!("to{number}"));
    }
}

#[test]
fn a_whole_cache_is_copied_byte_by_byte() {
    let root = tempfile::tempdir().unwrap();
    for (number, layout) in (0..).zip(LAYOUTS) {
        let layout = Layout {
            shard_bytes: 700,
            ..layout
        };
        let path = write_here(
            root.path(),
            &format!("from{number}"),
            layout,
            &samples(40, 60),
        );
        let to = copied(
            &open(std::slice::from_ref(&path), Io::Auto),
            root.path(),
            &format!("to{number}"),
        );
        let (before, after) = (read(&path).manifest, read(&to.unwrap()).manifest);
        assert_eq!(after.shards, before.shards);
        assert_eq!(after.index_sha256, before.index_sha256);
        assert_eq!(after.record_checksums, before.record_checksums);
        assert_eq!(after.metadata_sha256, before.metadata_sha256);
        assert_eq!(after.dictionary, before.dictionary);
        assert_eq!(after.format_version, before.format_version);
    }
}

#[test]
fn the_dictionary_of_most_samples_stays_and_only_other_payloads_are_compressed_again() {
    let root = tempfile::tempdir().unwrap();
    let (few, many) = (samples(30, 60), samples(40, 200));
    let paths = [
        write_here(root.path(), "few", LAYOUTS[3], &few),
        write_here(root.path(), "many", LAYOUTS[3], &many),
    ];
    let to = copied(&open(&paths, Io::Auto), root.path(), "both").unwrap();
    let dictionary = |path: &Path| fs::read(path.join(DICTIONARY)).unwrap();
    assert_ne!(dictionary(&paths[0]), dictionary(&paths[1]));
    assert_eq!(dictionary(&to), dictionary(&paths[1]));
    assert_is(&to, &[few, many].concat());
}

#[test]
fn deleted_samples_are_not_copied_and_a_mixed_cache_compacts() {
    let root = tempfile::tempdir().unwrap();
    let rows = samples(30, 60);
    let paths = [
        write_here(root.path(), "plain", LAYOUTS[0], &rows),
        write_here(root.path(), "lz4", LAYOUTS[1], &rows),
    ];
    without(&paths[0], &[0, 29]);
    let dataset = open(&paths, Io::Auto);
    let interleaved: Vec<(u64, u64)> = (1..29).flat_map(|id| [(0, id), (1, id)]).collect();
    let path = copied(&view(&dataset, &interleaved), root.path(), "mixed").unwrap();
    let mixed: Vec<Sample> = (1..29)
        .flat_map(|id| [rows[id].clone(), rows[id].clone()])
        .collect();
    assert_is(&path, &mixed);
    let whole = copied(&dataset, root.path(), "whole").unwrap();
    assert_is(&whole, &[&rows[1..29], &rows[..]].concat());

    without(&path, &(0..56).step_by(3).collect::<Vec<_>>());
    let options = CompactOptions {
        min_dead_fraction: 0.0,
        max_shard_bytes: Some(900),
    };
    compact(Arc::new(OsVfs), &path, options, &mut || Ok(())).unwrap();
    let left: Vec<Sample> = (0..56)
        .filter(|id| id % 3 > 0)
        .map(|id| mixed[id].clone())
        .collect();
    for io in [Io::Mmap, Io::Pread] {
        assert_eq!(
            deliver(&open(std::slice::from_ref(&path), io)).samples,
            left
        );
    }
}

#[test]
fn what_cannot_be_copied_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let path = write_here(root.path(), "from", Layout::none(1000), &samples(20, 60));
    let names = |root: &Path| {
        let mut names: Vec<_> = fs::read_dir(root)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let before = names(root.path());
    let dataset = open(std::slice::from_ref(&path), Io::Auto);
    let none = copied(&view(&dataset, &[]), root.path(), "to");
    assert!(
        matches!(none, Err(CacheError::EmptySource { .. })),
        "{none:?}"
    );
    let taken = copied(&dataset, root.path(), "from");
    assert!(matches!(taken, Err(CacheError::Exists { .. })), "{taken:?}");
    let lock = CacheLock::try_acquire(root.path(), "to").unwrap();
    let mut stop = || Err(CacheError::Interrupted);
    let stopped = dataset.copy_to(Arc::new(OsVfs), (root.path(), "to"), lock, 700, &mut stop);
    assert!(matches!(stopped, Err(CacheError::Interrupted)));
    let shard = path.join(SHARDS).join("000000.bin");
    let mut bytes = fs::read(&shard).unwrap();
    bytes[100] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let damaged = copied(&open(&[path], Io::Auto), root.path(), "to");
    assert!(
        matches!(damaged, Err(CacheError::DamagedRecord { .. })),
        "{damaged:?}"
    );
    assert_eq!(names(root.path()), before);
}

#[test]
fn a_cache_without_record_checksums_gets_some() {
    let root = tempfile::tempdir().unwrap();
    let mut forge = Forge::sound(Algorithm::Lz4, &[b"one", b"two", b"three"]);
    forge.manifest.record_checksums = None;
    forge.write(&root.path().join("old"));
    let dataset = open(&[root.path().join("old")], Io::Auto);
    let expected = deliver(&dataset).samples;
    let path = copied(&dataset, root.path(), "new").unwrap();
    assert!(read(&path).manifest.record_checksums.is_some());
    assert_is(&path, &expected);
}
