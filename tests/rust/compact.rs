//! Compaction against a twin that only remembers which samples are left.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dataset_rt::dataset::{Dataset, DatasetOptions, SavedState};
use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::manifest::Manifest;
use dataset_rt::format::names::{CHECKSUMS, GENERATIONS, INDEX, MANIFEST, METADATA, SHARDS};
use dataset_rt::maintain::Changed;
use dataset_rt::maintain::compact::{CompactOptions, compact};
use dataset_rt::maintain::stats::stats;
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::vfs::OsVfs;
use dataset_rt::types::Io;

use crate::generations::{assert_holds, open, open_with, without};
use crate::support::altered_vfs::Altered;
use crate::support::caches::{Forge, Layout, copy, record, samples, write_here};
use crate::support::naive::Cell;
use crate::support::reading::{deliver, options};

fn try_compact(path: &Path, fraction: f64, shard_bytes: u64) -> Result<Changed> {
    let options = CompactOptions {
        min_dead_fraction: fraction,
        max_shard_bytes: Some(shard_bytes),
    };
    compact(Arc::new(OsVfs), path, options, &mut || Ok(()))
}

fn compacted(path: &Path, fraction: f64) -> Changed {
    try_compact(path, fraction, 1000).unwrap()
}

fn manifest(path: &Path, number: u64) -> Manifest {
    let file = match number {
        0 => path.join(MANIFEST),
        _ => folder(path, number).join(MANIFEST),
    };
    Manifest::parse(&file, &fs::read(&file).unwrap()).unwrap()
}

fn folder(path: &Path, number: u64) -> PathBuf {
    path.join(GENERATIONS).join(format!("{number:06}"))
}

/// Every file below a directory, by its path from there.
fn files(path: &Path) -> BTreeSet<PathBuf> {
    crate::support::scenario::load(path)
        .into_iter()
        .filter_map(|(name, content)| content.map(|_| name))
        .collect()
}

fn holds_text(path: &Path, text: &str) -> bool {
    let files = crate::support::scenario::load(path);
    files.values().flatten().any(|bytes| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    })
}

/// A full validation passes.
fn assert_valid(path: &Path) {
    let validated = DatasetOptions {
        validate_cache: true,
        ..options(Io::Auto)
    };
    open_with(path, Wanted::Newest, validated).unwrap();
}

/// Numbers that look random, and are the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

#[test]
fn random_deletions_and_compactions_leave_what_a_naive_twin_remembers() {
    const COUNT: usize = 60;
    let layouts = [
        Layout::none(700),
        Layout::lz4(300),
        Layout::zstd(1 << 20),
        Layout::trained(500),
    ];
    for (seed, layout) in (0..).zip(layouts) {
        let mut random = Random(seed);
        let root = tempfile::tempdir().unwrap();
        let path = write_here(root.path(), "train", layout, &samples(COUNT, 40));
        let mut gone: Vec<u64> = Vec::new();
        let mut earlier: Vec<(Dataset, Vec<u64>)> = Vec::new();
        for round in 0..12 {
            let io = [Io::Mmap, Io::Pread][round % 2];
            earlier.push((
                open_with(&path, Wanted::Newest, options(io)).unwrap(),
                gone.clone(),
            ));
            if random.below(2) == 0 {
                let ids: Vec<u64> = (0..random.below(9)).map(|_| random.below(60)).collect();
                without(&path, &ids);
                gone.extend(ids);
                gone.sort_unstable();
                gone.dedup();
            } else {
                let fraction = [0.0, 0.2, 1.0][random.below(3) as usize];
                let changed = try_compact(&path, fraction, 200 + random.below(900)).unwrap();
                assert_eq!(changed.samples, (COUNT - gone.len()) as u64);
                let again = try_compact(&path, fraction, 500).unwrap();
                assert_eq!(
                    (again.generation, again.bytes_written),
                    (changed.generation, 0)
                );
            }
            assert_holds(&open(&path, Wanted::Newest).unwrap(), COUNT, &gone);
            assert_valid(&path);
        }
        for (dataset, gone) in &earlier {
            assert_holds(dataset, COUNT, gone);
        }
    }
}

