//! Leases: a generation that a vacuum must leave alone until a time.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{CacheError, Result};
use crate::format::names::{GENERATIONS, LEASES};
use crate::limits::LEASE_BYTES_MAX;
use crate::store::change::{Change, now_unix};
use crate::store::vfs::{Vfs, create_dirs, sync_name_of};

/// A lease as it stands in its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The generation that is kept.
    pub generation: u64,
    /// Until when, in seconds since 1970.
    pub expires_unix: u64,
    /// Who wants it, in words.
    pub holder: String,
}

impl Lease {
    /// Whether its time is over.
    pub fn is_expired(&self) -> bool {
        self.expires_unix <= now_unix()
    }
}

/// Keeps the generation from which `change` starts; returns the file that has to be removed to release it.
///
/// # Errors
/// [`CacheError::Io`] where the cache cannot be written to.
pub fn grant(change: &Change, lease: &Lease) -> Result<PathBuf> {
    let vfs = &**change.vfs();
    let folder = change.path().join(GENERATIONS).join(LEASES);
    create_dirs(vfs, &folder)?;
    let text = serde_json::to_vec(lease)
        .map_err(|error| CacheError::internal(format!("a lease is no JSON: {error}")))?;
    let file = change.write_new(&folder, ".json", &text)?;
    sync_name_of(vfs, &folder)?;
    Ok(file)
}

/// Ends a lease; one that is gone already is no error.
///
/// # Errors
/// [`CacheError::Io`] if its file cannot be removed.
pub fn release(vfs: &dyn Vfs, file: &Path) -> Result<()> {
    match vfs.remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CacheError::io("remove lease", file, error))
        }
        _ => Ok(()),
    }
}

/// The leases of the cache at `path`, with their files.
///
/// # Errors
/// [`CacheError::DamagedFile`] for one that cannot be understood, [`CacheError::Io`] for one that cannot be read.
pub fn list(vfs: &dyn Vfs, path: &Path) -> Result<Vec<(PathBuf, Lease)>> {
    let folder = path.join(GENERATIONS).join(LEASES);
    let fault = |action| move |path: &Path, error| CacheError::io(action, path, error);
    let is_there = vfs.exists(&folder);
    if !is_there.map_err(|error| fault("look for")(&folder, error))? {
        return Ok(Vec::new());
    }
    let names = vfs.list(&folder);
    let names = names.map_err(|error| fault("list directory")(&folder, error))?;
    let mut leases = Vec::new();
    for name in names {
        // What is hidden was never granted.
        if name.to_string_lossy().starts_with('.') {
            continue;
        }
        let file = folder.join(&name);
        let opened = vfs.open_file(&file);
        let opened = match opened {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            opened => opened.map_err(|error| fault("open")(&file, error))?,
        };
        let mut text = Vec::new();
        let read = opened.take(LEASE_BYTES_MAX).read_to_end(&mut text);
        read.map_err(|error| fault("read")(&file, error))?;
        let lease = serde_json::from_slice(&text).map_err(|error| {
            CacheError::damaged(&file, "lease", "a generation, a time and a holder", error)
        })?;
        leases.push((file, lease));
    }
    Ok(leases)
}
