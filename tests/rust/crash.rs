//! Power cuts and failing disks under a publication: never half a cache, and success means durable.
//!
//! The cache here is a small stand-in with a checksum of every file in its manifest.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dataset_rt::error::{CacheError, Result};
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::publish::Staging;
use dataset_rt::store::vfs::{OsVfs, Vfs};
use sha2::{Digest, Sha256};

use crate::support::altered_vfs::forgetful;
use crate::support::crash_vfs::{Fault, FaultKind, SimDisk};
use crate::support::disk::Tree;
use crate::support::scenario::{Scenario, Verdict, load};

pub const NAME: &str = "digits";

/// Files of the stand-in and their bytes; more than a sector, in no pattern that a loss could leave unchanged.
pub fn files() -> Vec<(&'static str, Vec<u8>)> {
    let bytes = |seed: u8, len: usize| -> Vec<u8> {
        (0..len)
            .map(|at| (at / 7 * 31 + at) as u8 ^ seed | 1)
            .collect()
    };
    vec![
        ("shards/000000.bin", bytes(3, 1300)),
        ("shards/000001.bin", bytes(5, 600)),
        ("index.bin", bytes(9, 200)),
    ]
}

pub fn manifest() -> Vec<u8> {
    files()
        .iter()
        .map(|(name, bytes)| format!("{name} {:?}\n", Sha256::digest(bytes)))
        .collect::<String>()
        .into_bytes()
}

/// Publishes the stand-in as `base/digits`.
pub fn publish(vfs: Arc<dyn Vfs>, base: &Path, lock: CacheLock) -> Result<()> {
    let staging = Staging::begin(vfs, base, NAME, lock)?;
    staging.create_dir("shards")?;
    for (name, bytes) in files() {
        let mut file = staging.create_file(name)?;
        for block in bytes.chunks(1000) {
            file.write_all(block)?;
            file.begin_writeback();
        }
        assert_eq!(file.finish()?, bytes.len() as u64);
    }
    let path = staging.publish("manifest.json", &manifest())?;
    assert_eq!(path, base.join(NAME));
    Ok(())
}

/// Judges `base/digits` as a reader would: the manifest makes the cache, and then all it lists must be there.
pub fn judge(base: &Path) -> Verdict {
    let cache = base.join(NAME);
    if !cache.exists() {
        return Verdict::Absent;
    }
    let mut expected: Tree = files()
        .into_iter()
        .map(|(name, bytes)| (PathBuf::from(name), Some(bytes)))
        .collect();
    expected.insert("shards".into(), None);
    expected.insert("manifest.json".into(), Some(manifest()));
    let found = load(&cache);
    if found == expected {
        return Verdict::Complete;
    }
    let differs = |path: &&PathBuf| found.get(*path) != expected.get(*path);
    let wrong: Vec<_> = found
        .keys()
        .chain(expected.keys())
        .filter(differs)
        .collect();
    Verdict::Broken(format!("differs in {wrong:?}"))
}

fn leave_lock_file(base: &Path) {
    fs::create_dir_all(base).unwrap();
    let holder = r#"{"pid":1,"host":"gone","since_unix":1}"#;
    fs::write(base.join(format!(".{NAME}.lock")), holder).unwrap();
}

