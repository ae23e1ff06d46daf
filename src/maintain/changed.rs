//! What a change of a cache came to.

use std::path::PathBuf;

use crate::format::generation::Operation;
use crate::store::change::Change;

/// What a change of a cache came to.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The cache directory, resolved.
    pub path: PathBuf,
    /// What was done.
    pub operation: Operation,
    /// The newest generation now.
    pub generation: u64,
    /// The newest generation before; the same if there was nothing to do.
    pub previous: u64,
    /// Samples now.
    pub samples: u64,
    /// Samples that were added.
    pub added: u64,
    /// Samples that were taken out.
    pub deleted: u64,
    /// Bytes of the files that were written.
    pub bytes_written: u64,
}

impl Changed {
    /// Nothing was to be done.
    pub fn nothing(change: &Change, operation: Operation) -> Self {
        let manifest = change.cache().manifest();
        Self {
            path: change.path().to_path_buf(),
            operation,
            generation: manifest.number(),
            previous: manifest.number(),
            samples: manifest.sample_count,
            added: 0,
            deleted: 0,
            bytes_written: 0,
        }
    }
}
