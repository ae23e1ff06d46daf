//! Power cuts and failing disks under maintenance: a cache is what it was or what it was to become, and readers of the
//! earlier generation lose nothing.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use dataset_rt::error::Result;
use dataset_rt::format::manifest::Manifest;
use dataset_rt::format::names::{
    CHECKSUMS, DELETED, GENERATIONS, INDEX, MANIFEST, METADATA, SHARDS,
};
use dataset_rt::maintain::compact::{CompactOptions, compact};
use dataset_rt::maintain::delete::delete;
use dataset_rt::maintain::repair::repair;
use dataset_rt::store::cache::read_manifest;
use dataset_rt::store::generations::{Wanted, list};
use dataset_rt::store::vfs::{OsVfs, Vfs};

use crate::support::caches::{Layout, samples, write_here};
use crate::support::changing::{Alter, Changing, Forgets, NAME, State};
use crate::support::crash_vfs::SimDisk;
use crate::support::disk::Tree;
use crate::support::generations::{append, contents, vacuum_now};
use crate::support::naive::Sample;
use crate::support::scenario::load;

type Contents = Vec<(u64, Sample)>;
/// How a cache is changed, and what becomes of its contents.
type Kind = (
    &'static str,
    &'static Alter<'static>,
    fn(&Contents) -> Contents,
);

const LAYOUT: fn() -> Layout = || Layout::none(800);

/// Five samples, from which one is gone if `worn`; what is there, and what a reader finds.
fn before(worn: bool) -> (Tree, Contents) {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(folder.path(), NAME, LAYOUT(), &samples(5, 300));
    if worn {
        delete(Arc::new(OsVfs), &path, vec![1]).unwrap();
    }
    let contents = contents(&path, Wanted::Newest).unwrap();
    (load(folder.path()), contents)
}

/// The number of the newest generation of a cache, and what it and the one before it hold, decide. Generation 0 must say
/// first that there are others.
fn judge(path: &Path, old: &Contents, new: &Contents, previous: u64) -> State {
    let next = path.join(GENERATIONS).join(format!("{:06}", previous + 1));
    if next.exists() && root(path).is_none_or(|root| root.format_version < 4) {
        return State::Broken("published before old readers were warned".to_owned());
    }
    match contents(path, Wanted::Number(previous)) {
        Ok(kept) if kept == *old => {}
        kept => return State::Broken(format!("generation {previous} gave {kept:?}")),
    }
    match (newest(path), contents(path, Wanted::Newest)) {
        (Some(number), Ok(found)) if number == previous && found == *old => State::Old,
        (Some(number), Ok(found)) if number == previous + 1 && found == *new => State::New,
        found => State::Broken(format!("{found:?}")),
    }
}

fn root(path: &Path) -> Option<Manifest> {
    let text = fs::read(path.join(MANIFEST)).ok()?;
    Manifest::parse(path, &text).ok()
}

/// Number of the generation that a reader takes for the newest.
fn newest(path: &Path) -> Option<u64> {
    let manifest = read_manifest(path).ok()?;
    Some(manifest.number())
}

fn appended() -> Vec<Sample> {
    samples(8, 250).split_off(5)
}

fn alter_append(vfs: Arc<dyn Vfs>, path: &Path) -> Result<()> {
    append(vfs, path, LAYOUT(), &appended()).map(drop)
}

fn alter_compact(vfs: Arc<dyn Vfs>, path: &Path) -> Result<()> {
    let options = CompactOptions {
        min_dead_fraction: 0.0,
        max_shard_bytes: None,
    };
    compact(vfs, path, options, &mut || Ok(())).map(drop)
}

fn alter_delete(vfs: Arc<dyn Vfs>, path: &Path) -> Result<()> {
    delete(vfs, path, vec![0, 3]).map(drop)
}

/// Every way to write the next generation of a cache that is sound.
fn changes() -> [Kind; 3] {
    [
        ("append", &alter_append, |old| {
            let added = (5..).zip(appended());
            old.iter().cloned().chain(added).collect()
        }),
        ("delete", &alter_delete, |old| {
            let mut left = old.clone();
            left.retain(|(id, _)| ![0, 3].contains(id));
            left
        }),
        ("compact", &alter_compact, Contents::clone),
    ]
}

