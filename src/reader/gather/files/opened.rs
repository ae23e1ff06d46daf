//! Caches whose files are open and mapped, where finding a record needs no look at the system.

use std::sync::Arc;

use crate::format::compression::Algorithm;
use crate::format::index::IndexRow;
use crate::store::file::FileReader;
use crate::store::prefetch::prefetch;
use crate::store::stride::RowBytes;
use crate::store::verify::Checked;

/// No slot of a list.
pub const NONE: u32 = u32::MAX;

/// What locating a record needs to know of its shard.
#[derive(Clone, Copy, Debug)]
pub struct ShardPlace {
    /// Its place among the open ones, or [`NONE`].
    pub slot: u32,
    pub algorithm: Algorithm,
    pub byte_len: u64,
}

/// A mapped shard.
#[derive(Debug)]
pub struct OpenShard {
    /// Its number in its cache.
    pub number: u64,
    pub file: Arc<FileReader>,
}

/// What finds records of one cache without a look at the system.
#[derive(Clone, Copy)]
pub struct Opened<'a> {
    /// Its place among the open ones.
    pub table: u32,
    pub index: &'a [RowBytes],
    pub shards: &'a [ShardPlace],
    pub checked: Checked<'a>,
    /// Open shards of all caches.
    pub files: &'a [OpenShard],
}

impl<'a> Opened<'a> {
    /// The index row of a sample and the mapped shard that the record lies in.
    #[inline]
    pub fn row(&self, sample: u64) -> Option<(IndexRow, ShardPlace)> {
        let row = IndexRow::from_bytes(self.index.get(usize::try_from(sample).ok()?)?)?;
        let shard = *self.shards.get(usize::try_from(row.shard).ok()?)?;
        let end = row.offset.checked_add(row.byte_len)?;
        (shard.slot != NONE && end <= shard.byte_len).then_some((row, shard))
    }

    /// The record of a sample, not compared with anything, if its payload is stored as it is.
    #[inline]
    pub fn plain(&self, sample: u64) -> Option<&'a [u8]> {
        let (row, shard) = self.row(sample)?;
        if shard.algorithm != Algorithm::None {
            return None;
        }
        let memory = self.files.get(shard.slot as usize)?.file.memory()?;
        memory.get(row.offset as usize..(row.offset + row.byte_len) as usize)
    }

    /// Whether the record of a sample need not be compared with its checksum any more.
    #[inline]
    pub fn is_checked(&self, sample: u64) -> bool {
        self.checked.holds(sample)
    }

    /// Asks the processor for what is needed to find the record of a sample.
    #[inline]
    pub fn prefetch(&self, sample: u64) {
        if let Some(row) = self.index.get(sample as usize) {
            prefetch(row);
        }
    }
}

/// Records of one length that all lie one behind the other in mapped shards, uncompressed.
pub struct Even<'a> {
    /// The first sample of each run and the records of the run, in sample order.
    pub runs: Vec<(u64, &'a [u8])>,
    /// Length of each record, in bytes.
    pub len: usize,
    pub checked: Checked<'a>,
}

impl<'a> Even<'a> {
    /// The record of a sample, not compared with anything.
    #[inline]
    pub fn plain(&self, sample: u64) -> Option<&'a [u8]> {
        let next = self.runs.partition_point(|(start, _)| *start <= sample);
        let (start, records) = self.runs.get(next.checked_sub(1)?)?;
        let first = usize::try_from(sample - start)
            .ok()?
            .checked_mul(self.len)?;
        records.get(first..first.checked_add(self.len)?)
    }

    /// Whether the record of a sample need not be compared with its checksum any more.
    #[inline]
    pub fn is_checked(&self, sample: u64) -> bool {
        self.checked.holds(sample)
    }
}
