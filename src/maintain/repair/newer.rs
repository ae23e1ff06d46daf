//! Generations newer than the last one whose manifest can be trusted: what of them must not be forgotten.

use std::path::Path;

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
    /// Ids that they took out, as far as their list can be trusted by itself.
    pub deleted: Vec<u64>,
    /// One more than the highest id that they may have given.
    pub sample_ids: u64,
}

impl Newer {
    /// Looks at the generations after number `last_good`, which had given `sample_ids` ids.
    pub fn look(folder: &Folder, path: &Path, last_good: u64, sample_ids: u64) -> Self {
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
            let bytes = std::fs::read(path.join(placed(number, DELETED))).unwrap_or_default();
            newer
                .deleted
                .extend(decode_deleted(&bytes).unwrap_or_default());
            // An id that was given must not be given again, and an index has a row for each.
            let index = std::fs::metadata(path.join(placed(number, INDEX)));
            let given = index.map_or(0, |found| found.len() / ROW_BYTES);
            newer.sample_ids = newer.sample_ids.max(given.min(CACHE_SAMPLES_MAX));
        }
        let sample_ids = newer.sample_ids;
        newer.deleted.retain(|id| *id < sample_ids);
        newer
    }
}
