//! A change of a cache: the right to make it, the generation it starts from, and the publication of the next one.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::cache::Cache;
use super::generations::{self, GENERATIONS_FORMAT, Wanted};
use super::lock::CacheLock;
use super::pool::FilePool;
use super::publish::Staging;
use super::sweep::{LEASE_STEM, MANIFEST_STEM, sweep_stale, unique};
use super::vfs::Vfs;
use crate::error::{CacheError, Result};
use crate::format::generation::{Operation, folder, placed};
use crate::format::manifest::Manifest;
use crate::format::names;
use crate::types::Io;

/// The right to change one cache, and the generation to start from. Dropped, it changes nothing.
#[derive(Debug)]
pub struct Change {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    cache: Arc<Cache>,
    next: u64,
    /// Given on to the stage of the next generation.
    lock: Option<CacheLock>,
}

impl Change {
    /// Takes the lock of the cache at `path`, removes what dead maintainers of it left, and opens the wanted generation.
    ///
    /// # Errors
    /// [`CacheError::Locked`] naming who writes or maintains the cache, [`CacheError::NotFound`] without a cache, and those
    /// of [`Cache::open_generation`].
    pub fn begin(vfs: Arc<dyn Vfs>, path: &Path, wanted: Wanted) -> Result<Self> {
        Self::under(vfs, path, wanted, &mut |base, name| {
            CacheLock::try_acquire(base, name)
        })
    }

    /// As [`Change::begin`], but waits for whoever has the lock, calling `interrupt` at least every 50 ms; its error ends the
    /// waiting and is returned.
    ///
    /// # Errors
    /// As [`Change::begin`], and what `interrupt` returns.
    pub fn begin_waiting(
        vfs: Arc<dyn Vfs>,
        path: &Path,
        wanted: Wanted,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        Self::under(vfs, path, wanted, &mut |base, name| {
            CacheLock::acquire(base, name, &mut |_| interrupt())
        })
    }

    fn under(
        vfs: Arc<dyn Vfs>,
        path: &Path,
        wanted: Wanted,
        acquire: &mut dyn FnMut(&Path, &str) -> Result<CacheLock>,
    ) -> Result<Self> {
        // Without a cache there is nothing to lock either.
        drop(generations::open_folder(path)?);
        let path =
            std::fs::canonicalize(path).map_err(|error| CacheError::io("resolve", path, error))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(base), Some(name)) = (path.parent(), name) else {
            return Err(CacheError::NotFound {
                path,
                reason: "the root of a file system cannot be one".to_owned(),
            });
        };
        let lock = acquire(base, name)?;
        if lock.has_remains() {
            sweep_stale(&*vfs, base, name, &lock)?;
        }
        let cache = Cache::open_generation(&path, Arc::new(FilePool::new(Io::Auto)), wanted)?;
        let newest = generations::list(&path)?.last().copied().unwrap_or(0);
        let newest = newest.max(cache.manifest().number());
        Ok(Self {
            next: newest
                .checked_add(1)
                .ok_or_else(|| CacheError::limit("generations", newest, u64::MAX - 1))?,
            vfs,
            cache: Arc::new(cache),
            lock: Some(lock),
            path,
        })
    }

    /// The cache in the generation to start from.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The same, to be kept.
    pub fn shared(&self) -> Arc<Cache> {
        Arc::clone(&self.cache)
    }

    /// The cache directory, resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system.
    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.vfs
    }

    /// Number of the generation to be made.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The manifest of the next generation as if nothing were different in it.
    pub fn successor(&self, operation: Operation) -> Manifest {
        self.cache
            .manifest()
            .successor(self.next, operation, now_unix())
    }

    /// Where the files of the next generation are written; once.
    ///
    /// # Errors
    /// As [`Staging::begin`].
    pub fn stage(&mut self) -> Result<Staging> {
        let lock = self
            .lock
            .take()
            .ok_or_else(|| CacheError::internal("a generation was staged twice"))?;
        let base = self.path.join(names::GENERATIONS);
        let staged =
            Staging::begin_generation(Arc::clone(&self.vfs), &base, &folder(self.next), lock);
        staged.map_err(|error| self.lost(error))
    }

    /// Makes the staged generation the newest one. Old readers are refused from now on: they know no later generations,
    /// and would give out what was deleted.
    ///
    /// # Errors
    /// As [`Staging::publish`]; [`CacheError::Locked`] if another maintainer was first where nothing can be locked.
    pub fn publish(self, staging: Staging, manifest: &Manifest) -> Result<()> {
        let text = manifest.to_bytes()?;
        raise_root(&*self.vfs, staging.lock(), &self.path, manifest)?;
        match staging.publish(names::MANIFEST, &text) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Puts a manifest in the place of that of its generation, durably and in one step.
    ///
    /// # Errors
    /// [`CacheError::Io`]; the old one is still in place then, or the new one but perhaps not durably.
    pub fn replace_manifest(&self, manifest: &Manifest) -> Result<()> {
        replace_manifest(&*self.vfs, self.lock()?, &self.path, manifest)
    }

    /// Writes a file of its own name and this extension into `folder`, whole or not at all, durably but for the name of the
    /// folder itself.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn write_new(&self, folder: &Path, extension: &str, bytes: &[u8]) -> Result<PathBuf> {
        let name = unique();
        let aside = folder.join(format!(".{LEASE_STEM}.tmp-{name}"));
        let target = folder.join(format!("{name}{extension}"));
        let fault = |action, path: &Path| {
            let path = path.to_path_buf();
            move |error| CacheError::io(action, &path, error)
        };
        put(&*self.vfs, self.lock()?, &aside, bytes, &mut || {
            let named = self.vfs.rename_noreplace(&aside, &target);
            named.map_err(fault("create", &target))
        })?;
        let synced = self.vfs.sync_dir(folder);
        synced.map_err(fault("sync directory", folder))?;
        Ok(target)
    }

    fn lock(&self) -> Result<&CacheLock> {
        let lock = self.lock.as_ref();
        lock.ok_or_else(|| CacheError::internal("a change beside the generation that it stages"))
    }

    /// A number that is taken: somebody else changed the cache.
    fn lost(&self, error: CacheError) -> CacheError {
        match error {
            CacheError::Exists { .. } => CacheError::Locked {
                path: self.path.clone(),
                holder: format!(
                    "another maintainer, which has published generation {}; try again",
                    self.next
                ),
            },
            error => error,
        }
    }
}

