//! Power cuts and failing disks under compaction, repair and vacuum.
//!
//! A vacuum is not one step: cut short, it leaves kept generations whole and has more or less to do. "Old" means that here.

use std::path::Path;
use std::sync::Arc;

use dataset_rt::error::Result;
use dataset_rt::format::names::{GENERATIONS, INDEX, METADATA};
use dataset_rt::maintain::compact::{CompactOptions, compact};
use dataset_rt::maintain::delete::delete;
use dataset_rt::maintain::repair::repair;
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::vfs::{OsVfs, Vfs};

use crate::support::caches::{Layout, samples, write_here};
use crate::support::changing::{Alter, Changing, NAME, State};
use crate::support::crash_vfs::SimDisk;
use crate::support::disk::Tree;
use crate::support::generations::{append_here, contents, vacuum_now};
use crate::support::naive::Sample;
use crate::support::scenario::load;

type Contents = Vec<(u64, Sample)>;

fn sound(disk: SimDisk) -> Arc<dyn Vfs> {
    Arc::new(disk)
}

fn compacted(vfs: Arc<dyn Vfs>, path: &Path) -> Result<()> {
    let options = CompactOptions {
        min_dead_fraction: 0.0,
        max_shard_bytes: Some(800),
    };
    compact(vfs, path, options, &mut || Ok(())).map(drop)
}

fn repaired(vfs: Arc<dyn Vfs>, path: &Path) -> Result<()> {
    repair(vfs, path, &mut || Ok(())).map(drop)
}

fn newest(path: &Path) -> std::result::Result<Contents, String> {
    contents(path, Wanted::Newest)
}

/// Cuts and faults of a change that makes generation `next`.
fn endure(before: &Tree, alter: &Alter<'_>, judge: &dyn Fn(&Path) -> State) {
    let judged = Changing::new(before.clone(), alter, judge).cut_power(&sound);
    let judged = judged.unwrap_or_else(|fault| panic!("{fault}"));
    assert!(judged.old > 30 && judged.new > 1, "{judged:?}");
    let tried = Changing::new(before.clone(), alter, judge).inject_faults();
    assert!(tried.clone().is_ok_and(|tried| tried > 100), "{tried:?}");
}

#[test]
fn a_compaction_is_done_or_was_never_begun() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(folder.path(), NAME, Layout::none(800), &samples(6, 300));
    delete(Arc::new(OsVfs), &path, vec![1, 2]).unwrap();
    let left = newest(&path).unwrap();
    let judge = |path: &Path| match (newest(path), contents(path, Wanted::Number(1))) {
        (Ok(found), Ok(before)) if found == left && before == left => {
            match path.join(GENERATIONS).join("000002").join(INDEX).exists() {
                true => State::New,
                false => State::Old,
            }
        }
        found => State::Broken(format!("{found:?}")),
    };
    endure(&load(folder.path()), &compacted, &judge);
}

#[test]
fn a_repair_is_done_or_was_never_begun() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(folder.path(), NAME, Layout::none(800), &samples(6, 300));
    delete(Arc::new(OsVfs), &path, vec![1]).unwrap();
    let mut left = newest(&path).unwrap();
    left.retain(|(id, _)| *id != 0);
    let mut tree = load(folder.path());
    let cache = Path::new(NAME);
    let shard = tree.get_mut(&cache.join("shards/000000.bin")).unwrap();
    shard.as_mut().unwrap()[60] ^= 1;
    tree.insert(cache.join(METADATA), Some(b"ARROW1".to_vec()));
    let judge = |path: &Path| match newest(path) {
        Ok(found) if found == left => State::New,
        Ok(found) => State::Broken(format!("{found:?}")),
        Err(fault) if path.join(GENERATIONS).join("000002").exists() => State::Broken(fault),
        Err(_) => State::Old,
    };
    endure(&tree, &repaired, &judge);
}

/// A cache whose first generations name files that later ones do not need, and what its last two hold.
fn worn() -> (Tree, Contents, Contents) {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(folder.path(), NAME, Layout::none(800), &samples(5, 300));
    delete(Arc::new(OsVfs), &path, vec![1, 2]).unwrap();
    append_here(&path, Layout::none(800), &samples(7, 200).split_off(5));
    compacted(Arc::new(OsVfs), &path).unwrap();
    delete(Arc::new(OsVfs), &path, vec![0]).unwrap();
    let last = newest(&path).unwrap();
    let before = contents(&path, Wanted::Number(3)).unwrap();
    (load(folder.path()), before, last)
}

#[test]
fn a_vacuum_cut_short_anywhere_leaves_kept_generations_whole_and_the_next_one_finishes_it() {
    let (tree, before, last) = worn();
    let judge = |path: &Path| {
        match (newest(path), contents(path, Wanted::Number(3))) {
            (Ok(found), Ok(previous)) if found == last && previous == before => {}
            found => return State::Broken(format!("{found:?}")),
        }
        let given_up = [0, 1, 2].map(|number| match contents(path, Wanted::Number(number)) {
            Ok(_) => Ok(false),
            Err(fault) if fault.contains("no generation") => Ok(true),
            Err(fault) => Err(fault),
        });
        if let Some(Err(fault)) = given_up.iter().find(|found| found.is_err()) {
            return State::Broken(fault.clone());
        }
        let left = [
            "shards/000000.bin",
            "index.bin",
            "generations/000001/manifest.json",
        ];
        let is_done = given_up.iter().all(|found| *found == Ok(true))
            && left.iter().all(|name| !path.join(name).exists());
        match is_done {
            true => State::New,
            false => State::Old,
        }
    };
    let judged = Changing::new(tree.clone(), &vacuum_now, &judge).cut_power(&sound);
    let judged = judged.unwrap_or_else(|fault| panic!("{fault}"));
    assert!(judged.old > 30 && judged.new > 1, "{judged:?}");
}
