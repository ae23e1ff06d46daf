//! Publication of a cache directory: staged out of sight, made durable, then given its name in one step.
//!
//! The staging directory is a hidden sibling `.<name>.tmp-<pid>-<random>`, so it is on the same file system and no
//! reader takes it for a cache. See `docs/durability.md` for what holds after each call.

use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::lock::CacheLock;
use super::sweep::{GENERATION_STEM, sweep_stale, unique};
use super::vfs::{Vfs, VfsFile, create_dirs, sync_name_of};
use crate::error::{CacheError, Result};
use crate::sync::{Mutex, lock as locked};

/// The action of the one [`CacheError::Io`] after which a cache has its name all the same: complete, but not known to
/// outlive a loss of power.
pub const PUBLISHED_IN_DOUBT: &str = "make the published cache durable (it is complete and in place, but a power loss may undo that)";

/// A cache being written, not yet visible under its name.
///
/// Files may be created and written from many threads. Dropped without [`Staging::publish`], it removes what it staged
/// and then releases the lock; an error of that removal is not reported, but makes the next writer of this cache look
/// for the remains. A copy in a forked child removes nothing.
#[derive(Debug)]
pub struct Staging {
    vfs: Arc<dyn Vfs>,
    base: PathBuf,
    target: PathBuf,
    directory: PathBuf,
    ledger: Arc<Mutex<Ledger>>,
    owner: u32,
    /// Whether the staging directory is ours to remove.
    staged: bool,
    /// Last, so that it is released last.
    lock: CacheLock,
}

/// What has to be done, or has to have been done, before publication.
#[derive(Debug, Default)]
struct Ledger {
    /// Directories whose names are not durable, parents before children.
    directories: Vec<PathBuf>,
    /// Files created and not finished.
    unfinished: Vec<PathBuf>,
}

impl Staging {
    /// Starts writing `base/name` under the lock of that name. Missing directories up to `base` are created, and
    /// what dead writers of this name left is removed if the lock found signs of it.
    ///
    /// [`CacheError::Exists`] if anything has the name already.
    pub fn begin(vfs: Arc<dyn Vfs>, base: &Path, name: &str, lock: CacheLock) -> Result<Staging> {
        if !is_plain_name(name) {
            return Err(CacheError::SourceName {
                name: name.to_owned(),
                fault: "expected one plain path component".to_owned(),
            });
        }
        if !lock.guards(base, name) {
            return Err(CacheError::internal(
                "a cache was begun under a foreign lock",
            ));
        }
        create_dirs(&*vfs, base)?;
        if lock.has_remains() {
            sweep_stale(&*vfs, base, name, &lock)?;
        }
        Self::stage(vfs, base, name, name, lock)
    }

    /// Starts a generation of a cache, to be called `base/name`, under the lock of that cache.
    ///
    /// [`CacheError::Exists`] if anything has the name already.
    pub(super) fn begin_generation(
        vfs: Arc<dyn Vfs>,
        base: &Path,
        name: &str,
        lock: CacheLock,
    ) -> Result<Staging> {
        create_dirs(&*vfs, base)?;
        Self::stage(vfs, base, name, GENERATION_STEM, lock)
    }

    fn stage(
        vfs: Arc<dyn Vfs>,
        base: &Path,
        name: &str,
        stem: &str,
        lock: CacheLock,
    ) -> Result<Staging> {
        let target = base.join(name);
        refuse_existing(&*vfs, &target)?;
        let directory = create_staging_directory(&*vfs, base, stem)?;
        Ok(Staging {
            vfs,
            base: base.to_path_buf(),
            target,
            directory,
            ledger: Arc::default(),
            owner: std::process::id(),
            staged: true,
            lock,
        })
    }

    /// The lock that it is written under.
    pub(super) fn lock(&self) -> &CacheLock {
        &self.lock
    }

    /// Creates a directory inside the cache; its parent must exist.
    pub fn create_dir(&self, relative: &str) -> Result<()> {
        let path = self.inside(relative)?;
        self.vfs
            .create_dir(&path)
            .map_err(|error| CacheError::io("create directory", &path, error))?;
        locked(&self.ledger).directories.push(path);
        Ok(())
    }

    /// Creates a file inside the cache; its directory must exist. It has to be finished before publication.
    pub fn create_file(&self, relative: &str) -> Result<StagedFile> {
        let path = self.inside(relative)?;
        let file = self
            .vfs
            .create_file(&path)
            .map_err(|error| CacheError::io("create file", &path, error))?;
        locked(&self.ledger).unfinished.push(path.clone());
        Ok(StagedFile {
            file,
            path,
            bytes: 0,
            ledger: Arc::clone(&self.ledger),
        })
    }

