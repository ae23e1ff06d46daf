//! A check of a later generation: what is gone is no damage, and whatever else is wrong is found in the file that has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset_rt::error::CacheError;
use dataset_rt::format::checksum::Sha256Digest;
use dataset_rt::format::index::{IndexRow, ROW_BYTES};
use dataset_rt::format::manifest::Manifest;
use dataset_rt::format::names::{DELETED, GENERATIONS, INDEX, MANIFEST, SHARDS, shard};
use dataset_rt::maintain::compact::{CompactOptions, compact};
use dataset_rt::maintain::delete::delete;
use dataset_rt::maintain::repair::repair;
use dataset_rt::maintain::{Kind, Report, verify};
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::vfs::OsVfs;

use crate::support::caches::{Layout, samples, write_here};

/// A cache of 30 samples of which generation 1 lost two and generation 2 another.
fn cache(folder: &Path) -> PathBuf {
    let path = write_here(folder, "train", Layout::none(500), &samples(30, 40));
    delete(Arc::new(OsVfs), &path, vec![3, 17]).unwrap();
    delete(Arc::new(OsVfs), &path, vec![29]).unwrap();
    path
}

fn check(path: &Path, wanted: Wanted) -> Report {
    verify(path, wanted, true, &mut |_| Ok(())).unwrap()
}

fn found(report: &Report) -> Vec<(Kind, PathBuf, Option<u64>)> {
    let facts = report.findings.iter().map(|finding| {
        let facts = finding.facts();
        (finding.kind, facts.path, facts.sample_id)
    });
    facts.collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn manifest_of(path: &Path, number: u64) -> PathBuf {
    path.join(GENERATIONS)
        .join(format!("{number:06}"))
        .join(MANIFEST)
}

fn row(path: &Path, sample: usize) -> IndexRow {
    let rows = fs::read(path.join(INDEX)).unwrap();
    IndexRow::from_bytes(&rows[sample * ROW_BYTES as usize..][..ROW_BYTES as usize]).unwrap()
}

#[test]
fn each_generation_is_checked_by_itself_and_what_is_gone_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path());
    for (wanted, number, samples) in [
        (Wanted::Number(0), 0, 30),
        (Wanted::Number(1), 1, 28),
        (Wanted::Number(2), 2, 27),
        (Wanted::Newest, 2, 27),
    ] {
        for full in [false, true] {
            let report = verify(&path, wanted, full, &mut |_| Ok(())).unwrap();
            assert_eq!(found(&report), []);
            assert_eq!((report.generation, report.samples), (number, samples));
        }
    }
    let gone = row(&path, 17);
    let file = path.join(SHARDS).join(shard(gone.shard));
    flip(&file, (gone.offset + gone.byte_len - 1) as usize);
    let whole = (Kind::Checksum, file.clone(), None);
    let record = (Kind::RecordChecksum, file, Some(17));
    assert_eq!(
        found(&check(&path, Wanted::Number(0))),
        [whole.clone(), record]
    );
    assert_eq!(found(&check(&path, Wanted::Newest)), [whole]);
}

#[test]
fn rows_that_a_compaction_gave_up_count_only_where_their_ids_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path());
    let file = manifest_of(&path, 2);
    let mut manifest = Manifest::parse(&file, &fs::read(&file).unwrap()).unwrap();
    let give_up = |samples: &[usize], manifest: &mut Manifest| {
        let mut rows = fs::read(path.join(INDEX)).unwrap();
        for sample in samples {
            rows[sample * ROW_BYTES as usize..][..ROW_BYTES as usize].fill(0xff);
        }
        fs::write(path.join(INDEX), &rows).unwrap();
        manifest.index_sha256 = Sha256Digest::of(&rows);
        fs::write(&file, manifest.to_bytes().unwrap()).unwrap();
    };
    give_up(&[3, 17, 29], &mut manifest);
    assert_eq!(found(&check(&path, Wanted::Newest)), []);
    let deleted = path.join(GENERATIONS).join("000001").join(DELETED);
    let sound = fs::read(&deleted).unwrap();
    for at in 0..sound.len() {
        flip(&deleted, at);
        let expected = [(Kind::Checksum, deleted.clone(), None)];
        assert_eq!(found(&check(&path, Wanted::Newest)), expected, "byte {at}");
        fs::write(&deleted, &sound).unwrap();
    }
    give_up(&[8], &mut manifest);
    let expected = [(Kind::IndexRow, path.join(INDEX), Some(8))];
    assert_eq!(found(&check(&path, Wanted::Newest)), expected);
}

