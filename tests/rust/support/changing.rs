//! Changes a cache that is there, on simulated disks that lose power or fail, and judges what is left.
//!
//! As [`super::scenario`], for maintenance: what a change reads lies on the real file system, what it writes goes to the
//! simulated disk. A change must therefore read all it needs before it writes, or from what it read. Violations come back
//! as text, so that a test can also demand one.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::names::MANIFEST;
use dataset_rt::store::change::Change;
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::publish::PUBLISHED_IN_DOUBT;
use dataset_rt::store::vfs::Vfs;

use super::altered_vfs::forgetful;
use super::crash_vfs::{Fault, FaultKind, SimDisk};
use super::disk::{Tree, digest};
use super::scenario::{hidden, is_hidden, store};

/// Name of the cache that is changed.
pub const NAME: &str = "train";

/// What a cache is after an attempt to change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Old,
    New,
    Broken(String),
}

/// The names in a tree, the root manifest, and whether the lock said that somebody died.
type Tried = (Vec<PathBuf>, Option<Vec<u8>>, bool);
/// What is called by a name, and which paths that is.
pub type Forgets = (&'static str, fn(&Path) -> bool);

/// Changes the cache at a path, on a disk.
pub type Alter<'a> = dyn Fn(Arc<dyn Vfs>, &Path) -> Result<()> + 'a;

/// A change, and how to judge what it leaves.
pub struct Changing<'a> {
    /// What is durable at the start; the cache is `train`.
    before: Tree,
    alter: &'a Alter<'a>,
    /// Judges the cache at a path.
    judge: &'a dyn Fn(&Path) -> State,
    /// Whether an error means that nothing was changed.
    pub is_atomic: bool,
    judged: Mutex<HashMap<[u8; 32], State>>,
    /// States on which the change was tried again.
    again: Mutex<HashSet<Tried>>,
}

/// How many states were judged.
#[derive(Debug, Default, Clone, Copy)]
pub struct Judged {
    pub old: usize,
    pub new: usize,
}

