//! Runs something that publishes, on simulated disks that lose power or fail, and judges what is left.
//!
//! A scenario is a closure that publishes one thing below a directory and a closure that judges that directory; it knows
//! nothing of simulation. Violations come back as text, so that a test can also demand one.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dataset_rt::error::CacheError;
use dataset_rt::store::publish::PUBLISHED_IN_DOUBT;
use dataset_rt::store::vfs::Vfs;

use super::crash_vfs::{Fault, FaultKind, SimDisk};
use super::disk::Tree;

/// What stands under the name that a scenario publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Absent,
    Complete,
    Broken(String),
}

/// What a scenario does, on a disk, below a directory.
pub type Run<'a> = dyn Fn(Arc<dyn Vfs>, &Path) -> Result<(), CacheError> + 'a;

/// Something that publishes, and how to judge it.
pub struct Scenario<'a> {
    /// What is durable on the disk at the start.
    pub before: Tree,
    /// Publishes below the directory given. [`CacheError::Exists`] if it finds the thing published.
    pub run: &'a Run<'a>,
    /// Judges a directory that holds what the disk held.
    pub check: &'a dyn Fn(&Path) -> Verdict,
    /// Leaves what a process that dies while running leaves beside the simulated disk: its lock file.
    pub die: &'a dyn Fn(&Path),
    /// Verdicts so far; empty at the start.
    pub judged: Mutex<HashMap<Tree, Verdict>>,
    /// Names that a cut left, with whether the thing was complete, on which it was run again; empty at the start.
    pub rerun: Mutex<HashSet<(Vec<PathBuf>, bool)>>,
}

