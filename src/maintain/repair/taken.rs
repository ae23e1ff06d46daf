//! Which samples were deleted from a damaged cache: all of them are known, or nothing is repaired.

use std::path::{Path, PathBuf};

use crate::error::{CacheError, Result};
use crate::format::checksum::Sha256Digest;
use crate::format::generation::{DeletedPart, decode_deleted, encode_deleted, placed};
use crate::format::manifest::Manifest;
use crate::format::names::DELETED;

/// The deleted ids of a cache.
#[derive(Debug, Default)]
pub struct Taken {
    /// All that are gone, in ascending order.
    pub gone: Vec<u64>,
    /// Those of them that sound parts name.
    pub told: Vec<u64>,
    /// The files that can be trusted.
    pub sound_parts: Vec<DeletedPart>,
    /// The files that cannot.
    pub bad_parts: Vec<PathBuf>,
}

impl Taken {
    /// Reads the files of deleted ids. Where one is damaged, its ids are taken from what is left of it, or are those whose
    /// record a compaction left behind, which `is_left_behind` tells.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] if that does not give all of them: a sample that somebody wanted gone must not come back.
    pub fn look(
        path: &Path,
        manifest: &Manifest,
        is_left_behind: impl Fn(u64) -> bool,
    ) -> Result<Self> {
        let mut found = Self::default();
        for part in manifest.deleted_parts() {
            let file = path.join(placed(part.generation, DELETED));
            let bytes = std::fs::read(&file).unwrap_or_default();
            match decode_deleted(&bytes) {
                Ok(ids) if Sha256Digest::of(&bytes) == part.sha256 => {
                    found.told.extend(ids);
                    found.sound_parts.push(*part);
                }
                _ => {
                    found.gone.extend(without_checksum(part, &bytes));
                    found.bad_parts.push(file);
                }
            }
        }
        found.gone.extend(&found.told);
        let Some(file) = found.bad_parts.first() else {
            found.gone.sort_unstable();
            return Ok(found);
        };
        let left_behind = (0..manifest.sample_ids()).filter(|id| is_left_behind(*id));
        found.gone.extend(left_behind);
        found.gone.sort_unstable();
        found.gone.dedup();
        let due = manifest.sample_ids().saturating_sub(manifest.sample_count);
        if found.gone.len() as u64 != due {
            let known = format!("those of {}", found.gone.len());
            return Err(unknown(
                file,
                format!("the ids of all {due} deleted samples"),
                known,
            ));
        }
        Ok(found)
    }
}

/// The error where deleted samples might come back.
pub fn unknown(file: &Path, expected: impl ToString, found: impl std::fmt::Display) -> CacheError {
    CacheError::damaged(
        file,
        "repair",
        expected,
        format!(
            "{found}, so nothing was changed, lest deleted samples come back; restore this file from a copy, or open an \
             earlier generation and write what may stay to a new cache"
        ),
    )
}

/// The ids of a file of which nothing but the checksum behind them is damaged.
fn without_checksum(part: &DeletedPart, bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks::<8>().0.iter();
    let ids = words.map(|word| u64::from_le_bytes(*word));
    let ids: Vec<u64> = ids
        .take(usize::try_from(part.count).unwrap_or(usize::MAX))
        .collect();
    match Sha256Digest::of(&encode_deleted(&ids)) == part.sha256 {
        true => ids,
        false => Vec::new(),
    }
}
