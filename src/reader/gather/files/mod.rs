//! Files that a gatherer has opened, so that finding and reading a record seldom asks the system for anything.

mod locate;
mod opened;
mod records;

use std::sync::Arc;

pub(super) use self::locate::Located;
pub(super) use self::opened::{Even, Opened};
use self::opened::{NONE, OpenShard, ShardPlace};
use crate::error::{CacheError, Result};
use crate::format::compression::Algorithm;
use crate::format::index::{IndexRow, ROW_BYTES};
use crate::reader::files::Tables;
use crate::store::cache::Cache;
use crate::types::{SampleRef, Verify};

/// Mapped shards that one gatherer keeps open. Records of further ones are copied out of them at once.
const SHARDS_MAX: usize = 4096;

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

/// The tables of a cache that was asked for.
#[derive(Debug)]
struct OpenTables {
    cache: Arc<Cache>,
    /// Given up after each record where they take descriptors, of which a process has few.
    files: Option<Tables>,
    /// Where each shard of the cache is.
    shards: Box<[ShardPlace]>,
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
        let cache = self.caches.get(sample.cache as usize);
        if let (Some(cache), Some(opened)) = (cache, self.opened(sample.cache)) {
            cache.stride().learn(opened.index, rows);
        }
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
}
