//! Read-only mapping of a file that nobody changes while it is mapped.

#![expect(
    unsafe_code,
    reason = "mapping a file is only as safe as the file is constant"
)]

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::error::{CacheError, Result};

/// A mapped file.
#[derive(Debug)]
pub struct Map(Mmap);

impl Map {
    /// Maps the whole of `file`; `path` is for messages.
    pub fn new(file: &File, path: &Path) -> Result<Self> {
        // SAFETY: `Mmap::map` demands that the file is not changed or cut while the map lives. Files of a published
        // cache are never written again: a cache is replaced by renaming a whole directory and removed by unlinking,
        // and both leave mapped pages as they are. Damage from outside is what checksums are for.
        let map = unsafe { Mmap::map(file) };
        map.map(Self)
            .map_err(|error| CacheError::io("map", path, error))
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