#[test]
fn only_shards_with_enough_that_is_dead_are_rewritten_and_the_others_are_shared() {
    let root = tempfile::tempdir().unwrap();
    let path = write_here(root.path(), "train", Layout::none(1000), &samples(50, 40));
    let before = manifest(&path, 0).shards.len() as u64;
    // Half of the first shard, and one of the second.
    let index = fs::read(path.join(INDEX)).unwrap();
    let shard_of = |id: u64| {
        IndexRow::from_bytes(&index[id as usize * 24..][..24])
            .unwrap()
            .shard
    };
    let first = (0..50).filter(|id| shard_of(*id) == 0).count() as u64;
    let mut ids: Vec<u64> = (0..first / 2).collect();
    ids.push(first);
    without(&path, &ids);
    let changed = compacted(&path, 0.3);
    assert_eq!((changed.generation, changed.previous), (2, 1));
    let after = manifest(&path, 2);
    let own = after.shards.iter().filter(|shard| shard.generation == 2);
    assert_eq!(own.count(), 1);
    assert_eq!(after.shards.len() as u64, before);
    assert!(changed.bytes_written > 0);
    assert_holds(&open(&path, Wanted::Newest).unwrap(), 50, &ids);
    // What was left is due under a lower fraction, and nothing after that.
    assert_eq!(compacted(&path, 0.0).generation, 3);
    assert_eq!(compacted(&path, 0.0).generation, 3);
    let found = stats(&path, Wanted::Newest, &mut || Ok(())).unwrap();
    assert!(found.shards.iter().all(|shard| shard.dead_bytes() == 0));
    assert_holds(&open(&path, Wanted::Newest).unwrap(), 50, &ids);
    // Rows of records that were left behind point nowhere, and have no checksum.
    let index = fs::read(folder(&path, 3).join(INDEX)).unwrap();
    let checksums = fs::read(folder(&path, 3).join(CHECKSUMS)).unwrap();
    for id in ids {
        let row = IndexRow::from_bytes(&index[id as usize * 24..][..24]).unwrap();
        assert_eq!(row, IndexRow::GONE);
        assert_eq!(checksums[id as usize * 4..][..4], [0; 4]);
    }
}

#[test]
fn what_a_deleted_sample_said_is_in_no_file_of_the_new_generation() {
    let root = tempfile::tempdir().unwrap();
    let mut rows = samples(40, 40);
    rows[17].0 = b"payload-of-somebody".to_vec();
    rows[17].1[3] = Cell::Str("name-of-somebody".to_owned());
    let path = write_here(root.path(), "train", Layout::none(1 << 20), &rows);
    without(&path, &[17]);
    // One record of forty is too little for the shard, but its metadata goes.
    compacted(&path, 0.2);
    assert_eq!(
        files(&folder(&path, 2)),
        [MANIFEST, METADATA].map(PathBuf::from).into()
    );
    assert!(!holds_text(&folder(&path, 2), "name-of-somebody"));
    compacted(&path, 0.0);
    for number in [2, 3] {
        assert!(!holds_text(&folder(&path, number), "somebody"), "{number}");
    }
    let newest = manifest(&path, 3);
    assert!(
        newest
            .files()
            .iter()
            .all(|(name, _)| name.starts_with(GENERATIONS))
    );
    assert_valid(&path);
}

