//! A simulated disk: it remembers which bytes and names were made durable, can fail any call, and can say what may be
//! left after a loss of power behind any operation.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use dataset_rt::store::vfs::{Vfs, VfsFile};

use super::disk::{Ino, Nodes, Op, ROOT, Tree};

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    Eio,
    DiskFull,
    /// A write keeps its first half, then the disk is full; other calls fail as [`FaultKind::DiskFull`].
    ShortWrite,
    /// The call does its work, then reports an error.
    EioAfterwards,
}

/// Which calls fail.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub at: usize,
    pub kind: FaultKind,
    pub from_then_on: bool,
}

#[derive(Debug)]
struct State {
    nodes: Nodes,
    log: Vec<Op>,
    /// What each call was, for messages; calls that only look are counted too.
    calls: Vec<String>,
    fault: Option<Fault>,
}

/// The simulated disk, mounted at a directory. Clones share it.
#[derive(Debug, Clone)]
pub struct SimDisk {
    root: PathBuf,
    initial: Arc<Tree>,
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// A disk on which `tree` is durable.
    pub fn new(root: &Path, tree: &Tree, fault: Option<Fault>) -> Self {
        SimDisk {
            root: root.to_owned(),
            initial: Arc::new(tree.clone()),
            state: Arc::new(Mutex::new(State {
                nodes: Nodes::new(tree),
                log: Vec::new(),
                calls: Vec::new(),
                fault,
            })),
        }
    }

    /// Every call so far, in words.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// Number of operations so far that changed the disk: where the power can be cut.
    pub fn operations(&self) -> usize {
        self.state().log.len()
    }

    /// What processes see now.
    pub fn live(&self) -> Tree {
        self.state().nodes.live()
    }