#[test]
fn deleted_ids_that_contradict_each_other_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path());
    let file = manifest_of(&path, 2);
    let text = fs::read(&file).unwrap();
    let deleted = path.join(GENERATIONS).join("000002").join(DELETED);
    for id in [3, 30] {
        let bytes = dataset_rt::format::generation::encode_deleted(&[id]);
        fs::write(&deleted, &bytes).unwrap();
        let mut manifest = Manifest::parse(&file, &text).unwrap();
        let generation = manifest.generation.as_mut().unwrap();
        generation.deleted[1].sha256 = Sha256Digest::of(&bytes);
        fs::write(&file, manifest.to_bytes().unwrap()).unwrap();
        let report = check(&path, Wanted::Newest);
        assert!(
            report
                .findings
                .iter()
                .any(|finding| finding.kind == Kind::FileFormat),
            "{id}"
        );
    }
}

#[test]
fn a_generation_without_a_sound_manifest_is_a_finding_and_one_that_never_was_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path());
    let newest = manifest_of(&path, 2);
    let text = fs::read(&newest).unwrap();
    fs::write(&newest, &text[..text.len() / 2]).unwrap();
    let report = check(&path, Wanted::Newest);
    assert_eq!(found(&report), [(Kind::Manifest, newest.clone(), None)]);
    assert_eq!((report.generation, report.samples), (2, 0));
    fs::remove_file(&newest).unwrap();
    let missing = [(Kind::MissingFile, newest.clone(), None)];
    assert_eq!(found(&check(&path, Wanted::Newest)), missing);
    assert_eq!(found(&check(&path, Wanted::Number(1))), []);
    fs::copy(manifest_of(&path, 1), &newest).unwrap();
    assert_eq!(
        found(&check(&path, Wanted::Newest)),
        [(Kind::Manifest, newest.clone(), None)]
    );
    let never = verify(&path, Wanted::Number(3), true, &mut |_| Ok(()));
    assert!(
        matches!(never, Err(CacheError::NoGeneration { .. })),
        "{never:?}"
    );
    let mut removed = Manifest::parse(&newest, &text).unwrap();
    removed.removed = true;
    fs::write(&newest, removed.to_bytes().unwrap()).unwrap();
    assert_eq!(
        found(&check(&path, Wanted::Newest)),
        [(Kind::Generation, newest.clone(), None)]
    );

    // A damaged root does not keep what later generations say of themselves from being checked.
    fs::write(&newest, &text).unwrap();
    fs::write(path.join(MANIFEST), b"{}").unwrap();
    fs::remove_file(path.join(SHARDS).join(shard(0))).unwrap();
    let expected = [
        (Kind::Manifest, path.join(MANIFEST), None),
        (Kind::MissingFile, path.join(SHARDS).join(shard(0)), None),
    ];
    assert_eq!(found(&check(&path, Wanted::Newest)), expected);
}

#[test]
fn compacted_and_repaired_caches_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path());
    let options = CompactOptions {
        min_dead_fraction: 0.01,
        ..CompactOptions::default()
    };
    let compacted = compact(Arc::new(OsVfs), &path, options, &mut || Ok(())).unwrap();
    assert_eq!(compacted.generation, 3);
    assert_eq!(found(&check(&path, Wanted::Newest)), []);
    let number = row(&path, 20).shard;
    let file = path.join(SHARDS).join(shard(number));
    flip(&file, 12);
    assert!(!found(&check(&path, Wanted::Newest)).is_empty());
    repair(Arc::new(OsVfs), &path, &mut || Ok(())).unwrap();
    let report = check(&path, Wanted::Newest);
    assert_eq!(found(&report), []);
    assert_eq!((report.generation, report.samples), (4, 26));
}
