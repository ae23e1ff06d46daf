//! What a reader is told, and its ranges.

use crate::error::{CacheError, Result};
use crate::limits::{PREFETCH_MAX, THREADS_MAX};
use crate::types::{Io, OnCorrupt, Verify};

/// Options of a reader, checked by [`ReaderOptions::check`].
#[derive(Clone, Copy, Debug)]
pub struct ReaderOptions {
    /// Most samples in flight: asked for and not yet handed out.
    pub prefetch_size: usize,
    /// Worker threads.
    pub num_workers: usize,
    /// What is compared with its checksum.
    pub verify: Verify,
    /// [`Io::Pread`] if files of any cache are read that way; each cache knows how its own are.
    pub io: Io,
    /// Most bytes of shards that batches cause to be read ahead as a whole.
    pub populate_bytes: u64,
    /// What becomes of damaged samples.
    pub on_corrupt: OnCorrupt,
}

impl ReaderOptions {
    /// # Errors
    /// [`CacheError::Option`] naming the option, its range and the value.
    pub fn check(&self) -> Result<()> {
        for (name, value, limit) in [
            ("prefetch_size", self.prefetch_size, PREFETCH_MAX),
            ("num_workers", self.num_workers, THREADS_MAX),
        ] {
            if value == 0 || value > limit {
                return Err(CacheError::option(name, format!("1 to {limit}"), value));
            }
        }
        Ok(())
    }
}
