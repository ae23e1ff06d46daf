//! Records that were found: their bytes, verified, and what else is known of them.

use std::path::PathBuf;

use super::Files;
use super::locate::Located;
use super::opened::NONE;
use crate::error::{CacheError, Result};
use crate::format::compression::Dictionary;
use crate::format::index::IndexRow;
use crate::store::cache::Cache;
use crate::store::file::FileReader;

impl Files {
    /// The bytes of a record.
    #[inline]
    pub fn bytes(&self, at: &Located) -> Option<&[u8]> {
        let memory = match at.shard {
            NONE => self.held.as_slice(),
            slot => self.shards.get(slot as usize)?.file.memory()?,
        };
        memory.get(at.start..at.start.checked_add(at.len)?)
    }

    /// The file of a record that was not copied out of it.
    pub fn file(&self, at: &Located) -> Option<&FileReader> {
        let shard = self.shards.get(at.shard as usize)?;
        Some(&shard.file)
    }

    /// The bytes of a record, compared with their checksum as often as asked for.
    ///
    /// # Errors
    /// As [`Cache::verify_record`].
    #[inline]
    pub fn record(&self, at: &Located) -> Result<&[u8]> {
        let record = self
            .bytes(at)
            .ok_or_else(|| CacheError::internal("a located record lies outside its file"))?;
        if let (false, Some(shard)) = (at.is_checked, self.shards.get(at.shard as usize)) {
            let tables = self.tables(at.table)?;
            let files = tables
                .files
                .as_ref()
                .ok_or_else(|| CacheError::internal("a mapped cache without its tables"))?;
            let row = IndexRow {
                shard: shard.number,
                offset: at.start as u64,
                byte_len: at.len as u64,
            };
            tables.cache.verify_record(
                files.beside(&shard.file),
                row,
                at.sample,
                record,
                self.verify,
            )?;
        }
        Ok(record)
    }

    /// Whether copying a record compared it with a checksum of its own.
    pub fn is_compared(&self, at: &Located) -> bool {
        let tables = self.tables.get(at.table as usize);
        !at.is_checked
            && tables.is_some_and(|tables| tables.cache.manifest().record_checksums.is_some())
    }

    /// What the payload of a record may have been compressed with.
    ///
    /// # Errors
    /// As [`Cache::dictionary`].
    pub fn dictionary(&self, at: &Located) -> Result<Option<&Dictionary>> {
        self.tables(at.table)?.cache.dictionary()
    }

    /// The error for a record that is not what the manifest describes.
    pub fn fault(&self, at: &Located, found: String) -> CacheError {
        let (path, offset) = match (self.shards.get(at.shard as usize), self.tables(at.table)) {
            (Some(shard), _) => (shard.file.path().to_path_buf(), at.start as u64),
            (None, Ok(tables)) => held_from(&tables.cache, at.sample),
            (None, Err(error)) => return error,
        };
        CacheError::DamagedRecord {
            path,
            sample_id: at.sample,
            offset,
            subject: "record".to_owned(),
            expected: "metadata and payload as the manifest describes them".to_owned(),
            found,
        }
    }
}

/// The file that a record was copied out of, and where it lies there; the folder of the cache if its index cannot be read
/// any more.
fn held_from(cache: &Cache, sample: u64) -> (PathBuf, u64) {
    let row = cache
        .index()
        .and_then(|index| cache.index_row(&index, sample));
    row.map_or_else(
        |_| (cache.path().to_path_buf(), 0),
        |row| (cache.shard_path(row.shard), row.offset),
    )
}