#[test]
fn a_damaged_record_ends_the_compaction_and_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let path = write_here(root.path(), "train", Layout::none(1000), &samples(50, 40));
    without(&path, &[0, 1, 2, 3, 5]);
    let length = fs::read(path.join(SHARDS).join("000000.bin"))
        .unwrap()
        .len();
    let (mut refused, mut passed) = (0, 0);
    for position in (0..length).step_by(29) {
        let elsewhere = root.path().join(position.to_string()).join("train");
        copy(&path, &elsewhere);
        let shard = elsewhere.join(SHARDS).join("000000.bin");
        let mut bytes = fs::read(&shard).unwrap();
        bytes[position] ^= 1;
        fs::write(&shard, bytes).unwrap();
        let before = files(elsewhere.parent().unwrap());
        match try_compact(&elsewhere, 0.0, 1000) {
            Err(CacheError::DamagedRecord { path, subject, .. }) => {
                assert!(path.ends_with("shards/000000.bin"), "{}", path.display());
                assert_eq!(subject, "checksum of the record");
                assert_eq!(files(elsewhere.parent().unwrap()), before);
                refused += 1;
            }
            // The damage lay in a record that is left behind.
            other => {
                assert_eq!(other.unwrap().generation, 2);
                assert_valid(&elsewhere);
                passed += 1;
            }
        }
    }
    assert!(refused > 5 && passed > 5, "{refused} {passed}");
}

#[test]
fn a_damaged_index_or_table_is_not_sealed_again() {
    for victim in [INDEX, CHECKSUMS, METADATA] {
        let root = tempfile::tempdir().unwrap();
        let path = write_here(root.path(), "train", Layout::none(1000), &samples(50, 40));
        without(&path, &[0, 1, 2, 3, 4]);
        let before = files(root.path());
        let mut bytes = fs::read(path.join(victim)).unwrap();
        // Of the last sample, whose shard stays as it is.
        let position = match victim {
            METADATA => bytes.len() / 2,
            _ => bytes.len() - 1,
        };
        bytes[position] ^= 1;
        fs::write(path.join(victim), bytes).unwrap();
        let error = try_compact(&path, 0.2, 1000).unwrap_err();
        assert!(
            matches!(
                error,
                CacheError::DamagedFile { .. } | CacheError::DamagedRecord { .. }
            ),
            "{victim}: {error:?}"
        );
        assert_eq!(files(root.path()), before, "{victim}");
    }
}

#[test]
fn a_cache_without_record_checksums_is_compared_as_a_whole() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("old");
    let payloads: Vec<Vec<u8>> = (0..20u8).map(|id| vec![id; 50]).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let mut forge = Forge::sound(Algorithm::Lz4, &payloads);
    forge.manifest.record_checksums = None;
    forge.write(&path);
    without(&path, &[3, 4, 5, 6, 7]);
    let shard = path.join(SHARDS).join("000000.bin");
    let sound = fs::read(&shard).unwrap();
    let mut damaged = sound.clone();
    damaged[70] ^= 1;
    fs::write(&shard, damaged).unwrap();
    let error = try_compact(&path, 0.1, 400).unwrap_err();
    assert!(
        matches!(&error, CacheError::DamagedFile { path, .. } if *path == fs::canonicalize(&shard).unwrap()),
        "{error:?}"
    );
    fs::write(&shard, sound).unwrap();
    let before = deliver(&open(&path, Wanted::Newest).unwrap());
    assert_eq!(try_compact(&path, 0.1, 400).unwrap().generation, 2);
    assert_eq!(deliver(&open(&path, Wanted::Newest).unwrap()), before);
    assert!(!folder(&path, 2).join(CHECKSUMS).exists());
    assert_valid(&path);
}

#[test]
fn bytes_that_no_sample_owns_are_left_behind_without_any_deletion() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("gaps");
    let mut forge = Forge::sound(Algorithm::None, &[b"one", b"two", b"three"]);
    forge.shards[0].extend_from_slice(&[9; 100]);
    forge.manifest.shards[0].byte_len += 100;
    forge.write(&path);
    let before = deliver(&open(&path, Wanted::Newest).unwrap());
    assert_eq!(compacted(&path, 0.0).generation, 1);
    assert_eq!(compacted(&path, 0.0).generation, 1);
    let newest = manifest(&path, 1);
    assert_eq!(
        newest.shards[0].byte_len,
        forge.manifest.shards[0].byte_len - 100
    );
    assert_eq!(newest.shards[0].uncompressed_byte_len, 11);
    assert_eq!(deliver(&open(&path, Wanted::Newest).unwrap()), before);
    assert_valid(&path);
}

