//! A vacuum removes what nobody needs, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dataset_rt::dataset::Dataset;
use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::names::{GENERATIONS, LEASES, MANIFEST};
use dataset_rt::maintain::compact::{CompactOptions, compact};
use dataset_rt::maintain::delete::delete;
use dataset_rt::maintain::lease::{Lease, grant, release};
use dataset_rt::maintain::repair::repair;
use dataset_rt::maintain::vacuum::{VacuumOptions, Vacuumed, vacuum};
use dataset_rt::store::change::{Change, now_unix};
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::vfs::OsVfs;
use dataset_rt::types::Io;

use crate::support::caches::{Layout, samples, write_here};
use crate::support::reading::{deliver, options};

const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// A cache of 9 samples from which samples 0, 1, ... were taken one after the other.
fn worn(folder: &Path, generations: u64) -> PathBuf {
    let path = write_here(folder, "train", Layout::none(200), &samples(9, 40));
    for id in 0..generations {
        delete(Arc::new(OsVfs), &path, vec![id]).unwrap();
    }
    path
}

fn swept(path: &Path, grace: Duration) -> Result<Vacuumed> {
    vacuum(
        Arc::new(OsVfs),
        path,
        VacuumOptions {
            grace,
            keep_previous: true,
            dry_run: false,
        },
        &mut || Ok(()),
    )
}

fn files(path: &Path) -> BTreeSet<PathBuf> {
    let mut open = vec![path.to_owned()];
    let mut found = BTreeSet::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap().path();
            match entry.is_dir() {
                true => open.push(entry),
                false => drop(found.insert(entry.strip_prefix(path).unwrap().to_owned())),
            }
        }
    }
    found
}

fn open(path: &Path, number: u64) -> Result<Dataset> {
    let wanted = [(path.to_owned(), Wanted::Number(number))];
    Dataset::open_stoppable(&wanted, options(Io::Auto), &mut || Ok(()))
}

fn ids(path: &Path, number: u64) -> Vec<u64> {
    let delivered = deliver(&open(path, number).unwrap());
    assert_eq!(delivered.failure, None);
    delivered.references.iter().map(|r| r.sample).collect()
}

fn leased(path: &Path, generation: u64, seconds: u64) -> PathBuf {
    let change = Change::begin(Arc::new(OsVfs), path, Wanted::Newest).unwrap();
    let lease = Lease {
        generation,
        expires_unix: now_unix() + seconds,
        holder: "a test".to_owned(),
    };
    grant(&change, &lease).unwrap()
}

#[test]
fn within_the_grace_period_nothing_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = worn(folder.path(), 5);
    let before = files(&path);
    let done = swept(&path, WEEK).unwrap();
    assert_eq!((done.removed.len(), done.files), (0, 0));
    assert_eq!(done.kept.len(), 6);
    assert_eq!(files(&path), before);
}

#[test]
fn the_newest_the_one_before_and_leased_ones_stay_and_every_file_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let path = worn(folder.path(), 5);
    let lease = leased(&path, 2, 1000);
    let expired = leased(&path, 1, 0);
    let before = files(&path);
    let told = vacuum(
        Arc::new(OsVfs),
        &path,
        VacuumOptions {
            grace: Duration::ZERO,
            keep_previous: true,
            dry_run: true,
        },
        &mut || Ok(()),
    )
    .unwrap();
    assert_eq!(files(&path), before);
    let done = swept(&path, Duration::ZERO).unwrap();
    assert_eq!(
        (told.removed, told.files, told.bytes),
        (done.removed.clone(), done.files, done.bytes)
    );
    assert_eq!(done.kept, [(2, "leased"), (4, "previous"), (5, "newest")]);
    assert_eq!(done.removed, [0, 1, 3]);
    // Deleted ids are named by every later generation, shards and tables by all: nothing but manifests can go.
    assert_eq!(done.files, 0);
    for (number, gone) in [(2, 2), (4, 4), (5, 5)] {
        assert_eq!(ids(&path, number), (gone..9).collect::<Vec<_>>());
    }
    for number in [0, 1, 3] {
        let error = open(&path, number).unwrap_err();
        assert!(
            matches!(&error, CacheError::NoGeneration { kept, .. } if kept == &[2, 4, 5]),
            "{error:?}"
        );
    }
    assert!(lease.exists() && !expired.exists());
    release(&OsVfs, &lease).unwrap();
    release(&OsVfs, &lease).unwrap();
    assert_eq!(swept(&path, Duration::ZERO).unwrap().removed, [0, 2]);
    assert_eq!(swept(&path, Duration::ZERO).unwrap().removed, [0]);
    assert_eq!(ids(&path, 5), [5, 6, 7, 8]);
}