impl<'a> Changing<'a> {
    /// `alter` applied to the cache `train` in `before`.
    pub fn new(
        before: Tree,
        alter: &'a Alter<'a>,
        judge: &'a dyn Fn(&Path) -> State,
    ) -> Changing<'a> {
        Changing {
            before,
            alter,
            judge,
            is_atomic: true,
            judged: Mutex::default(),
            again: Mutex::default(),
        }
    }

    /// Cuts the power after every operation. Every state that may be left is the old one or the new one, and the new one
    /// once success was reported; changing again completes it, and leaves nothing hidden behind.
    pub fn cut_power(
        &self,
        mount: &dyn Fn(SimDisk) -> Arc<dyn Vfs>,
    ) -> std::result::Result<Judged, String> {
        self.cut(mount, true)
    }

    fn cut(
        &self,
        mount: &dyn Fn(SimDisk) -> Arc<dyn Vfs>,
        is_changed_again: bool,
    ) -> std::result::Result<Judged, String> {
        let (root, disk) = self.mounted(&self.before, None);
        (self.alter)(mount(disk.clone()), &root.path().join(NAME))
            .map_err(|error| error.to_string())?;
        let (operations, calls) = (disk.operations(), disk.calls());
        let mut judged = Judged::default();
        for cut in 0..=operations {
            disk.after_cut(cut, &mut |tree| {
                let context = |fault: &str| {
                    let names: Vec<_> = tree.keys().collect();
                    format!("cut after {cut} of {operations} operations: {fault}; left {names:?} of {calls:?}")
                };
                let state = self.state(tree);
                match &state {
                    State::Broken(fault) => return Err(context(fault)),
                    State::Old if cut == operations => {
                        return Err(context("success was reported"));
                    }
                    State::Old => judged.old += 1,
                    State::New => judged.new += 1,
                }
                if !is_changed_again {
                    return Ok(());
                }
                self.change_again(tree, true)
                    .map_err(|fault| context(&fault))
            })?;
        }
        Ok(judged)
    }

    /// The names of forgotten syncs that no cut showed: every element of `forgotten` should be missed.
    pub fn unnoticed(&self, forgotten: &[Forgets]) -> Vec<&'static str> {
        let passes = |forgets: fn(&Path) -> bool| {
            let mount = |disk| forgetful(disk, forgets);
            self.cut(&mount, false).is_ok()
        };
        let unnoticed = forgotten.iter().filter(|(_, forgets)| passes(*forgets));
        unnoticed.map(|(what, _)| *what).collect()
    }

    /// Fails every call, in every way, once and from then on. Returns the number of failures tried.
    pub fn inject_faults(&self) -> std::result::Result<usize, String> {
        let (root, disk) = self.mounted(&self.before, None);
        (self.alter)(Arc::new(disk.clone()), &root.path().join(NAME))
            .map_err(|error| error.to_string())?;
        let mut tried = 0;
        for (at, call) in disk.calls().iter().enumerate() {
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

    fn inject(&self, fault: Fault) -> std::result::Result<(), String> {
        let (root, disk) = self.mounted(&self.before, Some(fault));
        let result = (self.alter)(Arc::new(disk.clone()), &root.path().join(NAME));
        let live = disk.live();
        let state = self.state(&live);
        // A disk that renames, calls it an error, and then answers nothing leaves no way to know.
        let unknowable = fault.kind == FaultKind::EioAfterwards && fault.from_then_on;
        let expected = match &result {
            Ok(()) => State::New,
            Err(CacheError::Io { action, .. }) if *action == PUBLISHED_IN_DOUBT => State::New,
            Err(CacheError::Io {
                action: "publish", ..
            }) if unknowable => State::New,
            Err(CacheError::Io { .. }) if !self.is_atomic && state == State::New => State::New,
            Err(CacheError::Io { .. }) => State::Old,
            Err(error) => return Err(format!("unexpected error {error:?}")),
        };
        if state != expected {
            return Err(format!("{result:?} left {state:?}"));
        }
        let calls = disk.calls();
        let failed = calls.get(fault.at).map_or("", String::as_str);
        let (old, new) = (hidden(&self.before).count(), hidden(&live).count());
        if new > old && !failed.starts_with("remove") && !fault.from_then_on {
            return Err(format!("{result:?} left {:?}", live.keys()));
        }
        disk.after_cut(disk.operations(), &mut |tree| match self.state(tree) {
            State::Broken(fault) => Err(fault),
            State::Old if result.is_ok() => Err("success was reported".to_owned()),
            _ => Ok(()),
        })?;
        // The lock has to have noted by itself whether there is something to sweep.
        let marked = root.path().join(format!(".{NAME}.lock")).exists();
        self.change_again(&live, marked)
    }

    /// Changes again, on a sound disk that holds `tree`, what is not changed yet: then it is, and nothing hidden is left.
    /// With `marked`, the lock says that somebody died.
    fn change_again(&self, tree: &Tree, marked: bool) -> std::result::Result<(), String> {
        let manifest = tree.get(&Path::new(NAME).join(MANIFEST)).cloned().flatten();
        let names = tree.keys().cloned().collect();
        // No maintainer reads what another staged: names, and how far the root is, decide what it does.
        if !self.again.lock().unwrap().insert((names, manifest, marked)) {
            return Ok(());
        }
        let (root, disk) = self.mounted(tree, None);
        if marked {
            let holder = r#"{"pid":1,"host":"gone","since_unix":1}"#;
            fs::write(root.path().join(format!(".{NAME}.lock")), holder).unwrap();
        }
        let (vfs, path): (Arc<dyn Vfs>, _) = (Arc::new(disk.clone()), root.path().join(NAME));
        let result = match self.state(tree) {
            State::Old => (self.alter)(vfs, &path),
            // The next maintenance, whatever it is, begins like this.
            _ => Change::begin(vfs, &path, Wanted::Newest).map(drop),
        };
        result.map_err(|error| format!("changing again gave {error}"))?;
        let live = disk.live();
        if let Some(path) = hidden(&live).next() {
            return Err(format!("changing again left {}", path.display()));
        }
        if root.path().join(format!(".{NAME}.lock")).exists() {
            return Err("changing again left the lock".to_owned());
        }
        match self.state(&live) {
            State::New => Ok(()),
            other => Err(format!("changing again gave {other:?}")),
        }
    }

    /// A disk that holds `tree`, mounted where a reader sees what it shows of it.
    fn mounted(&self, tree: &Tree, fault: Option<Fault>) -> (Root, SimDisk) {
        let root = Root::new();
        store(&visible(tree), root.path());
        let disk = SimDisk::new(root.path(), tree, fault);
        (root, disk)
    }

    /// What a tree is. No reader looks at hidden entries, so trees that differ only there are judged once.
    fn state(&self, tree: &Tree) -> State {
        let mut judged = self.judged.lock().unwrap();
        judged
            .entry(digest(tree.iter().filter(|(path, _)| !is_hidden(path))))
            .or_insert_with(|| {
                let root = Root::new();
                store(&visible(tree), root.path());
                (self.judge)(&root.path().join(NAME))
            })
            .clone()
    }
}

/// A temporary folder by the path that a maintainer finds it by.
struct Root {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Root {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            path: fs::canonicalize(folder.path()).unwrap(),
            _folder: folder,
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

fn visible(tree: &Tree) -> Tree {
    let mut visible = tree.clone();
    visible.retain(|path, _| !is_hidden(path));
    visible
}
