//! What a cache holds already when samples are written to it: nothing, or the generation they are appended to.

use std::sync::Arc;

use crate::error::Result;
use crate::format::checksum::Sha256Digest;
use crate::store::cache::Cache;
use crate::store::file::FileReader;
use crate::store::outflow::output::OutFile;

/// What stands before the first sample written.
#[derive(Debug)]
pub(super) struct Before {
    /// Sample ids given so far.
    pub ids: u64,
    /// Shards so far.
    pub shards: u64,
    /// Whether records have checksums.
    pub has_checksums: bool,
    /// The index so far.
    pub index: Option<Carried>,
    /// The record checksums so far.
    pub checksums: Option<Carried>,
}

/// A file whose bytes are to stand before others.
#[derive(Debug)]
pub(super) struct Carried {
    file: Arc<FileReader>,
    sha256: Sha256Digest,
}

impl Before {
    /// Nothing: a new cache.
    pub fn nothing() -> Self {
        Self {
            ids: 0,
            shards: 0,
            has_checksums: true,
            index: None,
            checksums: None,
        }
    }

    /// All of a cache.
    ///
    /// # Errors
    /// Those of opening its index and its record checksums.
    pub fn of(cache: &Cache) -> Result<Self> {
        let manifest = cache.manifest();
        let carried = |(file, sha256)| Carried { file, sha256 };
        let checksums = manifest.record_checksums.as_ref().map(|entry| entry.sha256);
        Ok(Self {
            ids: manifest.sample_ids(),
            shards: manifest.shards.len() as u64,
            has_checksums: checksums.is_some(),
            index: Some(carried((cache.index()?, manifest.index_sha256))),
            checksums: cache.checksums()?.zip(checksums).map(carried),
        })
    }
}

impl Carried {
    /// Copies the file, piece by piece, and has the copy compared with the hash of the file.
    pub fn copy_to(self, out: &mut OutFile) -> Result<()> {
        self.file.for_each_piece(|piece| out.append(piece))?;
        out.compare(self.sha256, self.file.path())
    }
}
