//! Keeps a bounded number of files open, so that ten thousand caches fit a limit of a thousand descriptors.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use super::file::FileReader;
use crate::error::Result;
use crate::sync::lock;
use crate::types::Io;

/// Mapped files kept open: far below the kernel's limit of 65,530 maps a process. A map holds no descriptor.
const MAPS_MAX: usize = 8_192;
/// Files kept open for positional reads, each of which holds a descriptor.
const DESCRIPTORS_MAX: usize = 128;

/// The files used last; older ones close once nobody reads from them.
#[derive(Debug)]
pub struct FilePool {
    recent: Mutex<VecDeque<Arc<FileReader>>>,
    capacity: usize,
}

impl FilePool {
    /// A pool for files opened with `io`.
    pub fn new(io: Io) -> Self {
        let capacity = if io == Io::Pread {
            DESCRIPTORS_MAX
        } else {
            MAPS_MAX
        };
        Self {
            recent: Mutex::default(),
            capacity,
        }
    }

    /// Keeps `file` open, and forgets the one opened longest ago if there are too many.
    fn keep(&self, file: &Arc<FileReader>) {
        let mut recent = lock(&self.recent);
        recent.push_back(Arc::clone(file));
        let forgotten = if recent.len() > self.capacity {
            recent.pop_front()
        } else {
            None
        };
        drop(recent);
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

    #[test]
    fn only_the_last_opened_files_stay_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"x").unwrap();
        let open = || FileReader::open(&path, 1, Io::Pread, Purpose::Records);
        let pool = FilePool {
            recent: Mutex::default(),
            capacity: 2,
        };
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
