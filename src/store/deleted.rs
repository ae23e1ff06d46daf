//! The ids that one generation took out: read and checked.

use std::path::Path;

use super::file::{FileReader, Purpose};
use super::verify::check_sha256;
use crate::error::{CacheError, Result};
use crate::format::generation::{DeletedPart, decode_deleted, deleted_byte_len, placed};
use crate::format::names;
use crate::types::Io;

/// The ids in the file that `part` describes, of the cache at `cache`.
///
/// # Errors
/// [`CacheError::DamagedFile`] for any other file.
pub fn read(cache: &Path, part: &DeletedPart, io: Io) -> Result<Vec<u64>> {
    let path = cache.join(placed(part.generation, names::DELETED));
    let byte_len = deleted_byte_len(part.count)
        .ok_or_else(|| CacheError::limit("deleted ids", part.count, u64::MAX / 8 - 1))?;
    let file = FileReader::open(&path, byte_len, io, Purpose::Table)?;
    check_sha256(&file, part.sha256, &mut || Ok(()))?;
    let mut scratch = Vec::new();
    decode_deleted(file.view(0, byte_len, &mut scratch)?)
        .map_err(|found| CacheError::damaged(&path, "content of the file", "deleted ids", found))
}
