//! File systems that do what another does, but for one thing.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use dataset_rt::store::vfs::{OsVfs, Vfs, VfsFile};

use super::crash_vfs::SimDisk;

/// Stands in for an operation on a path; what it is given does the operation itself.
type Override = dyn Fn(&Path, &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> + Send + Sync;

/// A file system that hands every call to the one below it, unless the operation was overridden.
pub struct Altered {
    below: Arc<dyn Vfs>,
    write: Arc<Override>,
    sync: Arc<Override>,
}

impl Altered {
    /// Overrides nothing yet.
    pub fn new(below: impl Vfs + 'static) -> Self {
        Self {
            below: Arc::new(below),
            write: Arc::new(|_, write| write()),
            sync: Arc::new(|_, sync| sync()),
        }
    }

    /// Does something before each write to a file.
    pub fn before_write(mut self, happens: impl Fn(&Path) + Send + Sync + 'static) -> Self {
        self.write = Arc::new(move |path, write| {
            happens(path);
            write()
        });
        self
    }

    /// Claims the syncs of some files and directories without doing them.
    pub fn without_sync(mut self, forgets: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        self.sync = Arc::new(move |path, sync| match forgets(path) {
            true => Ok(()),
            false => sync(),
        });
        self
    }
}

/// The real file system, but nothing is made durable: for tests that change caches thousands of times.
pub fn unsynced() -> Arc<dyn Vfs> {
    Arc::new(Altered::new(OsVfs).without_sync(|_| true))
}

/// A simulated disk that claims the syncs of these paths without doing them: what a forgotten sync would be.
pub fn forgetful(disk: SimDisk, forgets: fn(&Path) -> bool) -> Arc<dyn Vfs> {
    Arc::new(Altered::new(disk).without_sync(forgets))
}

impl fmt::Debug for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "altered {:?}", self.below)
    }
}

impl Vfs for Altered {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.below.create_dir(path)
    }
    fn create_file(&self, path: &Path) -> io::Result<Box<dyn VfsFile>> {
        Ok(Box::new(AlteredFile {
            below: self.below.create_file(path)?,
            path: path.into(),
            write: Arc::clone(&self.write),
            sync: Arc::clone(&self.sync),
        }))
    }
    fn open_file(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        self.below.open_file(path)
    }
    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename_noreplace(from, to)
    }
    fn replace_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.replace_file(from, to)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        (self.sync)(path, &mut || self.below.sync_dir(path))
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.below.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below.remove_dir_all(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.below.list(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.below.exists(path)
    }
}

struct AlteredFile {
    below: Box<dyn VfsFile>,
    path: Box<Path>,
    write: Arc<Override>,
    sync: Arc<Override>,
}

impl VfsFile for AlteredFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        (self.write)(&self.path, &mut || self.below.write_all(bytes))
    }
    fn begin_writeback(&mut self) {
        self.below.begin_writeback();
    }
    fn sync(&mut self) -> io::Result<()> {
        (self.sync)(&self.path, &mut || self.below.sync())
    }
}
