//! Records read in large pieces while they are asked for in the order in which they lie, and one by one otherwise.

use std::sync::Arc;

use crate::error::{CacheError, Result};
use crate::store::cache::Cache;
use crate::store::file::FileReader;

/// Shards of which a piece is held.
const WINDOWS: usize = 4;
/// Longest piece, in bytes, unless a record is longer.
const REACH_MAX: u64 = 4 << 20;
/// Shortest piece that is read ahead, in bytes.
const REACH_MIN: u64 = 64 << 10;
/// Bytes that may be skipped between two records that count as neighbours.
const GAP_MAX: u64 = 256 << 10;

/// A few pieces of shards.
#[derive(Default)]
pub struct Windows {
    list: Vec<Window>,
    /// The one that makes room next.
    oldest: usize,
}

struct Window {
    /// Position of the cache, and number of the shard.
    of: (u32, u64),
    shard: Arc<FileReader>,
    bytes: Vec<u8>,
    start: u64,
    /// Where the last record ended.
    last_end: u64,
    reach: u64,
}

impl Windows {
    /// The shard, and `len` bytes of it from `offset`, which lie within it.
    ///
    /// # Errors
    /// Those of reading.
    pub fn record(
        &mut self,
        cache: (u32, &Cache),
        shard: u64,
        offset: u64,
        len: u64,
    ) -> Result<(&FileReader, &[u8])> {
        let of = (cache.0, shard);
        let found = self.list.iter().position(|window| window.of == of);
        let place = match found {
            Some(place) => place,
            None => self.open(of, cache.1.shard(shard)?),
        };
        let window = self.list.get_mut(place);
        let window = window.ok_or_else(|| CacheError::internal("no window on a shard"))?;
        window.record(offset, len)
    }

    fn open(&mut self, of: (u32, u64), shard: Arc<FileReader>) -> usize {
        let mut window = Window {
            of,
            shard,
            bytes: Vec::new(),
            start: 0,
            last_end: 0,
            reach: 0,
        };
        if self.list.len() < WINDOWS {
            self.list.push(window);
            return self.list.len() - 1;
        }
        let place = self.oldest;
        self.oldest = (place + 1) % WINDOWS;
        if let Some(old) = self.list.get_mut(place) {
            std::mem::swap(&mut window.bytes, &mut old.bytes);
            window.bytes.clear();
            *old = window;
        }
        place
    }
}

impl Window {
    fn record(&mut self, offset: u64, len: u64) -> Result<(&FileReader, &[u8])> {
        let is_near = offset
            .checked_sub(self.last_end)
            .is_some_and(|gap| gap <= GAP_MAX);
        self.last_end = offset.saturating_add(len);
        if self.shard.memory().is_some() {
            let bytes = self.shard.view(offset, len, &mut self.bytes)?;
            return Ok((&self.shard, bytes));
        }
        let held_end = self.start.saturating_add(self.bytes.len() as u64);
        if offset < self.start || self.last_end > held_end {
            self.reach = match is_near {
                true => (self.reach * 2).clamp(REACH_MIN, REACH_MAX),
                false => 0,
            };
            let rest = self.shard.len().saturating_sub(offset);
            let wanted = len.max(self.reach.min(rest));
            self.start = offset;
            if let Err(error) = self.shard.view(offset, wanted, &mut self.bytes) {
                self.bytes.clear();
                return Err(error);
            }
        }
        let within = |at: u64| usize::try_from(at.saturating_sub(self.start)).ok();
        let range = within(offset).zip(within(self.last_end));
        let bytes = range.and_then(|(start, end)| self.bytes.get(start..end));
        let bytes = bytes.ok_or_else(|| CacheError::internal("a record outside its window"))?;
        Ok((&self.shard, bytes))
    }
}