/// Raises the format version of the root manifest to the first that may have later generations. Where a repair found that
/// it cannot be trusted, it is replaced by a mark that generation 0 is gone: without one there is no cache.
fn raise_root(vfs: &dyn Vfs, lock: &CacheLock, path: &Path, next: &Manifest) -> Result<()> {
    let folder = generations::open_folder(path)?;
    let is_repair = next
        .generation
        .as_ref()
        .is_some_and(|own| own.operation == Operation::Repair);
    let raised = match generations::read_manifest(&folder, path, 0) {
        Ok(root) if root.format_version >= GENERATIONS_FORMAT => return Ok(()),
        Ok(root) => Manifest {
            format_version: GENERATIONS_FORMAT,
            ..root
        },
        Err(CacheError::Io {
            action,
            path,
            source,
        }) => {
            return Err(CacheError::Io {
                action,
                path,
                source,
            });
        }
        Err(_) if is_repair => next.root_mark(),
        Err(fault) => return Err(fault),
    };
    replace_manifest(vfs, lock, path, &raised)
}

/// As [`Change::replace_manifest`].
fn replace_manifest(
    vfs: &dyn Vfs,
    lock: &CacheLock,
    path: &Path,
    manifest: &Manifest,
) -> Result<()> {
    let target = path.join(placed(manifest.number(), names::MANIFEST));
    let aside = path.join(format!(".{MANIFEST_STEM}.tmp-{}", unique()));
    let text = manifest.to_bytes()?;
    put(vfs, lock, &aside, &text, &mut || {
        vfs.replace_file(&aside, &target)
            .map_err(|error| CacheError::io("replace", &target, error))
    })?;
    let changed = [Some(path), target.parent().filter(|parent| *parent != path)];
    for directory in changed.into_iter().flatten() {
        vfs.sync_dir(directory)
            .map_err(|error| CacheError::io("sync directory", directory, error))?;
    }
    Ok(())
}

/// Writes a file under the name `aside` and has it put where it belongs. After an error it is gone, or the lock knows that it
/// may not be.
fn put(
    vfs: &dyn Vfs,
    lock: &CacheLock,
    aside: &Path,
    bytes: &[u8],
    place: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let done = write_whole(vfs, aside, bytes).and_then(|()| place());
    if done.is_err()
        && let Err(error) = vfs.remove_file(aside)
        && error.kind() != ErrorKind::NotFound
    {
        lock.set_remains(true);
    }
    done
}

fn write_whole(vfs: &dyn Vfs, path: &Path, bytes: &[u8]) -> Result<()> {
    let fault = |action| move |error| CacheError::io(action, path, error);
    let mut file = vfs.create_file(path).map_err(fault("create file"))?;
    file.write_all(bytes).map_err(fault("write"))?;
    file.sync().map_err(fault("sync"))
}

/// The time, in seconds since 1970.
pub fn now_unix() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
