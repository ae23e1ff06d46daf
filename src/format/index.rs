//! `index.bin`: per sample three little-endian u64: shard id, offset in the shard, record length in bytes.

use std::path::Path;

use super::manifest::ShardEntry;
use crate::error::{CacheError, Result};

/// Bytes of one row.
pub const ROW_BYTES: u64 = 24;

/// Where one record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRow {
    /// Position of the shard in the manifest's list.
    pub shard: u64,
    /// First byte of the record in the shard.
    pub offset: u64,
    /// Length of the record in bytes.
    pub byte_len: u64,
}

impl IndexRow {
    /// The row of a sample whose record a compaction left behind: it points nowhere.
    pub const GONE: Self = Self {
        shard: u64::MAX,
        offset: u64::MAX,
        byte_len: u64::MAX,
    };

    /// The row as stored.
    pub fn to_bytes(self) -> [u8; ROW_BYTES as usize] {
        let mut bytes = [0; ROW_BYTES as usize];
        for (slot, value) in
            bytes
                .as_chunks_mut::<8>()
                .0
                .iter_mut()
                .zip([self.shard, self.offset, self.byte_len])
        {
            *slot = value.to_le_bytes();
        }
        bytes
    }

    /// The row that 24 bytes hold; `None` for another number of bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else {
            return None;
        };
        let [shard, offset, byte_len] = *words else {
            return None;
        };
        Some(Self {
            shard: u64::from_le_bytes(shard),
            offset: u64::from_le_bytes(offset),
            byte_len: u64::from_le_bytes(byte_len),
        })
    }

    /// Checks that the row points into one of `shards`. It is that of `sample` in the index at `path`, for messages.
    ///
    /// # Errors
    /// [`CacheError::DamagedRecord`] with what it points at.
    #[inline]
    pub fn check(self, shards: &[ShardEntry], path: &Path, sample: u64) -> Result<()> {
        let fault = |subject: &str, expected: String, found: String| {
            Err(CacheError::DamagedRecord {
                path: path.to_path_buf(),
                sample_id: sample,
                offset: sample.saturating_mul(ROW_BYTES),
                subject: subject.to_owned(),
                expected,
                found,
            })
        };
        let position = usize::try_from(self.shard).ok();
        let Some(shard) = position.and_then(|position| shards.get(position)) else {
            return fault(
                "shard of the index row",
                format!("less than {}", shards.len()),
                self.shard.to_string(),
            );
        };
        let end = self.offset.checked_add(self.byte_len);
        if end.is_none_or(|end| end > shard.byte_len) {
            return fault(
                "record in the index row",
                format!("inside a shard of {} bytes", shard.byte_len),
                format!("{} bytes from byte {}", self.byte_len, self.offset),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_and_has_its_documented_layout() {
        let row = IndexRow {
            shard: 1,
            offset: 0x0203,
            byte_len: u64::MAX,
        };
        let bytes = row.to_bytes();
        assert_eq!(bytes[0], 1);
        assert_eq!(bytes[8..10], [3, 2]);
        assert_eq!(bytes[16..], [255; 8]);
        assert_eq!(IndexRow::from_bytes(&bytes), Some(row));
        assert_eq!(IndexRow::from_bytes(&bytes[1..]), None);
    }
}