    /// Calls `visit` with every different state that a loss of power after `operations` operations may leave: all of
    /// them if they are few, else the extremes and a seeded sample. An error of `visit` ends the walk.
    pub fn after_cut(
        &self,
        operations: usize,
        visit: &mut dyn FnMut(&Tree) -> Result<(), String>,
    ) -> Result<(), String> {
        let log = self.state().log[..operations].to_vec();
        let mut nodes = Nodes::new(&self.initial);
        log.iter().for_each(|op| nodes.apply(op));
        nodes.visit_survivors(operations as u64, visit)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Counts the call and does it, unless it is to fail. `op` finds what the call does, or why it cannot.
    fn call(
        &self,
        what: &str,
        path: &Path,
        op: impl FnOnce(&Nodes) -> io::Result<Vec<Op>>,
    ) -> io::Result<()> {
        let mut state = self.state();
        let number = state.calls.len();
        let shown = path.strip_prefix(&self.root).unwrap_or(path).display();
        state.calls.push(format!("{what} {shown}"));
        let due = state
            .fault
            .filter(|fault| fault.at == number || (fault.from_then_on && fault.at <= number));
        let mut ops = op(&state.nodes)?;
        let outcome = match due.map(|fault| fault.kind) {
            None => Ok(()),
            Some(FaultKind::EioAfterwards) => Err(io::Error::from_raw_os_error(5)),
            Some(kind) => {
                // A failed call changes nothing, with two exceptions.
                ops.retain_mut(|op| match op {
                    Op::Write(_, bytes) if kind == FaultKind::ShortWrite => {
                        bytes.truncate(bytes.len() / 2);
                        true
                    }
                    Op::Sync(ino) => {
                        *op = Op::FailedSync(*ino);
                        true
                    }
                    _ => false,
                });
                let errno = if kind == FaultKind::Eio { 5 } else { 28 };
                Err(io::Error::from_raw_os_error(errno))
            }
        };
        for op in ops {
            state.nodes.apply(&op);
            state.log.push(op);
        }
        outcome
    }

    /// The directory that holds the path's last name, and that name.
    fn split(&self, nodes: &Nodes, path: &Path) -> io::Result<(Ino, OsString)> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let parent = self.find(nodes, path.parent().ok_or(ErrorKind::InvalidInput)?)?;
        if !nodes.0[parent].is_dir {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok((parent, name.to_owned()))
    }

    fn find(&self, nodes: &Nodes, path: &Path) -> io::Result<Ino> {
        let below = path
            .strip_prefix(&self.root)
            .map_err(|_| io::Error::from(ErrorKind::NotFound))?;
        let mut ino = ROOT;
        for component in below.components() {
            let Component::Normal(name) = component else {
                return Err(ErrorKind::InvalidInput.into());
            };
            ino = *nodes.0[ino].live.get(name).ok_or(ErrorKind::NotFound)?;
        }
        Ok(ino)
    }

    fn free(&self, nodes: &Nodes, path: &Path) -> io::Result<(Ino, OsString)> {
        let (dir, name) = self.split(nodes, path)?;
        if nodes.0[dir].live.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok((dir, name))
    }
}

impl Vfs for SimDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call("create_dir", path, |nodes| {
            self.free(nodes, path)
                .map(|(dir, name)| vec![Op::Mkdir(dir, name)])
        })
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn VfsFile>> {
        self.call("create_file", path, |nodes| {
            self.free(nodes, path)
                .map(|(dir, name)| vec![Op::Create(dir, name)])
        })?;
        let ino = self.find(&self.state().nodes, path)?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            path: path.to_owned(),
            ino,
        }))
    }

    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename", from, |nodes| {
            self.find(nodes, from)?;
            let (from_dir, from) = self.split(nodes, from)?;
            let (to_dir, to) = self.free(nodes, to)?;
            Ok(vec![Op::Rename(from_dir, from, to_dir, to)])
        })
    }

    fn replace_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("replace", from, |nodes| {
            self.find(nodes, from)?;
            let (from_dir, from) = self.split(nodes, from)?;
            let (to_dir, to) = self.split(nodes, to)?;
            Ok(vec![Op::Rename(from_dir, from, to_dir, to)])
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call("sync_dir", path, |nodes| {
            // Above the mount point is another disk, of which nothing here depends.
            if !path.starts_with(&self.root) && self.root.starts_with(path) {
                return Ok(vec![]);
            }
            self.find(nodes, path).map(|ino| vec![Op::Sync(ino)])
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call("remove_file", path, |nodes| {
            self.find(nodes, path)?;
            self.split(nodes, path)
                .map(|(dir, name)| vec![Op::Remove(dir, name)])
        })
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fn remove(nodes: &Nodes, dir: Ino, name: OsString, ops: &mut Vec<Op>) {
            let ino = nodes.0[dir].live[&name];
            for child in nodes.0[ino].live.keys() {
                remove(nodes, ino, child.clone(), ops);
            }
            ops.push(Op::Remove(dir, name));
        }
        self.call("remove_dir_all", path, |nodes| {
            self.find(nodes, path)?;
            let (dir, name) = self.split(nodes, path)?;
            let mut ops = Vec::new();
            remove(nodes, dir, name, &mut ops);
            Ok(ops)
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.call("list", dir, |nodes| self.find(nodes, dir).map(|_| vec![]))?;
        let state = self.state();
        let ino = self.find(&state.nodes, dir)?;
        Ok(state.nodes.0[ino].live.keys().cloned().collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.call("exists", path, |_| Ok(vec![]))?;
        Ok(self.root.starts_with(path) || self.find(&self.state().nodes, path).is_ok())
    }
}

struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    ino: Ino,
}

impl VfsFile for SimFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let op = Op::Write(self.ino, bytes.to_vec());
        self.disk.call("write", &self.path, |_| Ok(vec![op]))
    }

    fn sync(&mut self) -> io::Result<()> {
        let op = Op::Sync(self.ino);
        self.disk.call("sync", &self.path, |_| Ok(vec![op]))
    }
}
