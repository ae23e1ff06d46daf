//! Where the records of a gather lie: index rows looked up, and files opened that are not yet.

use super::opened::{NONE, ShardPlace};
use super::{Files, OpenTables};
use crate::error::{CacheError, Result};
use crate::format::compression::Algorithm;
use crate::format::index::IndexRow;
use crate::reader::files::Tables;
use crate::types::SampleRef;

/// Index rows that are asked for ahead of the one being read.
const AHEAD: usize = 64;

/// One record, found.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// First byte, in the mapped shard or among the held records.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
    /// Row in its cache.
    pub sample: u64,
    /// Its cache among those open here.
    pub(super) table: u32,
    /// Its shard among those open here, or [`NONE`] if it is held.
    pub(super) shard: u32,
    /// How its payload is stored.
    pub algorithm: Algorithm,
    /// Whether its checksum need not be looked at any more.
    pub(super) is_checked: bool,
}

impl Located {
    /// Whether both lie in the same mapped shard.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.shard == other.shard && self.shard != NONE
    }
}

impl Files {
    /// Appends where each sample's record lies.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] for a sample that its cache does not have; [`CacheError::DamagedRecord`] or
    /// [`CacheError::DamagedFile`] for an index row or file that cannot be; [`CacheError::Io`] if reading fails.
    pub fn locate(&mut self, samples: &[SampleRef], found: &mut Vec<Located>) -> Result<()> {
        found.reserve(samples.len());
        for (position, sample) in samples.iter().enumerate() {
            if let Some(later) = samples.get(position + AHEAD) {
                self.prefetch_index(*later);
            }
            match self.locate_open(*sample) {
                Some(at) => found.push(at),
                None => found.push(self.locate_one(*sample)?),
            }
        }
        Ok(())
    }

    /// Where a sample's record lies, if its cache and shard are open and all is well; otherwise [`Files::locate`] finds out
    /// what is the matter.
    #[inline]
    pub fn locate_open(&self, sample: SampleRef) -> Option<Located> {
        let opened = self.opened(sample.cache)?;
        let (row, shard) = opened.row(sample.sample)?;
        Some(Located {
            start: row.offset as usize,
            len: row.byte_len as usize,
            sample: sample.sample,
            table: opened.table,
            shard: shard.slot,
            algorithm: shard.algorithm,
            is_checked: opened.checked.holds(sample.sample),
        })
    }

    fn prefetch_index(&self, sample: SampleRef) {
        if let Some(opened) = self.opened(sample.cache) {
            opened.prefetch(sample.sample);
        }
    }

    fn locate_one(&mut self, sample: SampleRef) -> Result<Located> {
        let table = match self.by_cache.get(sample.cache as usize) {
            Some(&NONE) => self.open_tables(sample.cache)?,
            Some(&slot) => slot,
            None => {
                return Err(CacheError::OutOfRange {
                    index: i128::from(sample.cache),
                    len: self.caches.len() as u64,
                });
            }
        };
        let tables = self
            .tables
            .get_mut(table as usize)
            .ok_or_else(|| CacheError::internal("a cache that was not opened"))?;
        let files = match &mut tables.files {
            Some(files) => files,
            none => none.insert(Tables::open(&tables.cache)?),
        };
        let row = tables.cache.index_row(&files.index, sample.sample)?;
        let algorithm = tables.cache.algorithm(row.shard);
        let is_checked = tables.cache.checked(self.verify).holds(sample.sample);
        let number = row.shard as usize;
        let shard = match tables.shards.get(number) {
            Some(ShardPlace { slot: NONE, .. }) => self.open_shard(table, row)?,
            Some(place) => place.slot,
            None => return Err(CacheError::internal("an index row was not checked")),
        };
        let start = match shard {
            NONE => self.hold(table, row, sample.sample)?,
            _ => address(row.offset)?,
        };
        Ok(Located {
            start,
            len: address(row.byte_len)?,
            sample: sample.sample,
            table,
            shard,
            algorithm,
            // A record that is held was checked when it was copied.
            is_checked: is_checked || shard == NONE,
        })
    }

    /// Copies a record out of its file and compares it with its checksum, so that the file need not stay open.
    fn hold(&mut self, table: u32, row: IndexRow, sample: u64) -> Result<usize> {
        let tables = self.tables.get_mut(table as usize);
        let Some(OpenTables {
            cache,
            files: slot @ Some(_),
            ..
        }) = tables
        else {
            return Err(CacheError::internal("a cache that was not opened"));
        };
        let file = cache.shard(row.shard)?;
        let record = file.view(row.offset, row.byte_len, &mut self.scratch)?;
        if let Some(tables) = slot {
            cache.verify_record(tables.beside(&file), row, sample, record, self.verify)?;
            if tables.index.holds_descriptor() {
                *slot = None;
            }
        }
        let start = self.held.len();
        self.held.extend_from_slice(record);
        Ok(start)
    }
}

fn address(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| CacheError::internal("a record beyond memory"))
}
