//! Generations newer than the last one whose manifest can be trusted: what of them must not be forgotten.

use std::io::ErrorKind;
use std::path::Path;

use super::taken::unknown;
use crate::error::{CacheError, Result};
use crate::format::generation::{decode_deleted, placed};
use crate::format::index::ROW_BYTES;
use crate::format::names::{DELETED, INDEX};
use crate::limits::CACHE_SAMPLES_MAX;
use crate::store::folder::Folder;
use crate::store::generations::{self, read_manifest};

/// What is known of generations whose manifest cannot be trusted.
#[derive(Clone, Debug, Default)]
pub struct Newer {
    /// The highest number that was given.
    pub newest: u64,
    /// Their numbers, and what is wrong with each.
    pub lost: Vec<(u64, String)>,
    /// Ids that they took out.
    pub deleted: Vec<u64>,
    /// One more than the highest id that they may have given.
    pub sample_ids: u64,
}

impl Newer {
    /// Looks at the generations after number `last_good`, which had given `sample_ids` ids.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] or [`CacheError::Io`] if one took samples out and does not tell which.
    pub fn look(folder: &Folder, path: &Path, last_good: u64, sample_ids: u64) -> Result<Self> {
        let numbers = generations::list(path).unwrap_or_default();
        let mut newer = Self {
            newest: last_good,
            sample_ids,
            ..Self::default()
        };
        for number in numbers.into_iter().filter(|number| *number > last_good) {
            newer.newest = number;
            if let Err(fault) = read_manifest(folder, path, number) {
                newer.lost.push((number, fault.to_string()));
            }
            let file = path.join(placed(number, DELETED));
            match std::fs::read(&file) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(CacheError::io("read", &file, error)),
                Ok(bytes) => {
                    let ids = decode_deleted(&bytes);
                    let ids =
                        ids.map_err(|found| unknown(&file, "the ids of deleted samples", found))?;
                    newer.deleted.extend(ids);
                }
            }
            // An id that was given must not be given again, and an index has a row for each.
            let index = std::fs::metadata(path.join(placed(number, INDEX)));
            let given = index.map_or(0, |found| found.len() / ROW_BYTES);
            newer.sample_ids = newer.sample_ids.max(given.min(CACHE_SAMPLES_MAX));
        }
        let sample_ids = newer.sample_ids;
        newer.deleted.retain(|id| *id < sample_ids);
        Ok(newer)
    }
}
