//! The real file system without syncs, for tests that change caches thousands of times.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;

use dataset_rt::store::vfs::{OsVfs, Vfs, VfsFile};

/// As [`OsVfs`], but nothing is made durable.
#[derive(Debug)]
pub struct Unsynced;

impl Vfs for Unsynced {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        OsVfs.create_dir(path)
    }
    fn create_file(&self, path: &Path) -> io::Result<Box<dyn VfsFile>> {
        Ok(Box::new(UnsyncedFile(OsVfs.create_file(path)?)))
    }
    fn open_file(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        OsVfs.open_file(path)
    }
    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsVfs.rename_noreplace(from, to)
    }
    fn replace_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsVfs.replace_file(from, to)
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
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

struct UnsyncedFile(Box<dyn VfsFile>);

impl VfsFile for UnsyncedFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