/// Calls `body` with every change of a cache never changed before, and of one that was.
fn each(body: &dyn Fn(&str, bool, &Changing<'_>)) {
    for worn in [false, true] {
        let all = changes().into_iter();
        // Nothing is to be compacted in a cache that lost nothing.
        for (name, alter, expected) in all.filter(|(name, ..)| worn || *name != "compact") {
            let (tree, old) = before(worn);
            let new = expected(&old);
            let judge = |path: &Path| judge(path, &old, &new, u64::from(worn));
            body(name, worn, &Changing::new(tree, alter, &judge));
        }
    }
}

fn sound(disk: SimDisk) -> Arc<dyn Vfs> {
    Arc::new(disk)
}

#[test]
fn a_power_cut_at_any_operation_leaves_the_old_generation_or_the_new_one() {
    each(&|name, worn, changing| {
        let judged = changing.cut_power(&sound);
        let judged = judged.unwrap_or_else(|fault| panic!("{name}, worn {worn}: {fault}"));
        assert!(judged.old > 30 && judged.new > 2, "{name} {judged:?}");
    });
}

#[test]
fn a_failure_of_any_call_is_an_error_that_changes_nothing_and_hinders_nobody() {
    each(&|name, worn, changing| {
        let tried = changing.inject_faults();
        let tried = tried.unwrap_or_else(|fault| panic!("{name}, worn {worn}: {fault}"));
        assert!(tried > 100, "{name} {tried}");
    });
}

fn file_name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn every_sync_that_a_change_might_forget_is_missed() {
    let all: [Forgets; 4] = [
        ("the manifest", |path| path.ends_with(MANIFEST)),
        ("the staging directory", |path| {
            file_name(path).starts_with(".generation.tmp-")
        }),
        ("the folder of generations", |path| {
            path.ends_with(GENERATIONS)
        }),
        // The first change of a cache raises its manifest, and makes the folder of generations.
        ("the folder of the cache", |path| path.ends_with(NAME)),
    ];
    let first: [Forgets; 1] = [("the raised manifest", |path| {
        file_name(path).starts_with(".manifest.tmp-")
    })];
    let of_rows: [Forgets; 5] = [
        ("a shard", |path| path.ends_with("000000.bin")),
        ("the index", |path| path.ends_with(INDEX)),
        ("the checksums", |path| path.ends_with(CHECKSUMS)),
        ("the metadata table", |path| path.ends_with(METADATA)),
        ("the folder of shards", |path| path.ends_with(SHARDS)),
    ];
    let of_delete: [Forgets; 1] = [("the deleted ids", |path| path.ends_with(DELETED))];
    each(&|name, worn, changing| {
        let mut forgotten = all.to_vec();
        match worn {
            true => drop(forgotten.pop()),
            false => forgotten.extend(first),
        }
        match name {
            "delete" => forgotten.extend(of_delete),
            _ => forgotten.extend(of_rows),
        }
        let unnoticed = changing.unnoticed(&forgotten);
        assert!(unnoticed.is_empty(), "{name}, worn {worn}: {unnoticed:?}");
        // The model would notice anything: a disk that forgets nothing passes.
        let nothing: [Forgets; 1] = [("nothing", |_| false)];
        assert_eq!(changing.unnoticed(&nothing), ["nothing"]);
    });
}

#[test]
fn what_dead_maintainers_left_is_swept_whenever_the_power_is_cut() {
    let (mut tree, old) = before(true);
    let cache = Path::new(NAME);
    let generations = cache.join(GENERATIONS);
    for folder in [
        generations.join(".generation.tmp-1-0123456789abcdef"),
        generations.join(".generation.dead-2-0123456789abcdef"),
    ] {
        tree.insert(folder.clone(), None);
        tree.insert(folder.join(INDEX), Some(vec![1; 9]));
    }
    let aside = cache.join(".manifest.tmp-1-0123456789abcdef");
    tree.insert(aside, Some(b"{".to_vec()));
    for (name, alter, expected) in changes() {
        let new = expected(&old);
        let judge = |path: &Path| judge(path, &old, &new, 1);
        // The sweep happens only if a dead holder's lock file says so.
        let marked = |vfs: Arc<dyn Vfs>, path: &Path| {
            let holder = r#"{"pid":1,"host":"gone","since_unix":1}"#;
            let lock = path.with_file_name(format!(".{NAME}.lock"));
            fs::write(lock, holder).unwrap();
            alter(vfs, path)
        };
        let changing = Changing::new(tree.clone(), &marked, &judge);
        let outcome = match name {
            "delete" => changing.inject_faults().map(drop),
            _ => changing.cut_power(&sound).map(drop),
        };
        assert_eq!(outcome, Ok(()), "{name}");
    }
}

#[test]
fn a_repair_that_the_power_or_the_disk_fails_leaves_the_damage_or_what_could_be_kept() {
    let (mut tree, old) = before(true);
    let shard = Path::new(NAME).join(SHARDS).join("000000.bin");
    let bytes = tree.get_mut(&shard).unwrap().as_mut().unwrap();
    bytes[200] ^= 1;
    let mut kept = old.clone();
    kept.retain(|(id, _)| *id != 0);
    let judge = |path: &Path| match (newest(path), contents(path, Wanted::Newest)) {
        (Some(1), Err(_)) => State::Old,
        (Some(2), Ok(found)) if found == kept => State::New,
        found => State::Broken(format!("{found:?}")),
    };
    let alter = |vfs: Arc<dyn Vfs>, path: &Path| repair(vfs, path, &mut || Ok(())).map(drop);
    let changing = Changing::new(tree, &alter, &judge);
    changing.cut_power(&sound).unwrap();
    changing.inject_faults().unwrap();
}

/// A vacuum is no step: an error may come after some files are gone, and the next one goes on from there. At any time the
/// generations that are kept can be read.
#[test]
fn a_vacuum_that_the_power_or_the_disk_fails_goes_on_next_time_and_what_is_kept_is_always_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(folder.path(), NAME, LAYOUT(), &samples(5, 300));
    let vfs = || Arc::new(OsVfs);
    delete(vfs(), &path, vec![0, 3]).unwrap();
    alter_compact(vfs(), &path).unwrap();
    delete(vfs(), &path, vec![4]).unwrap();
    let old = [2, 3].map(|number| contents(&path, Wanted::Number(number)).unwrap());
    let judge = |path: &Path| {
        let found = [2, 3].map(|number| contents(path, Wanted::Number(number)));
        if newest(path) != Some(3) || found != old.clone().map(Ok) {
            return State::Broken(format!("{found:?}"));
        }
        let left = [
            INDEX,
            CHECKSUMS,
            METADATA,
            "generations/000001/manifest.json",
        ];
        let is_gone = left.iter().all(|file| !path.join(file).exists());
        match root(path).is_some_and(|root| root.removed) && is_gone {
            true => State::New,
            false => State::Old,
        }
    };
    let mut changing = Changing::new(load(folder.path()), &vacuum_now, &judge);
    changing.is_atomic = false;
    changing.cut_power(&sound).unwrap();
    changing.inject_faults().unwrap();
}

