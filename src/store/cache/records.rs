//! The records of an open cache: what the index says of each, compared with the manifest and the checksums.

use super::Cache;
use crate::error::{CacheError, Result};
use crate::format::index::{IndexRow, ROW_BYTES};
use crate::store::file::FileReader;
use crate::store::stride::Stride;
use crate::store::verify::{Checked, RecordPlace};
use crate::types::Verify;

impl Cache {
    /// The index row of `sample`, checked against the manifest.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] beyond the last sample, [`CacheError::DamagedRecord`] for a row that points outside
    /// its shard.
    pub fn index_row(&self, index: &FileReader, sample: u64) -> Result<IndexRow> {
        if sample >= self.sample_ids() {
            return Err(CacheError::OutOfRange {
                index: i128::from(sample),
                len: self.sample_ids(),
            });
        }
        let mut scratch = Vec::new();
        let bytes = index.view(sample * ROW_BYTES, ROW_BYTES, &mut scratch)?;
        let row = IndexRow::from_bytes(bytes)
            .ok_or_else(|| CacheError::internal("an index row of another length"))?;
        row.check(&self.manifest.shards, index.path(), sample)?;
        Ok(row)
    }

    /// Whether records of one length lie one behind the other, as far as that is known.
    pub fn stride(&self) -> &Stride {
        &self.stride
    }

    /// The records that need not be compared with their checksums, as far as that can be told at once.
    #[inline]
    pub fn checked(&self, verify: Verify) -> Checked<'_> {
        match verify {
            Verify::Never => Checked::All,
            Verify::First => self.verified.records(),
            Verify::Always => Checked::None,
        }
    }

    /// Compares a record with its checksum, as often as `verify` asks.
    ///
    /// Caches of published releases have no record checksums: their index and each shard are hashed as a whole, once in
    /// this process, the first time they are needed; [`Verify::Always`] means that too. A record whose shard another
    /// thread is hashing waits for it; records of other shards do not.
    ///
    /// # Errors
    /// [`CacheError::DamagedRecord`] or [`CacheError::DamagedFile`] with both values.
    pub fn verify_record(
        &self,
        files: (&FileReader, Option<&FileReader>, &FileReader),
        row: IndexRow,
        sample: u64,
        record: &[u8],
        verify: Verify,
    ) -> Result<()> {
        let (index, checksums, shard) = files;
        if verify == Verify::Never {
            return Ok(());
        }
        match checksums {
            Some(checksums) => {
                let at = RecordPlace {
                    shard: shard.path(),
                    sample,
                    offset: row.offset,
                };
                self.verified
                    .record(self.sample_ids(), at, record, checksums, verify)
            }
            None => {
                let expected = self.shard_entry(row.shard)?.0.sha256;
                let shards = self.manifest.shards.len();
                self.verified.index(index, self.manifest.index_sha256)?;
                self.verified.shard(shards, row.shard, shard, expected)
            }
        }
    }
}