#[test]
fn any_unreadable_manifest_or_lease_stops_it_before_anything_is_removed() {
    for victim in [
        MANIFEST.to_owned(),
        format!("{GENERATIONS}/000001/{MANIFEST}"),
        format!("{GENERATIONS}/{LEASES}/x.json"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = worn(folder.path(), 4);
        drop(leased(&path, 1, 1000));
        fs::write(path.join(&victim), b"{").unwrap();
        let before = files(&path);
        swept(&path, Duration::ZERO).unwrap_err();
        assert_eq!(files(&path), before, "{victim}");
    }
}

#[test]
fn a_generation_that_a_repair_replaced_is_given_up_with_its_files_once_none_before_it_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = worn(folder.path(), 4);
    let damaged = path.join(GENERATIONS).join("000004");
    fs::write(damaged.join(MANIFEST), b"{").unwrap();
    repair(Arc::new(OsVfs), &path, &mut || Ok(())).unwrap();
    let done = swept(&path, Duration::ZERO).unwrap();
    assert_eq!(done.kept, [(3, "previous"), (5, "newest")]);
    assert_eq!(done.removed, [0, 1, 2]);
    assert!(damaged.join(MANIFEST).exists());

    delete(Arc::new(OsVfs), &path, vec![4]).unwrap();
    let done = swept(&path, Duration::ZERO).unwrap();
    assert_eq!(done.kept, [(5, "previous"), (6, "newest")]);
    assert!(done.removed.ends_with(&[3, 4]));
    assert!(!damaged.exists());
    assert_eq!(ids(&path, 5), [4, 5, 6, 7, 8]);
    assert_eq!(ids(&path, 6), [5, 6, 7, 8]);
}

#[test]
fn a_reader_of_a_generation_that_was_given_up_learns_why_a_file_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = worn(folder.path(), 1);
    let late = open(&path, 0).unwrap();
    let early = open(&path, 0).unwrap();
    assert_eq!(deliver(&early).failure, None);
    let options = CompactOptions {
        min_dead_fraction: 0.0,
        max_shard_bytes: None,
    };
    compact(Arc::new(OsVfs), &path, options, &mut || Ok(())).unwrap();
    delete(Arc::new(OsVfs), &path, vec![5]).unwrap();
    swept(&path, Duration::ZERO).unwrap();
    // It has its files open, or mapped.
    assert_eq!(deliver(&early).failure, None);
    let told = deliver(&late).failure.unwrap();
    assert!(
        told.contains("a vacuum may have given up generation 0"),
        "{told}"
    );
}

#[test]
fn what_nobody_named_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = worn(folder.path(), 4);
    let strangers = [
        "notes.txt",
        "shards/999999.bin",
        "generations/000001/notes.txt",
    ];
    for stranger in strangers {
        fs::write(path.join(stranger), b"mine").unwrap();
    }
    swept(&path, Duration::ZERO).unwrap();
    for stranger in strangers {
        assert!(path.join(stranger).exists(), "{stranger}");
    }
    assert_eq!(ids(&path, 4), [4, 5, 6, 7, 8]);
}

#[test]
fn remains_of_dead_maintainers_are_removed_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = worn(folder.path(), 1);
    let staged = path
        .join(GENERATIONS)
        .join(".generation.tmp-1-0123456789abcdef");
    fs::create_dir(&staged).unwrap();
    fs::write(staged.join("index.bin"), b"x").unwrap();
    fs::write(path.join(".manifest.tmp-1-0123456789abcdef"), b"x").unwrap();
    // A holder that was killed leaves its lock file.
    fs::write(folder.path().join(".train.lock"), b"{}").unwrap();
    swept(&path, WEEK).unwrap();
    assert!(
        !files(&path)
            .iter()
            .any(|file| file.to_string_lossy().contains(".tmp-"))
    );
    assert!(!staged.exists());
}

#[test]
fn a_file_that_cannot_be_removed_is_named_and_the_next_vacuum_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let base = fs::canonicalize(folder.path()).unwrap();
    let path = worn(&base, 2);
    let options = CompactOptions {
        min_dead_fraction: 0.0,
        max_shard_bytes: None,
    };
    compact(Arc::new(OsVfs), &path, options, &mut || Ok(())).unwrap();
    delete(Arc::new(OsVfs), &path, vec![8]).unwrap();
    // A folder in the place of a shard that nobody needs.
    let shard = path.join("shards/000000.bin");
    fs::remove_file(&shard).unwrap();
    fs::create_dir(&shard).unwrap();
    let failed = swept(&path, Duration::ZERO).unwrap_err();
    assert!(
        matches!(&failed, CacheError::Io { path, .. } if *path == shard),
        "{failed:?}"
    );
    assert_eq!(ids(&path, 4), [2, 3, 4, 5, 6, 7]);
    fs::remove_dir(&shard).unwrap();
    swept(&path, Duration::ZERO).unwrap();
    assert!(!path.join("index.bin").exists());
    assert_eq!(ids(&path, 4), [2, 3, 4, 5, 6, 7]);
}

#[test]
fn what_somebody_wants_gone_goes_with_the_generation_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = worn(folder.path(), 1);
    let options = CompactOptions {
        min_dead_fraction: 0.0,
        max_shard_bytes: None,
    };
    compact(Arc::new(OsVfs), &path, options, &mut || Ok(())).unwrap();
    assert!(swept(&path, Duration::ZERO).is_ok() && path.join("index.bin").exists());
    let only_newest = VacuumOptions {
        grace: Duration::ZERO,
        keep_previous: false,
        dry_run: false,
    };
    let done = vacuum(Arc::new(OsVfs), &path, only_newest, &mut || Ok(())).unwrap();
    assert_eq!(done.kept, [(2, "newest")]);
    assert!(!path.join("index.bin").exists() && !path.join("metadata.arrow").exists());
    assert_eq!(ids(&path, 2), (1..9).collect::<Vec<_>>());
}