/// Calls `body` with the stand-in published as `root/<base>/digits`.
fn with_scenario<T>(base: &str, before: Tree, body: impl FnOnce(&Scenario<'_>) -> T) -> T {
    let scenario = Scenario {
        before,
        run: &|vfs, root| {
            let base = root.join(base);
            publish(vfs, &base, CacheLock::try_acquire(&base, NAME)?)
        },
        check: &|root| judge(&root.join(base)),
        die: &|root| leave_lock_file(&root.join(base)),
        judged: Mutex::default(),
        rerun: Mutex::default(),
    };
    body(&scenario)
}

/// Nothing but a neighbour and what a writer left that died twice: staged, and half swept.
fn after_dead_writers() -> Tree {
    let mut tree = Tree::new();
    for directory in [
        ".digits.tmp-1-0123456789abcdef",
        ".digits.dead-2-0123456789abcdef",
        "letters",
    ] {
        tree.insert(directory.into(), None);
        tree.insert(Path::new(directory).join("index.bin"), Some(vec![1; 9]));
    }
    tree
}

fn sound(disk: SimDisk) -> Arc<dyn Vfs> {
    Arc::new(disk)
}

#[test]
fn a_power_cut_at_any_operation_leaves_nothing_or_everything() {
    let states = with_scenario("", Tree::new(), |s| s.cut_power(&sound)).unwrap();
    assert!(states > 150, "{states}");
}

#[test]
fn directories_above_the_cache_are_as_durable_as_the_cache() {
    let states = with_scenario("new/base", Tree::new(), |s| s.cut_power(&sound)).unwrap();
    assert!(states > 150, "{states}");
    // Somebody else made them, and died before making their names durable: no record of that survives.
    let half = |cut: usize| {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().join("new/base");
        let disk = SimDisk::new(root.path(), &Tree::new(), None);
        let made = |path: &Path| disk.create_dir(path).unwrap();
        disk.sync_dir(root.path()).unwrap();
        made(&root.path().join("new"));
        if cut > 0 {
            disk.sync_dir(root.path()).unwrap();
            made(&base);
        }
        let lock = CacheLock::try_acquire(&base, NAME).unwrap();
        publish(Arc::new(disk.clone()), &base, lock).unwrap();
        disk.after_cut(disk.operations(), &mut |tree| match tree
            .contains_key(Path::new("new/base/digits/manifest.json"))
        {
            true => Ok(()),
            false => Err(format!("only {:?}", tree.keys())),
        })
    };
    half(0).unwrap();
    half(1).unwrap();
}

#[test]
fn what_dead_writers_left_is_swept_whenever_the_power_is_cut() {
    with_scenario("", after_dead_writers(), |scenario| {
        // The sweep happens only if a dead holder's lock file says so.
        let run = |vfs: Arc<dyn Vfs>, root: &Path| {
            leave_lock_file(root);
            (scenario.run)(vfs, root)
        };
        let marked = Scenario {
            before: scenario.before.clone(),
            run: &run,
            check: scenario.check,
            die: scenario.die,
            judged: Mutex::default(),
            rerun: Mutex::default(),
        };
        marked.cut_power(&sound).unwrap();
        marked.inject_faults().unwrap();
    });
}

#[test]
fn a_failure_of_any_call_is_an_error_that_leaves_nothing_and_hinders_nobody() {
    let tried = with_scenario("new/base", Tree::new(), |s| s.inject_faults()).unwrap();
    assert!(tried > 200, "{tried}");
    with_scenario("", Tree::new(), |s| s.inject_faults()).unwrap();
}

#[test]
fn every_forgotten_sync_is_caught() {
    fn file_name(path: &Path) -> &str {
        path.file_name().unwrap().to_str().unwrap()
    }
    type Forgets = fn(&Path) -> bool;
    let forgotten: [(&str, Forgets); 7] = [
        ("a shard", |path| file_name(path) == "000001.bin"),
        ("the index", |path| file_name(path) == "index.bin"),
        ("the manifest", |path| file_name(path) == "manifest.json"),
        ("the directory of shards", |path| {
            file_name(path) == "shards"
        }),
        ("the staging directory", |path| {
            file_name(path).starts_with(".digits.tmp-")
        }),
        ("the base", |path| file_name(path) == "base"),
        ("the directory above the base", |path| {
            file_name(path) == "new"
        }),
    ];
    for (what, forgets) in forgotten {
        let mount = |disk| forgetful(disk, forgets);
        let found = with_scenario("new/base", Tree::new(), |s| s.cut_power(&mount));
        assert!(found.is_err(), "no sync of {what} passed {found:?}");
    }
    let mount = |disk| forgetful(disk, |_| false);
    with_scenario("new/base", Tree::new(), |s| s.cut_power(&mount)).unwrap();
}

#[test]
fn the_simulated_disk_loses_what_was_not_synced_and_only_that() {
    let root = tempfile::tempdir().unwrap();
    let states = |disk: &SimDisk| {
        let mut states = Vec::new();
        disk.after_cut(disk.operations(), &mut |tree| {
            states.push(tree.get(Path::new("file")).cloned().flatten());
            Ok(())
        })
        .unwrap();
        states
    };
    let path = root.path().join("file");
    let disk = SimDisk::new(root.path(), &Tree::new(), None);
    let mut file = disk.create_file(&path).unwrap();
    disk.sync_dir(root.path()).unwrap();
    file.write_all(&[7; 1000]).unwrap();
    let left = states(&disk);
    assert!(left.contains(&Some(vec![])) && left.contains(&Some(vec![7; 1000])));
    assert!(left.contains(&Some(vec![7; 500])) && left.contains(&Some(vec![0; 1000])));
    file.sync().unwrap();
    assert_eq!(states(&disk), [Some(vec![7; 1000])]);
    disk.rename_noreplace(&path, &root.path().join("other"))
        .unwrap();
    assert!(states(&disk).contains(&None) && states(&disk).contains(&Some(vec![7; 1000])));
    disk.sync_dir(root.path()).unwrap();
    assert_eq!(states(&disk), [None]);

    // A sync that failed is not made good by one that does not.
    let fault = Fault {
        at: 3,
        kind: FaultKind::Eio,
        from_then_on: false,
    };
    let disk = SimDisk::new(root.path(), &Tree::new(), Some(fault));
    let mut file = disk.create_file(&path).unwrap();
    disk.sync_dir(root.path()).unwrap();
    file.write_all(&[7; 1000]).unwrap();
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
    file.sync().unwrap();
    assert!(states(&disk).contains(&Some(vec![])), "{:?}", disk.calls());
}

#[test]
fn an_unfinished_file_stops_publication() {
    let root = tempfile::tempdir().unwrap();
    let lock = CacheLock::try_acquire(root.path(), NAME).unwrap();
    let staging = Staging::begin(Arc::new(OsVfs), root.path(), NAME, lock).unwrap();
    drop(staging.create_file("index.bin").unwrap());
    let error = staging.publish("manifest.json", b"{}").unwrap_err();
    assert!(matches!(error, CacheError::Internal { .. }), "{error}");
    assert_eq!(load(root.path()), Tree::new());
}

#[test]
fn the_real_disk_gets_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let base = root.path().join("new/base");
    let lock = CacheLock::try_acquire(&base, NAME).unwrap();
    publish(Arc::new(OsVfs), &base, lock).unwrap();
    assert_eq!(judge(&base), Verdict::Complete);
    let lock = CacheLock::try_acquire(&base, NAME).unwrap();
    let again = publish(Arc::new(OsVfs), &base, lock);
    assert!(matches!(again, Err(CacheError::Exists { path }) if path == base.join(NAME)));
    assert_eq!(fs::read_dir(&base).unwrap().count(), 1);
}
