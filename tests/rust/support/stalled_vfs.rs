//! The real disk, but for writes that do not go on before somebody lets them.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dataset_rt::store::vfs::{OsVfs, Vfs, VfsFile};

/// A disk whose first write of any file waits until the flag is set.
#[derive(Debug, Default)]
pub struct StalledVfs {
    pub goes_on: Arc<AtomicBool>,
}

struct StalledFile {
    file: Box<dyn VfsFile>,
    goes_on: Arc<AtomicBool>,
}

impl VfsFile for StalledFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        while !self.goes_on.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        self.file.write_all(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Vfs for StalledVfs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        OsVfs.create_dir(path)
    }
    fn create_file(&self, path: &Path) -> io::Result<Box<dyn VfsFile>> {
        Ok(Box::new(StalledFile {
            file: OsVfs.create_file(path)?,
            goes_on: Arc::clone(&self.goes_on),
        }))
    }
    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsVfs.rename_noreplace(from, to)
    }
    fn replace_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsVfs.replace_file(from, to)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        OsVfs.sync_dir(path)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsVfs.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        OsVfs.remove_dir_all(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        OsVfs.list(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        OsVfs.exists(path)
    }
}
