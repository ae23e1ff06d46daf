//! Comparisons with checksums, and the memory of what this process has compared so far.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::file::FileReader;
use crate::error::{CacheError, Result};
use crate::format::checksum::{Crc32c, Sha256Digest, Sha256Hasher};
use crate::format::manifest::CHECKSUM_BYTES;
use crate::sync::{Mutex, OnceLock, lock};
use crate::types::Verify;

/// What this process has compared with its checksum so far.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// One bit per record, allocated at the first check.
    records: OnceLock<Box<[AtomicU64]>>,
    /// Whole files, for caches without record checksums. Each is locked while it is hashed, so that only those wait who
    /// need that file.
    index: Mutex<Whole>,
    shards: OnceLock<Box<[Mutex<Whole>]>>,
}

/// What hashing a whole file came to.
#[derive(Clone, Copy, Debug, Default)]
enum Whole {
    /// It was not hashed yet, or could not be read.
    #[default]
    Unknown,
    /// It is what it should be.
    Sound,
    /// It is something else, and need not be hashed again to tell.
    Other(Sha256Digest),
}

/// Which record is compared, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordPlace<'a> {
    pub shard: &'a Path,
    pub sample: u64,
    pub offset: u64,
}

/// Records that need not be compared with their checksums.
#[derive(Clone, Copy, Debug)]
pub enum Checked<'a> {
    /// None of them is known.
    None,
    /// One bit for each.
    Marked(&'a [AtomicU64]),
    /// Every one.
    All,
}

impl Checked<'_> {
    /// Whether the record of `sample` is one of them.
    #[inline]
    pub fn holds(self, sample: u64) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Marked(bits) => {
                let word = usize::try_from(sample / 64)
                    .ok()
                    .and_then(|word| bits.get(word));
                word.is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (sample % 64)) != 0)
            }
        }
    }
}

impl Verified {
    /// The records that were compared with their checksums before.
    #[inline]
    pub fn records(&self) -> Checked<'_> {
        self.records
            .get()
            .map_or(Checked::None, |bits| Checked::Marked(bits))
    }

    /// Compares one record of a cache of `samples` samples with its checksum, unless `verify` finds an earlier
    /// comparison enough.
    pub fn record(
        &self,
        samples: u64,
        at: RecordPlace<'_>,
        record: &[u8],
        checksums: &FileReader,
        verify: Verify,
    ) -> Result<()> {
        let bits = self.records.get_or_init(|| {
            let words = samples.div_ceil(64);
            (0..words).map(|_| AtomicU64::new(0)).collect()
        });
        let word = usize::try_from(at.sample / 64)
            .ok()
            .and_then(|word| bits.get(word));
        let bit = 1 << (at.sample % 64);
        if verify == Verify::First
            && word.is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
        {
            return Ok(());
        }
        let mut scratch = Vec::new();
        let stored = checksums.view(at.sample * CHECKSUM_BYTES, CHECKSUM_BYTES, &mut scratch)?;
        let stored: [u8; CHECKSUM_BYTES as usize] = stored
            .try_into()
            .map_err(|_| CacheError::internal("a checksum of another length"))?;
        let expected = Crc32c(u32::from_le_bytes(stored));
        let found = Crc32c::of_record(record, at.sample);
        if found != expected {
            return Err(CacheError::DamagedRecord {
                path: at.shard.to_path_buf(),
                sample_id: at.sample,
                offset: at.offset,
                subject: "checksum of the record".to_owned(),
                expected: format!("crc32c {expected}"),
                found: format!("crc32c {found}"),
            });
        }
        if let Some(word) = word {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Compares the index with its hash, unless that was done before.
    pub fn index(&self, file: &FileReader, expected: Sha256Digest) -> Result<()> {
        once(&self.index, file, expected)
    }

    /// Compares shard `number` of `count` with its hash, unless that was done before.
    pub fn shard(
        &self,
        count: usize,
        number: u64,
        file: &FileReader,
        expected: Sha256Digest,
    ) -> Result<()> {
        let shards = self
            .shards
            .get_or_init(|| (0..count).map(|_| Mutex::default()).collect());
        let shard = usize::try_from(number)
            .ok()
            .and_then(|number| shards.get(number))
            .ok_or_else(|| CacheError::internal(format!("shard {number} of {count}")))?;
        once(shard, file, expected)
    }
}

fn once(known: &Mutex<Whole>, file: &FileReader, expected: Sha256Digest) -> Result<()> {
    let mut known = lock(known);
    let found = match *known {
        Whole::Sound => return Ok(()),
        Whole::Other(found) => found,
        Whole::Unknown => sha256(file, &mut || Ok(()))?,
    };
    *known = match found == expected {
        true => Whole::Sound,
        false => Whole::Other(found),
    };
    compare(file, found, expected)
}

/// Compares a whole file with its SHA-256. `interrupt` is called between pieces of 4 MiB; its error is returned.
///
/// # Errors
/// [`CacheError::DamagedFile`] with both values.
pub fn check_sha256(
    file: &FileReader,
    expected: Sha256Digest,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    compare(file, sha256(file, interrupt)?, expected)
}

fn sha256(file: &FileReader, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<Sha256Digest> {
    let mut hasher = Sha256Hasher::default();
    file.for_each_piece(|piece| {
        hasher.update(piece);
        interrupt()
    })?;
    Ok(hasher.finish())
}

fn compare(file: &FileReader, found: Sha256Digest, expected: Sha256Digest) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let (expected, found) = (format!("sha256 {expected}"), format!("sha256 {found}"));
    Err(CacheError::damaged(
        file.path(),
        "checksum of the file",
        expected,
        found,
    ))
}

/// Compares the bytes of the whole file at `path` with their CRC-32C.
///
/// # Errors
/// [`CacheError::DamagedFile`] with both values.
pub fn check_crc32c(path: &Path, bytes: &[u8], expected: Crc32c) -> Result<()> {
    let found = Crc32c::of(bytes);
    if found == expected {
        return Ok(());
    }
    let (expected, found) = (format!("crc32c {expected}"), format!("crc32c {found}"));
    Err(CacheError::damaged(
        path,
        "checksum of the file",
        expected,
        found,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::file::Purpose;
    use crate::types::Io;

    #[test]
    fn a_shard_being_hashed_holds_up_nobody_who_needs_another_and_each_is_hashed_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard");
        std::fs::write(&path, b"bytes").unwrap();
        let file = FileReader::open(&path, 5, Io::Pread, Purpose::Records).unwrap();
        let (right, wrong) = (Sha256Digest::of(b"bytes"), Sha256Digest::of(b"other"));
        let verified = Verified::default();
        verified.shard(3, 0, &file, right).unwrap();
        let busy = lock(&verified.shards.get().unwrap()[1]);
        // Would never return if it waited.
        verified.shard(3, 2, &file, right).unwrap();
        drop(busy);
        verified.shard(3, 2, &file, wrong).unwrap();
        assert!(verified.shard(3, 1, &file, wrong).is_err());
        assert!(verified.shard(3, 1, &file, wrong).is_err());
        verified.shard(3, 1, &file, right).unwrap();
        assert!(verified.shard(3, 3, &file, right).is_err());
    }
}
