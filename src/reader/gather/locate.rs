//! Where the records of a gather lie: index rows looked up, files opened.

use std::sync::Arc;

use super::opened::{Even, Opened};
use crate::error::{CacheError, Result};
use crate::format::compression::{Algorithm, Dictionary};
use crate::format::index::{IndexRow, ROW_BYTES};
use crate::reader::files::Tables;
use crate::store::cache::Cache;
use crate::store::file::FileReader;
use crate::types::{SampleRef, Verify};

/// Mapped shards that one gatherer keeps open. Records of further ones are copied out of them at once.
const SHARDS_MAX: usize = 4096;
/// Index rows that are asked for ahead of the one being read.
const AHEAD: usize = 64;
/// No slot of a list.
pub(super) const NONE: u32 = u32::MAX;

/// One record, found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    /// First byte, in the mapped shard or among the held records.
    pub start: usize,
    /// Length in bytes.
    pub len: usize,
    /// Row in its cache.
    pub sample: u64,
    /// Its cache among those open here.
    table: u32,
    /// Its shard among those open here, or [`NONE`] if it is held.
    shard: u32,
    /// How its payload is stored.
    pub algorithm: Algorithm,
    /// Whether its checksum need not be looked at any more.
    is_checked: bool,
}

impl Located {
    /// Whether both lie in the same mapped shard.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.shard == other.shard && self.shard != NONE
    }
}

/// The tables of a cache that was asked for.
#[derive(Debug)]
struct OpenTables {
    cache: Arc<Cache>,
    /// Given up after each record where they take descriptors, of which a process has few.
    files: Option<Tables>,
    /// Where each shard of the cache is.
    shards: Box<[ShardPlace]>,
}

/// What locating a record needs to know of its shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardPlace {
    /// Its place among the open ones, or [`NONE`].
    pub slot: u32,
    pub algorithm: Algorithm,
    pub byte_len: u64,
}

/// A mapped shard.
#[derive(Debug)]
pub(super) struct OpenShard {
    number: u64,
    pub file: Arc<FileReader>,
}

/// Files that a gatherer has opened, and records copied out of files that are not mapped.
#[derive(Debug)]
pub(super) struct Files {
    caches: Arc<[Arc<Cache>]>,
    verify: Verify,
    /// For each cache its place among the open ones, or [`NONE`].
    by_cache: Box<[u32]>,
    tables: Vec<OpenTables>,
    shards: Vec<OpenShard>,
    held: Vec<u8>,
    scratch: Vec<u8>,
}

impl Files {
    pub fn new(caches: Arc<[Arc<Cache>]>, verify: Verify) -> Self {
        Self {
            by_cache: vec![NONE; caches.len()].into(),
            caches,
            verify,
            tables: Vec::new(),
            shards: Vec::new(),
            held: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Forgets held records and, if there are many, open files. Nothing located before may be read afterwards.
    pub fn begin(&mut self) {
        self.held.clear();
        if self.shards.len() >= SHARDS_MAX || self.tables.len() >= SHARDS_MAX {
            self.tables.clear();
            self.shards.clear();
            self.by_cache.fill(NONE);
        }
    }

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

    /// A cache whose index is open and in memory.
    #[inline]
    pub fn opened(&self, cache: u32) -> Option<Opened<'_>> {
        let table = *self.by_cache.get(cache as usize)?;
        let tables = self.tables.get(table as usize)?;
        let memory = tables.files.as_ref()?.index.memory()?;
        Some(Opened {
            files: &self.shards,
            table,
            index: memory.as_chunks::<{ ROW_BYTES as usize }>().0,
            shards: &tables.shards,
            checked: tables.cache.checked(self.verify),
        })
    }

    /// The records of the only cache, if they are known to be even and the shards are open; worth it for `rows` of them.
    pub fn even(&self, rows: usize) -> Option<Even<'_>> {
        let [cache] = &*self.caches else { return None };
        let runs = cache.stride().runs().filter(|runs| runs.len() <= rows)?;
        let shards = &self.tables.get(*self.by_cache.first()? as usize)?.shards;
        let len = runs.all().next()?.0.first.byte_len;
        let spans = runs.all().map(|(run, end)| {
            let shard = shards.get(usize::try_from(run.first.shard).ok()?)?;
            let bytes = (end - run.start).checked_mul(len)?;
            let end = run.first.offset.checked_add(bytes)?;
            let is_even = run.first.byte_len == len && end <= shard.byte_len;
            if !is_even || shard.algorithm != Algorithm::None {
                return None;
            }
            let memory = self.shards.get(shard.slot as usize)?.file.memory()?;
            let records = memory.get(run.first.offset as usize..end as usize)?;
            Some((run.start, records))
        });
        Some(Even {
            runs: spans.collect::<Option<_>>()?,
            len: usize::try_from(len).ok()?,
            checked: cache.checked(self.verify),
        })
    }

    /// Looks whether records of one length lie one behind the other in the cache of `sample`, for so many rows more.
    pub fn learn(&self, sample: SampleRef, rows: usize) {
        let table = self.by_cache.get(sample.cache as usize);
        let tables = table.and_then(|table| self.tables.get(*table as usize));
        let opened = self.opened(sample.cache);
        if let (Some(tables), Some(opened)) = (tables, opened) {
            tables.cache.stride().learn(opened.index, rows);
        }
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

    fn tables(&self, slot: u32) -> Result<&OpenTables> {
        let tables = self.tables.get(slot as usize);
        tables.ok_or_else(|| CacheError::internal("a cache that was not opened"))
    }

    fn open_tables(&mut self, number: u32) -> Result<u32> {
        let position = number as usize;
        let cache = self.caches.get(position);
        let (Some(cache), Some(place)) = (cache, self.by_cache.get_mut(position)) else {
            return Err(CacheError::internal("a cache beyond the last"));
        };
        let shards = cache.manifest().shards.iter().map(|shard| ShardPlace {
            slot: NONE,
            algorithm: shard.compression.algo,
            byte_len: shard.byte_len,
        });
        self.tables.push(OpenTables {
            files: None,
            cache: Arc::clone(cache),
            shards: shards.collect(),
        });
        *place = self.tables.len() as u32 - 1;
        Ok(*place)
    }

    /// The slot of a shard that is mapped, or [`NONE`] for one that is not or for which there is no room.
    fn open_shard(&mut self, table: u32, row: IndexRow) -> Result<u32> {
        let slot = self.shards.len();
        let tables = self.tables.get_mut(table as usize);
        let Some(tables) = tables.filter(|_| slot < SHARDS_MAX) else {
            return Ok(NONE);
        };
        let file = tables.cache.shard(row.shard)?;
        if file.memory().is_none() {
            return Ok(NONE);
        }
        if let Some(place) = tables.shards.get_mut(row.shard as usize) {
            place.slot = slot as u32;
        }
        self.shards.push(OpenShard {
            number: row.shard,
            file,
        });
        Ok(slot as u32)
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
        let path = match (self.shards.get(at.shard as usize), self.tables(at.table)) {
            (Some(shard), _) => shard.file.path().to_path_buf(),
            (None, Ok(tables)) => tables.cache.path().to_path_buf(),
            (None, Err(error)) => return error,
        };
        CacheError::DamagedRecord {
            path,
            sample_id: at.sample,
            offset: at.start as u64,
            subject: "record".to_owned(),
            expected: "metadata and payload as the manifest describes them".to_owned(),
            found,
        }
    }
}

fn address(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| CacheError::internal("a record beyond memory"))
}