impl Scenario<'_> {
    /// Cuts the power after every operation. In every state that may be left there is nothing or everything, and
    /// everything once success was reported; running again completes it and leaves nothing hidden behind.
    /// Returns the number of states judged.
    pub fn cut_power(&self, mount: &dyn Fn(SimDisk) -> Arc<dyn Vfs>) -> Result<usize, String> {
        let root = tempfile::tempdir().unwrap();
        let disk = SimDisk::new(root.path(), &self.before, None);
        (self.run)(mount(disk.clone()), root.path()).map_err(|error| error.to_string())?;
        let (operations, calls) = (disk.operations(), disk.calls());
        let mut states = 0;
        for cut in 0..=operations {
            let reported = cut == operations;
            disk.after_cut(cut, &mut |tree| {
                states += 1;
                let context = |fault: &str| {
                    let names: Vec<_> = tree.keys().collect();
                    format!("cut after {cut} of {operations} operations: {fault}; left {names:?} of {calls:?}")
                };
                let verdict = self.judge(tree);
                match &verdict {
                    Verdict::Broken(fault) => return Err(context(fault)),
                    Verdict::Absent if reported => return Err(context("success was reported")),
                    _ => {}
                }
                // No writer reads what another staged: names decide what it does.
                let names = tree.keys().cloned().collect();
                let complete = verdict == Verdict::Complete;
                if !self.rerun.lock().unwrap().insert((names, complete)) {
                    return Ok(());
                }
                (self.die)(root.path());
                self.run_again(root.path(), tree, &verdict)
                    .map_err(|fault| context(&fault))
            })?;
        }
        Ok(states)
    }

    /// Fails every call, in every way, once and from then on. Returns the number of failures tried.
    pub fn inject_faults(&self) -> Result<usize, String> {
        let root = tempfile::tempdir().unwrap();
        let disk = SimDisk::new(root.path(), &self.before, None);
        (self.run)(Arc::new(disk.clone()), root.path()).map_err(|error| error.to_string())?;
        let calls = disk.calls();
        let mut tried = 0;
        for (at, call) in calls.iter().enumerate() {
            for kind in [
                FaultKind::Eio,
                FaultKind::DiskFull,
                FaultKind::ShortWrite,
                FaultKind::EioAfterwards,
            ] {
                for from_then_on in [false, true] {
                    tried += 1;
                    let fault = Fault {
                        at,
                        kind,
                        from_then_on,
                    };
                    self.inject(fault)
                        .map_err(|found| format!("{fault:?} ({call}): {found}"))?;
                }
            }
        }
        Ok(tried)
    }

    fn inject(&self, fault: Fault) -> Result<(), String> {
        let root = tempfile::tempdir().unwrap();
        let disk = SimDisk::new(root.path(), &self.before, Some(fault));
        let result = (self.run)(Arc::new(disk.clone()), root.path());
        let live = disk.live();
        let verdict = self.judge(&live);
        let call = disk.calls()[fault.at].clone();
        // A disk that renames, calls it an error, and then answers nothing leaves no way to know.
        let unknowable = fault.kind == FaultKind::EioAfterwards && fault.from_then_on;
        let expected = match &result {
            Ok(()) => Verdict::Complete,
            Err(CacheError::Io { action, .. }) if *action == PUBLISHED_IN_DOUBT => {
                Verdict::Complete
            }
            Err(CacheError::Io {
                action: "publish", ..
            }) if unknowable => Verdict::Complete,
            Err(CacheError::Io { .. }) => Verdict::Absent,
            Err(error) => return Err(format!("unexpected error {error:?}")),
        };
        if verdict != expected {
            return Err(format!("{result:?} left {verdict:?}"));
        }
        // What dead writers left may still be there, if the failure came before it was swept.
        let (old, new) = (hidden(&self.before).count(), hidden(&live).count());
        let removal_failed = call.starts_with("remove") || fault.from_then_on;
        if new > old && !removal_failed {
            return Err(format!("{result:?} left {:?}", live.keys()));
        }
        disk.after_cut(disk.operations(), &mut |tree| match self.judge(tree) {
            Verdict::Broken(fault) => Err(fault),
            Verdict::Absent if result.is_ok() => Err("success was reported".to_owned()),
            _ => Ok(()),
        })?;
        // The lock has to have noted by itself whether there is something to sweep.
        self.run_again(root.path(), &live, &verdict)
    }

    /// Runs on a sound disk that holds `tree`: the thing is completed, or found complete, and nothing else is left.
    fn run_again(&self, root: &Path, tree: &Tree, verdict: &Verdict) -> Result<(), String> {
        let disk = SimDisk::new(root, tree, None);
        let result = (self.run)(Arc::new(disk.clone()), root);
        match (verdict, &result) {
            (Verdict::Absent, Ok(())) | (Verdict::Complete, Err(CacheError::Exists { .. })) => {}
            _ => return Err(format!("running again on {verdict:?} gave {result:?}")),
        }
        let live = disk.live();
        if let Some(path) = hidden(&live).next() {
            return Err(format!("running again left {}", path.display()));
        }
        if let Some(path) = hidden(&load(root)).next() {
            return Err(format!("the lock left {}", path.display()));
        }
        match self.judge(&live) {
            Verdict::Complete => Ok(()),
            other => Err(format!("running again gave {other:?}")),
        }
    }

    /// The verdict on a tree. No reader looks at hidden entries, so trees that differ only there are judged once.
    fn judge(&self, tree: &Tree) -> Verdict {
        let mut seen = self.judged.lock().unwrap();
        let mut visible = tree.clone();
        visible.retain(|path, _| !is_hidden(path));
        seen.entry(visible)
            .or_insert_with_key(|visible| {
                let directory = tempfile::tempdir().unwrap();
                store(visible, directory.path());
                (self.check)(directory.path())
            })
            .clone()
    }
}

/// Whether a reader passes over it.
pub fn is_hidden(path: &Path) -> bool {
    path.iter()
        .any(|name| name.to_string_lossy().starts_with('.'))
}

/// Entries that a reader passes over.
pub fn hidden(tree: &Tree) -> impl Iterator<Item = &Path> {
    tree.keys()
        .map(AsRef::as_ref)
        .filter(|path| is_hidden(path))
}

/// Writes a tree into an empty directory.
pub fn store(tree: &Tree, root: &Path) {
    for (path, content) in tree {
        match content {
            None => fs::create_dir(root.join(path)).unwrap(),
            Some(bytes) => fs::write(root.join(path), bytes).unwrap(),
        }
    }
}

/// Reads all below a directory.
pub fn load(root: &Path) -> Tree {
    let (mut tree, mut open) = (Tree::new(), vec![root.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let content = if path.is_dir() {
                open.push(path.clone());
                None
            } else {
                Some(fs::read(&path).unwrap())
            };
            tree.insert(path.strip_prefix(root).unwrap().to_owned(), content);
        }
    }
    tree
}
