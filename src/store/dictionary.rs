//! The zstd dictionary of an open cache: read, checked and digested once, by whoever first needs it.

use std::path::{Path, PathBuf};

use super::file::{FileReader, Purpose};
use super::verify::check_sha256;
use crate::error::{CacheError, Result};
use crate::format::compression::Dictionary;
use crate::format::manifest::DictionaryEntry;
use crate::sync::{Mutex, OnceLock, lock};
use crate::types::Io;

/// The place of a dictionary that may not have been needed yet.
#[derive(Debug, Default)]
pub(super) struct DictionarySlot {
    digested: OnceLock<Dictionary>,
    /// Held by the one who digests it.
    digesting: Mutex<()>,
}

impl DictionarySlot {
    /// The dictionary in the file that `path` gives, as `entry` describes it.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] for another file, or for one that is no dictionary.
    pub fn get(
        &self,
        path: &dyn Fn() -> PathBuf,
        io: Io,
        entry: &DictionaryEntry,
    ) -> Result<&Dictionary> {
        if let Some(dictionary) = self.digested.get() {
            return Ok(dictionary);
        }
        let _digesting = lock(&self.digesting);
        if let Some(dictionary) = self.digested.get() {
            return Ok(dictionary);
        }
        let dictionary = digest(&path(), io, entry)?;
        Ok(self.digested.get_or_init(|| dictionary))
    }
}

fn digest(path: &Path, io: Io, entry: &DictionaryEntry) -> Result<Dictionary> {
    Dictionary::digest(&read(path, io, entry)?)
        .map_err(|found| CacheError::damaged(path, "content of the file", "a dictionary", found))
}

/// The bytes of the dictionary at `path`, which `entry` describes.
///
/// # Errors
/// [`CacheError::DamagedFile`] for another file.
pub(super) fn read(path: &Path, io: Io, entry: &DictionaryEntry) -> Result<Vec<u8>> {
    let file = FileReader::open(path, entry.byte_len, io, Purpose::Table)?;
    check_sha256(&file, entry.sha256, &mut || Ok(()))?;
    let mut scratch = Vec::new();
    Ok(file.view(0, entry.byte_len, &mut scratch)?.to_vec())
}