#[test]
fn a_cache_that_lost_every_sample_compacts_to_nothing() {
    let root = tempfile::tempdir().unwrap();
    let path = write_here(root.path(), "train", Layout::none(1000), &samples(9, 40));
    without(&path, &(0..9).collect::<Vec<_>>());
    let changed = compacted(&path, 0.2);
    assert_eq!((changed.generation, changed.samples), (2, 0));
    assert!(manifest(&path, 2).shards.is_empty());
    assert!(!folder(&path, 2).join(SHARDS).exists());
    assert_eq!(deliver(&open(&path, Wanted::Newest).unwrap()).samples, []);
    assert_eq!(compacted(&path, 0.0).generation, 2);
}

#[test]
fn whoever_stops_a_compaction_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let path = write_here(root.path(), "train", Layout::none(1000), &samples(50, 40));
    without(&path, &[0, 1, 2, 3, 4]);
    let before = files(root.path());
    let mut stop = || Err(CacheError::Interrupted);
    let stopped = compact(Arc::new(OsVfs), &path, CompactOptions::default(), &mut stop);
    assert!(matches!(stopped, Err(CacheError::Interrupted)));
    assert_eq!(files(root.path()), before);
    // While the disk is busy, too.
    let goes_on = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&goes_on);
    let stalled = Altered::new(OsVfs).before_write(move |_| {
        while !waits.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    });
    let mut asked = 0;
    let mut stop = || {
        asked += 1;
        if asked < 3 {
            return Ok(());
        }
        goes_on.store(true, Ordering::Release);
        Err(CacheError::Interrupted)
    };
    let stopped = compact(
        Arc::new(stalled),
        &path,
        CompactOptions::default(),
        &mut stop,
    );
    assert!(matches!(stopped, Err(CacheError::Interrupted)));
    assert_eq!(files(root.path()), before);
    for fraction in [-0.1, 1.1, f64::NAN] {
        let refused = try_compact(&path, fraction, 1000);
        assert!(
            matches!(refused, Err(CacheError::Option { .. })),
            "{fraction}"
        );
    }
}

#[test]
fn a_state_saved_before_compactions_goes_on_after_them() {
    let root = tempfile::tempdir().unwrap();
    let path = write_here(root.path(), "train", Layout::none(1000), &samples(50, 40));
    without(&path, &[0, 1, 2, 3, 30]);
    let saved = open(&path, Wanted::Newest).unwrap().saved_state().unwrap();
    let text = serde_json::to_string(&saved).unwrap();
    compacted(&path, 0.3);
    compacted(&path, 0.0);
    let saved = SavedState::parse(&text).unwrap();
    let after = open(&path, Wanted::Newest).unwrap();
    assert_eq!(after.generations().unwrap()[0].0, 3);
    after.load_state(&saved, &[]).unwrap();
    without(&path, &[7]);
    let later = open(&path, Wanted::Newest).unwrap();
    assert!(later.load_state(&saved, &[]).is_err());
}

#[test]
fn records_of_a_forged_manifest_cannot_lead_a_compaction_outside() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("hostile");
    let mut forge = Forge::sound(Algorithm::None, &[b"one", b"two", b"three"]);
    forge.index[2].byte_len = u64::MAX - 1;
    forge.checksums = Some(forge.truthful());
    forge.write(&path);
    without(&path, &[0]);
    let error = try_compact(&path, 0.0, 1000).unwrap_err();
    assert!(
        matches!(error, CacheError::DamagedRecord { sample_id: 2, .. }),
        "{error:?}"
    );
    // That of a deleted sample is nobody's loss.
    without(&path, &[2]);
    assert_eq!(try_compact(&path, 0.0, 1000).unwrap().samples, 1);
    let one = record(Algorithm::None, 1, b"two").len() as u64;
    assert_eq!(manifest(&path, 3).shards[0].byte_len, one);
    let elsewhere = root.path().join("copy");
    copy(&path, &elsewhere);
    assert_valid(&elsewhere);
}