#[test]
fn a_repair_of_the_root_manifest_never_leaves_less_than_there_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(folder.path(), NAME, Layout::none(800), &samples(4, 100));
    delete(Arc::new(OsVfs), &path, vec![1]).unwrap();
    let left = contents(&path, Wanted::Newest).unwrap();
    let mut tree = load(folder.path());
    tree.insert(Path::new(NAME).join(MANIFEST), Some(b"{".to_vec()));
    let judge = |path: &Path| {
        let first = contents(path, Wanted::Number(1));
        match (contents(path, Wanted::Newest), list(path)) {
            (Ok(found), Ok(numbers)) if found == left && numbers == [1, 2] => State::New,
            // The root is replaced first: then the cache opens as it was before.
            (Ok(found), Ok(numbers)) if found == left && numbers == [1] => State::Old,
            (Err(_), Ok(numbers)) if numbers == [1] && first.is_err() => State::Old,
            found => State::Broken(format!("{found:?}")),
        }
    };
    let judged = Changing::new(tree, &repair_or_compact, &judge).cut_power(&sound);
    assert!(judged.is_ok(), "{judged:?}");
}

/// A repair after one that replaced no more than the root manifest finds nothing to do; a deletion of nothing new then makes
/// no generation either, so a compaction of the deleted record does.
fn repair_or_compact(vfs: Arc<dyn Vfs>, path: &Path) -> Result<()> {
    let done = repair(Arc::clone(&vfs), path, &mut || Ok(()))?;
    match done.changed.generation == done.changed.previous {
        true => alter_compact(vfs, path),
        false => Ok(()),
    }
}
