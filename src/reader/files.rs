//! A reader's own short memory of open files, so that a record costs no lock.

use std::sync::Arc;

use crate::error::{CacheError, Result};
use crate::store::cache::Cache;
use crate::store::file::FileReader;
use crate::types::Io;

/// The files that say where a cache's records are and what their checksums should be.
#[derive(Debug)]
pub struct Tables {
    /// `index.bin`.
    pub index: Arc<FileReader>,
    /// `checksums.bin`, if the cache has one.
    pub checksums: Option<Arc<FileReader>>,
}

impl Tables {
    /// The tables of `cache`, open.
    pub fn open(cache: &Cache) -> Result<Self> {
        Ok(Self {
            index: cache.index()?,
            checksums: cache.checksums()?,
        })
    }

    /// The files that a record in `shard` is compared with.
    pub fn beside<'a>(
        &'a self,
        shard: &'a FileReader,
    ) -> (&'a FileReader, Option<&'a FileReader>, &'a FileReader) {
        (&self.index, self.checksums.as_deref(), shard)
    }
}

/// Tables by cache number.
#[derive(Debug)]
pub struct TableFiles(Memory<u32, Tables>);

impl TableFiles {
    /// A memory suited to files read with `io` by one of `readers`.
    pub fn new(io: Io, readers: usize) -> Self {
        Self(Memory::new(slots(io, readers)))
    }

    /// Index and checksums of cache number `number`.
    pub fn get(&mut self, number: u32, cache: &Cache) -> Result<&Tables> {
        self.0.get(number, number as usize, || Tables::open(cache))
    }
}

/// Shards by cache number and shard number.
#[derive(Debug)]
pub struct ShardFiles(Memory<(u32, u64), Arc<FileReader>>);

impl ShardFiles {
    /// A memory suited to files read with `io` by one of `readers`.
    pub fn new(io: Io, readers: usize) -> Self {
        Self(Memory::new(slots(io, readers)))
    }

    /// Shard `shard` of cache number `number`.
    pub fn get(&mut self, number: u32, cache: &Cache, shard: u64) -> Result<&Arc<FileReader>> {
        const SPREAD: usize = 31;
        let slot = (number as usize)
            .wrapping_mul(SPREAD)
            .wrapping_add(shard as usize);
        self.0.get((number, shard), slot, || cache.shard(shard))
    }
}

/// Descriptors that the memories of all readers together hold, beside those of the pool: both fit half of the usual
/// limit of 1024. More than 128 readers hold more, since each needs three for the record in its hands.
const DESCRIPTORS: usize = 384;
/// Descriptors of one slot of both memories: index, checksums, shard.
const SLOT_DESCRIPTORS: usize = 3;

/// Descriptors are scarcer than maps.
fn slots(io: Io, readers: usize) -> usize {
    if io == Io::Pread {
        (DESCRIPTORS / SLOT_DESCRIPTORS / readers.max(1)).clamp(1, 8)
    } else {
        256
    }
}

/// Direct-mapped: two keys that want one slot replace each other.
#[derive(Debug)]
struct Memory<K, V>(Vec<Option<(K, V)>>);

impl<K: PartialEq + Copy, V> Memory<K, V> {
    fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| None).collect())
    }

    fn get(&mut self, key: K, slot: usize, open: impl FnOnce() -> Result<V>) -> Result<&V> {
        let slots = self.0.len().max(1);
        let place = self
            .0
            .get_mut(slot % slots)
            .ok_or_else(|| CacheError::internal("a memory of files without a slot"))?;
        if place.as_ref().is_none_or(|(known, _)| *known != key) {
            *place = Some((key, open()?));
        }
        place
            .as_ref()
            .map(|(_, value)| value)
            .ok_or_else(|| CacheError::internal("a file was forgotten as it was opened"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_a_number_of_descriptors() {
        for readers in 1..=128 {
            let slots = slots(Io::Pread, readers);
            assert!(slots > 0 && slots * readers * SLOT_DESCRIPTORS <= DESCRIPTORS);
        }
        assert_eq!([1, 16, 17, 1024].map(|n| slots(Io::Pread, n)), [8, 8, 7, 1]);
        assert_eq!(slots(Io::Mmap, 1024), 256);
    }
}
