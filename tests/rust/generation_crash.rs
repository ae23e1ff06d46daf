//! Power cuts and failing disks under maintenance: a cache is what it was or what it was to become, and readers of the
//! earlier generation lose nothing.

use std::path::Path;
use std::sync::Arc;

use dataset_rt::format::manifest::Manifest;
use dataset_rt::format::names::{
    CHECKSUMS, DELETED, GENERATIONS, INDEX, MANIFEST, METADATA, SHARDS,
};
use dataset_rt::maintain::delete::delete;
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::vfs::{OsVfs, Vfs};

use crate::support::caches::{Layout, samples, write_here};
use crate::support::changing::{Alter, Changing, NAME, State};
use crate::support::crash_vfs::SimDisk;
use crate::support::disk::Tree;
use crate::support::generations::{append, contents};
use crate::support::naive::Sample;
use crate::support::scenario::load;

type Contents = Vec<(u64, Sample)>;
type Forgets = (&'static str, fn(&Path) -> bool);

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

/// The contents of a cache decide, and those of the generation that was the newest; generation 0 must say first that
/// there are others.
fn judge(path: &Path, old: &Contents, new: &Contents, previous: u64) -> State {
    let found = match contents(path, Wanted::Newest) {
        Ok(found) => found,
        Err(fault) => return State::Broken(fault),
    };
    let next = path.join(GENERATIONS).join(format!("{:06}", previous + 1));
    if next.exists() {
        let root = std::fs::read(path.join(MANIFEST)).unwrap();
        let root = Manifest::parse(path, &root).unwrap();
        if root.format_version < 4 {
            return State::Broken("published before old readers were warned".to_owned());
        }
    }
    match contents(path, Wanted::Number(previous)) {
        Ok(kept) if kept == *old => {}
        kept => return State::Broken(format!("generation {previous} gave {kept:?}")),
    }
    match found {
        found if found == *old => State::Old,
        found if found == *new => State::New,
        found => State::Broken(format!("{found:?}")),
    }
}

fn appended() -> Vec<Sample> {
    samples(8, 250).split_off(5)
}

fn alter_append(vfs: Arc<dyn Vfs>, path: &Path) -> dataset_rt::error::Result<()> {
    append(vfs, path, LAYOUT(), &appended()).map(drop)
}

fn alter_delete(vfs: Arc<dyn Vfs>, path: &Path) -> dataset_rt::error::Result<()> {
    delete(vfs, path, vec![0, 3]).map(drop)
}

/// Every way to change a cache that writes its next generation: how, and what becomes of the contents.
fn changes() -> [(
    &'static str,
    &'static Alter<'static>,
    fn(&Contents) -> Contents,
); 2] {
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
    ]
}

/// Calls `body` with every change of a cache never changed before, and of one that was.
fn each(body: &dyn Fn(&str, bool, &Changing<'_>)) {
    for worn in [false, true] {
        for (name, alter, expected) in changes() {
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
    let of_append: [Forgets; 5] = [
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
            "append" => forgotten.extend(of_append),
            _ => forgotten.extend(of_delete),
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
            std::fs::write(lock, holder).unwrap();
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