    /// Takes a file out of the cache again, to be read and then removed: its name is free for another file, and its
    /// bytes are not made durable.
    pub fn withdraw(&self, file: StagedFile) -> Result<Withdrawn> {
        let StagedFile { file, path, .. } = file;
        drop(file);
        let aside = self.directory.join(format!(".withdrawn-{}", unique()));
        self.vfs
            .rename_noreplace(&path, &aside)
            .map_err(|error| CacheError::io("set aside", &path, error))?;
        locked(&self.ledger)
            .unfinished
            .retain(|unfinished| *unfinished != path);
        locked(&self.ledger).unfinished.push(aside.clone());
        Ok(Withdrawn {
            vfs: Arc::clone(&self.vfs),
            path: aside,
            ledger: Arc::clone(&self.ledger),
        })
    }

    /// Writes the manifest, makes everything durable, and gives the cache its name; returns its path.
    ///
    /// On success the cache is complete whatever happens to the power from now on. On an error nothing has the name,
    /// but for two cases. [`CacheError::Exists`]: another writer was first, and its cache is untouched. An
    /// [`CacheError::Io`] with [`PUBLISHED_IN_DOUBT`]: this cache is complete under its name, but its name is not known
    /// to be durable.
    pub fn publish(mut self, manifest_name: &str, manifest: &[u8]) -> Result<PathBuf> {
        if let Some(path) = locked(&self.ledger).unfinished.first() {
            let what = format!("{} was published unfinished", path.display());
            return Err(CacheError::internal(what));
        }
        let directories = std::mem::take(&mut locked(&self.ledger).directories);
        for directory in directories.iter().rev() {
            self.sync_staged(directory)?;
        }
        let mut file = self.create_file(manifest_name)?;
        file.write_all(manifest)?;
        file.finish()?;
        self.sync_staged(&self.directory)?;

        let doubt = |error| CacheError::io(PUBLISHED_IN_DOUBT, &self.target, error);
        let renamed = self.vfs.rename_noreplace(&self.directory, &self.target);
        if let Err(error) = renamed {
            return Err(match error.kind() {
                ErrorKind::AlreadyExists => CacheError::Exists {
                    path: self.target.clone(),
                },
                // An error may come after the deed.
                _ if matches!(self.vfs.exists(&self.directory), Ok(false)) => doubt(error),
                _ => CacheError::io("publish", &self.target, error),
            });
        }
        self.staged = false;
        self.vfs.sync_dir(&self.base).map_err(doubt)?;
        match sync_name_of(&*self.vfs, &self.base) {
            Err(CacheError::Io { source, .. }) => return Err(doubt(source)),
            done => done?,
        }
        Ok(self.target.clone())
    }

    fn sync_staged(&self, directory: &Path) -> Result<()> {
        self.vfs
            .sync_dir(directory)
            .map_err(|error| CacheError::io("sync directory", directory, error))
    }

    fn inside(&self, relative: &str) -> Result<PathBuf> {
        let path = Path::new(relative);
        let plain = path
            .components()
            .all(|component| matches!(component, Component::Normal(_)));
        if !plain || relative.is_empty() {
            let what = format!("{relative:?} is not a path inside a cache");
            return Err(CacheError::internal(what));
        }
        Ok(self.directory.join(path))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.staged || self.owner != std::process::id() {
            return;
        }
        match self.vfs.remove_dir_all(&self.directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => self.lock.set_remains(true),
            _ => {}
        }
    }
}

/// A file of a cache being written. Unless [finished](StagedFile::finish), its cache cannot be published.
pub struct StagedFile {
    file: Box<dyn VfsFile>,
    path: PathBuf,
    bytes: u64,
    ledger: Arc<Mutex<Ledger>>,
}

impl StagedFile {
    /// Appends bytes. Each call is one write: hand over large blocks. After an error, give the cache up.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .map_err(|error| CacheError::io("write", &self.path, error))?;
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// Hints that the bytes so far should start their way to the disk.
    pub fn begin_writeback(&mut self) {
        self.file.begin_writeback();
    }

    /// Makes the bytes durable and closes the file; returns its length in bytes. Not to be tried again after an error.
    pub fn finish(mut self) -> Result<u64> {
        self.file
            .sync()
            .map_err(|error| CacheError::io("sync", &self.path, error))?;
        locked(&self.ledger)
            .unfinished
            .retain(|path| *path != self.path);
        Ok(self.bytes)
    }

