//! Keeps a bounded number of files open, so that ten thousand caches fit a limit of a thousand descriptors.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Weak};

use super::file::FileReader;
use super::folder::Identity;
use super::locality::resolve;
use crate::error::Result;
use crate::sync::{Mutex, lock};
use crate::types::Io;

/// Mapped files kept open: far below the kernel's limit of 65,530 maps a process. A map holds no descriptor.
const MAPS_MAX: usize = 8_192;
/// Most files kept open for positional reads, each of which holds a descriptor.
const DESCRIPTORS_MAX: usize = 128;

/// Files kept open for positional reads: a quarter of what the process may have, since readers hold some more and most
/// descriptors are the program's own.
#[cfg(unix)]
fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let quarter = limit.map_or(u64::MAX, |limit| limit / 4);
    usize::try_from(quarter)
        .unwrap_or(DESCRIPTORS_MAX)
        .clamp(1, DESCRIPTORS_MAX)
}

#[cfg(not(unix))]
fn descriptors() -> usize {
    DESCRIPTORS_MAX
}

/// How the files of caches opened together are read, and which of them stay open: the last ones; older ones close once
/// nobody reads from them.
#[derive(Debug)]
pub struct FilePool {
    io: Io,
    /// What [`Io::Auto`] means on each file system, by device: asking a network file system costs a round trip.
    engines: Mutex<BTreeMap<u64, Io>>,
    maps: Recent,
    descriptors: Recent,
}

/// Files opened last.
#[derive(Debug)]
struct Recent {
    files: Mutex<VecDeque<Arc<FileReader>>>,
    capacity: usize,
}

impl FilePool {
    /// A pool for files opened with `io`.
    pub fn new(io: Io) -> Self {
        Self::with_capacities(io, MAPS_MAX, descriptors())
    }

    fn with_capacities(io: Io, maps: usize, descriptors: usize) -> Self {
        let recent = |capacity| Recent {
            files: Mutex::default(),
            capacity,
        };
        Self {
            io,
            engines: Mutex::default(),
            maps: recent(maps),
            descriptors: recent(descriptors),
        }
    }

    /// How the files of the directory at `path` are read; resolved.
    pub fn engine(&self, path: &Path, identity: &Identity) -> Io {
        match identity.device() {
            Some(device) if self.io == Io::Auto => *lock(&self.engines)
                .entry(device)
                .or_insert_with(|| resolve(self.io, path)),
            _ => resolve(self.io, path),
        }
    }

    /// Keeps `file` open, and forgets the one opened longest ago if there are too many.
    fn keep(&self, file: &Arc<FileReader>) {
        let recent = if file.holds_descriptor() {
            &self.descriptors
        } else {
            &self.maps
        };
        let mut files = lock(&recent.files);
        files.push_back(Arc::clone(file));
        let forgotten = if files.len() > recent.capacity {
            files.pop_front()
        } else {
            None
        };
        drop(files);
        drop(forgotten);
    }
}

/// The place of one file that may be open or closed.
#[derive(Debug, Default)]
pub struct FileSlot(Mutex<Weak<FileReader>>);

impl FileSlot {
    /// The open file, opened now if it is not.
    pub fn get(
        &self,
        pool: &FilePool,
        open: impl FnOnce() -> Result<FileReader>,
    ) -> Result<Arc<FileReader>> {
        let mut slot = lock(&self.0);
        if let Some(file) = slot.upgrade() {
            return Ok(file);
        }
        let file = Arc::new(open()?);
        *slot = Arc::downgrade(&file);
        drop(slot);
        pool.keep(&file);
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::file::Purpose;
    use crate::store::folder::Folder;

    #[test]
    fn each_file_system_decides_for_itself_and_is_asked_once() {
        let folder = tempfile::tempdir().unwrap();
        let identity = Folder::open(folder.path()).unwrap().identity().unwrap();
        let pool = FilePool::new(Io::Auto);
        assert_eq!(pool.engine(folder.path(), &identity), Io::Mmap);
        if let Some(device) = identity.device() {
            lock(&pool.engines).insert(device, Io::Pread);
            assert_eq!(pool.engine(folder.path(), &identity), Io::Pread);
        }
        for io in [Io::Mmap, Io::Pread] {
            assert_eq!(FilePool::new(io).engine(folder.path(), &identity), io);
        }
    }

    #[test]
    fn maps_do_not_push_out_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"x").unwrap();
        let pool = FilePool::with_capacities(Io::Auto, 1, 1);
        let slots: Vec<FileSlot> = (0..3).map(|_| FileSlot::default()).collect();
        for (slot, io) in slots.iter().zip([Io::Pread, Io::Mmap, Io::Mmap]) {
            slot.get(&pool, || FileReader::open(&path, 1, io, Purpose::Records))
                .unwrap();
        }
        let is_open = |slot: &FileSlot| lock(&slot.0).upgrade().is_some();
        assert_eq!(
            slots.iter().map(is_open).collect::<Vec<_>>(),
            [true, false, true]
        );
    }

    #[test]
    fn only_the_last_opened_files_stay_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"x").unwrap();
        let open = || FileReader::open(&path, 1, Io::Pread, Purpose::Records);
        let pool = FilePool::with_capacities(Io::Pread, 1, 2);
        let slots: Vec<FileSlot> = (0..4).map(|_| FileSlot::default()).collect();
        for slot in &slots {
            slot.get(&pool, open).unwrap();
        }
        let is_open = |slot: &FileSlot| lock(&slot.0).upgrade().is_some();
        assert_eq!(
            slots.iter().map(is_open).collect::<Vec<_>>(),
            [false, false, true, true]
        );
        let again = slots[0].get(&pool, open).unwrap();
        assert_eq!(again.len(), 1);
        assert!(Arc::ptr_eq(&again, &slots[0].get(&pool, open).unwrap()));
    }
}
