//! One published cache, opened: its manifest in memory, everything else read when first needed.

mod files;
mod records;
mod samples;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::files::Files;
use self::samples::Samples;
use super::folder::Identity;
use super::generations::{self, Wanted};
use super::pool::FilePool;
use super::stride::Stride;
use super::verify::Verified;
use crate::error::Result;
use crate::format::manifest::Manifest;
use crate::types::Io;

/// An open cache. Shared by every reader of the process, so that a record is verified once, not once per reader.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    identity: Identity,
    manifest: Manifest,
    passed_over: Option<String>,
    io: Io,
    files: Files,
    stride: Stride,
    verified: Verified,
    samples: Samples,
}

impl Cache {
    /// Opens the newest generation of the cache at `path`: reads the manifest and checks that every file is there with its
    /// length.
    ///
    /// Its files are read as `pool` says, and kept open by it.
    ///
    /// # Errors
    /// As [`generations::choose`]: without a manifest, for a bad one, for a file that is missing or has another length.
    pub fn open(path: &Path, pool: Arc<FilePool>) -> Result<Self> {
        Self::open_generation(path, pool, Wanted::Newest)
    }

    /// As [`Cache::open`], the wanted generation.
    ///
    /// # Errors
    /// As [`generations::choose`].
    pub fn open_generation(path: &Path, pool: Arc<FilePool>, wanted: Wanted) -> Result<Self> {
        let folder = generations::open_folder(path)?;
        let chosen = generations::choose(&folder, path, wanted)?;
        let identity = folder.identity()?;
        let io = pool.engine(path, &identity);
        Ok(Self::closed(
            path.to_path_buf(),
            identity,
            chosen.manifest,
            chosen.passed_over,
            io,
            pool,
        ))
    }

    /// The same cache with nothing open and nothing locked. Reads nothing.
    pub fn reopened(&self, pool: Arc<FilePool>) -> Self {
        Self::closed(
            self.path.clone(),
            self.identity.clone(),
            self.manifest.clone(),
            self.passed_over.clone(),
            self.io,
            pool,
        )
    }

    fn closed(
        path: PathBuf,
        identity: Identity,
        manifest: Manifest,
        passed_over: Option<String>,
        io: Io,
        pool: Arc<FilePool>,
    ) -> Self {
        Self {
            path,
            identity,
            files: Files::closed(pool, manifest.shards.len()),
            manifest,
            passed_over,
            io,
            stride: Stride::default(),
            verified: Verified::default(),
            samples: Samples::default(),
        }
    }

    /// The cache directory as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells the cache directory from any other, whatever path leads to it.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How its files are read; resolved.
    pub fn io(&self) -> Io {
        self.io
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Why a newer generation than this was passed over.
    pub fn passed_over(&self) -> Option<&str> {
        self.passed_over.as_deref()
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.manifest.sample_count
    }

    /// Whether the cache has no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of sample ids ever given: every sample has one below it, and some may be deleted.
    pub fn sample_ids(&self) -> u64 {
        self.manifest.sample_ids()
    }

    /// Whether samples were taken out of the cache.
    pub fn has_deleted(&self) -> bool {
        !self.manifest.deleted_parts().is_empty()
    }
}

/// Reads and checks the manifest of the newest generation of the cache at `path`.
///
/// # Errors
/// As [`generations::choose`].
pub fn read_manifest(path: &Path) -> Result<Manifest> {
    let folder = generations::open_folder(path)?;
    generations::choose(&folder, path, Wanted::Newest).map(|chosen| chosen.manifest)
}