    /// Where the file is now: inside the staging directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A file that is no longer part of the cache being written. Until [removed](Withdrawn::remove), its cache cannot be
/// published.
#[derive(Debug)]
pub struct Withdrawn {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    ledger: Arc<Mutex<Ledger>>,
}

impl Withdrawn {
    /// Its bytes, from the start.
    pub fn open(&self) -> Result<Box<dyn Read + Send>> {
        self.vfs
            .open_file(&self.path)
            .map_err(|error| CacheError::io("open", &self.path, error))
    }

    /// Removes it.
    pub fn remove(self) -> Result<()> {
        self.vfs
            .remove_file(&self.path)
            .map_err(|error| CacheError::io("remove", &self.path, error))?;
        locked(&self.ledger)
            .unfinished
            .retain(|path| *path != self.path);
        Ok(())
    }
}

fn create_staging_directory(vfs: &dyn Vfs, base: &Path, name: &str) -> Result<PathBuf> {
    loop {
        let directory = base.join(format!(".{name}.tmp-{}", unique()));
        match vfs.create_dir(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                let _ = vfs.remove_dir_all(&directory);
                return Err(CacheError::io("create directory", &directory, error));
            }
        }
    }
}

fn refuse_existing(vfs: &dyn Vfs, target: &Path) -> Result<()> {
    let exists = vfs
        .exists(target)
        .map_err(|error| CacheError::io("look for", target, error))?;
    if exists {
        return Err(CacheError::Exists {
            path: target.to_path_buf(),
        });
    }
    Ok(())
}

fn is_plain_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let first = components.next();
    matches!(first, Some(Component::Normal(only)) if only == name) && components.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::super::vfs::OsVfs;
    use super::*;

    fn begin(base: &Path) -> Result<Staging> {
        let lock = CacheLock::try_acquire(base, "c")?;
        Staging::begin(Arc::new(OsVfs), base, "c", lock)
    }

    #[test]
    fn dropped_unpublished_it_leaves_nothing_and_frees_the_lock() {
        let root = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let staging = begin(root.path()).unwrap();
            staging.create_dir("shards").unwrap();
            let mut file = staging.create_file("shards/0").unwrap();
            file.write_all(b"x").unwrap();
            assert!(file.path().starts_with(&staging.directory));
            drop(staging);
            // A worker may be slower than the one that gave up.
            file.finish().unwrap();
            assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_copy_in_another_process_removes_and_releases_nothing() {
        let root = tempfile::tempdir().unwrap();
        let mut staging = begin(root.path()).unwrap();
        staging.owner ^= 1;
        let directory = staging.directory.clone();
        drop(staging);
        assert!(directory.exists());
    }

    #[test]
    fn nothing_is_made_outside_the_cache() {
        let root = tempfile::tempdir().unwrap();
        let staging = begin(root.path()).unwrap();
        for path in ["", "..", "../x", "/x", "a/../../x", "./x"] {
            assert!(staging.create_dir(path).is_err(), "{path}");
            assert!(staging.create_file(path).is_err(), "{path}");
        }
        drop(staging);
        for name in ["", ".", "..", "a/b", "/a", "a/"] {
            let lock = CacheLock::without_locking(root.path(), name);
            let begun = Staging::begin(Arc::new(OsVfs), root.path(), name, lock);
            assert!(
                matches!(begun, Err(CacheError::SourceName { .. })),
                "{name}"
            );
        }
        let foreign = CacheLock::try_acquire(root.path(), "d").unwrap();
        assert!(Staging::begin(Arc::new(OsVfs), root.path(), "c", foreign).is_err());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn parts_can_go_to_other_threads() {
        fn send<T: Send>() {}
        fn share<T: Sync>() {}
        send::<Staging>();
        share::<Staging>();
        send::<StagedFile>();
    }

    #[test]
    fn whatever_has_the_name_stays() {
        let root = tempfile::tempdir().unwrap();
        let staging = begin(root.path()).unwrap();
        // Somebody without our lock, between the look and the rename.
        std::fs::create_dir(root.path().join("c")).unwrap();
        let lost = staging.publish("manifest.json", b"{}");
        assert!(matches!(lost, Err(CacheError::Exists { .. })), "{lost:?}");
        assert!(matches!(begin(root.path()), Err(CacheError::Exists { .. })));
        let left = std::fs::read_dir(root.path()).unwrap().count();
        assert_eq!(left, 1);
        assert_eq!(std::fs::read_dir(root.path().join("c")).unwrap().count(), 0);
    }
}
