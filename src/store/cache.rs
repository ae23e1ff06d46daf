//! One published cache, opened: its manifest in memory, its files opened when first needed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::dictionary::DictionarySlot;
use super::file::{FileReader, Purpose};
use super::folder::{Folder, Identity};
use super::pool::{FilePool, FileSlot};
use super::table;
use super::verify::{RecordPlace, Verified};
use crate::error::{CacheError, Result};
use crate::format::compression::{Algorithm, Dictionary};
use crate::format::index::{IndexRow, ROW_BYTES};
use crate::format::manifest::{Manifest, ShardEntry};
use crate::format::names;
use crate::limits::MANIFEST_BYTES_MAX;
use crate::sync::{Mutex, lock};
use crate::types::{Io, Verify};

/// An open cache. Shared by every reader of the process, so that a record is verified once, not once per reader.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    identity: Identity,
    manifest: Manifest,
    io: Io,
    pool: Arc<FilePool>,
    index: FileSlot,
    checksums: FileSlot,
    shards: Box<[FileSlot]>,
    dictionary: DictionarySlot,
    verified: Verified,
    metadata: Mutex<Option<Arc<Vec<RecordBatch>>>>,
}

impl Cache {
    /// Opens the cache at `path`: reads the manifest and checks that every file is there with its length.
    ///
    /// Its files are read as `pool` says, and kept open by it.
    ///
    /// # Errors
    /// [`CacheError::NotFound`] without a manifest, [`CacheError::Manifest`] or [`CacheError::UnsupportedVersion`] for
    /// a bad one, [`CacheError::DamagedFile`] for a missing file or one of another length.
    pub fn open(path: &Path, pool: Arc<FilePool>) -> Result<Self> {
        let folder = open_folder(path)?;
        let manifest = manifest_in(&folder, path)?;
        let check =
            |name: &str, expected: u64| folder.stat(name)?.check_len(&path.join(name), expected);
        check(names::INDEX, manifest.index_byte_len())?;
        if manifest.record_checksums.is_some() {
            check(names::CHECKSUMS, manifest.checksums_byte_len())?;
        }
        if let Some(dictionary) = &manifest.dictionary {
            check(names::DICTIONARY, dictionary.byte_len)?;
        }
        folder
            .stat(names::SHARDS)?
            .check_directory(&path.join(names::SHARDS))?;
        for shard in &manifest.shards {
            check(&format!("{}/{}", names::SHARDS, shard.name), shard.byte_len)?;
        }
        folder
            .stat(names::METADATA)?
            .check_file(&path.join(names::METADATA))?;
        let identity = folder.identity()?;
        let io = pool.engine(path, &identity);
        Ok(Self {
            path: path.to_path_buf(),
            identity,
            shards: manifest
                .shards
                .iter()
                .map(|_| FileSlot::default())
                .collect(),
            manifest,
            io,
            pool,
            index: FileSlot::default(),
            checksums: FileSlot::default(),
            dictionary: DictionarySlot::default(),
            verified: Verified::default(),
            metadata: Mutex::default(),
        })
    }

    /// The same cache with nothing open and nothing locked. Reads nothing.
    pub fn reopened(&self, pool: Arc<FilePool>) -> Self {
        Self {
            path: self.path.clone(),
            identity: self.identity.clone(),
            shards: self
                .manifest
                .shards
                .iter()
                .map(|_| FileSlot::default())
                .collect(),
            manifest: self.manifest.clone(),
            io: self.io,
            pool,
            index: FileSlot::default(),
            checksums: FileSlot::default(),
            dictionary: DictionarySlot::default(),
            verified: Verified::default(),
            metadata: Mutex::default(),
        }
    }

    /// The cache directory as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells the cache directory from any other, whatever path leads to it.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How its files are read; resolved.
    pub fn io(&self) -> Io {
        self.io
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.manifest.sample_count
    }

    /// Whether the cache has no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `index.bin`, open.
    pub fn index(&self) -> Result<Arc<FileReader>> {
        let len = self.manifest.index_byte_len();
        self.index.get(&self.pool, || {
            FileReader::open(&self.path.join(names::INDEX), len, self.io, Purpose::Table)
        })
    }

    /// `checksums.bin`, open, if the cache has one.
    pub fn checksums(&self) -> Result<Option<Arc<FileReader>>> {
        if self.manifest.record_checksums.is_none() {
            return Ok(None);
        }
        let len = self.manifest.checksums_byte_len();
        let open = || {
            FileReader::open(
                &self.path.join(names::CHECKSUMS),
                len,
                self.io,
                Purpose::Table,
            )
        };
        self.checksums.get(&self.pool, open).map(Some)
    }

    /// The zstd dictionary of the payloads, if the cache has one: read, checked and digested the first time.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] if it is not the file that the manifest describes, or no dictionary.
    pub fn dictionary(&self) -> Result<Option<&Dictionary>> {
        let entry = self.manifest.dictionary.as_ref();
        entry
            .map(|entry| self.dictionary.get(&self.path, self.io, entry))
            .transpose()
    }

    /// Shard number `shard`, open.
    pub fn shard(&self, shard: u64) -> Result<Arc<FileReader>> {
        let (entry, slot) = self.shard_entry(shard)?;
        let path = self.path.join(names::SHARDS).join(&entry.name);
        slot.get(&self.pool, || {
            FileReader::open(&path, entry.byte_len, self.io, Purpose::Records)
        })
    }

    /// Path of shard number `shard`, for messages.
    pub fn shard_path(&self, shard: u64) -> PathBuf {
        let name = self
            .shard_entry(shard)
            .map_or_else(|_| names::shard(shard), |(entry, _)| entry.name.clone());
        self.path.join(names::SHARDS).join(name)
    }

    fn shard_entry(&self, shard: u64) -> Result<(&ShardEntry, &FileSlot)> {
        let position = usize::try_from(shard).ok();
        let entry = position.and_then(|position| self.manifest.shards.get(position));
        let slot = position.and_then(|position| self.shards.get(position));
        entry.zip(slot).ok_or_else(|| {
            CacheError::internal(format!(
                "shard {shard} was not checked against the manifest"
            ))
        })
    }

    /// How the payloads of shard number `shard` are stored.
    pub fn algorithm(&self, shard: u64) -> Algorithm {
        let shard = usize::try_from(shard)
            .ok()
            .and_then(|shard| self.manifest.shards.get(shard));
        shard.map_or(Algorithm::None, |shard| shard.compression.algo)
    }

    /// The index row of `sample`, checked against the manifest.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] beyond the last sample, [`CacheError::DamagedRecord`] for a row that points outside
    /// its shard.
    pub fn index_row(&self, index: &FileReader, sample: u64) -> Result<IndexRow> {
        if sample >= self.len() {
            return Err(CacheError::OutOfRange {
                index: i128::from(sample),
                len: self.len(),
            });
        }
        let mut scratch = Vec::new();
        let bytes = index.view(sample * ROW_BYTES, ROW_BYTES, &mut scratch)?;
        let row = IndexRow::from_bytes(bytes)
            .ok_or_else(|| CacheError::internal("an index row of another length"))?;
        let fault = |subject: &str, expected: String, found: String| CacheError::DamagedRecord {
            path: index.path().to_path_buf(),
            sample_id: sample,
            offset: sample * ROW_BYTES,
            subject: subject.to_owned(),
            expected,
            found,
        };
        let shard = usize::try_from(row.shard)
            .ok()
            .and_then(|shard| self.manifest.shards.get(shard));
        let Some(shard) = shard else {
            let expected = format!("less than {}", self.manifest.shards.len());
            return Err(fault(
                "shard of the index row",
                expected,
                row.shard.to_string(),
            ));
        };
        if row
            .offset
            .checked_add(row.byte_len)
            .is_none_or(|end| end > shard.byte_len)
        {
            let found = format!("{} bytes from byte {}", row.byte_len, row.offset);
            return Err(fault(
                "record in the index row",
                format!("inside a shard of {} bytes", shard.byte_len),
                found,
            ));
        }
        Ok(row)
    }

    /// Whether the record of `sample` need not be compared with its checksum, as far as that can be told at once.
    #[inline]
    pub fn is_checked(&self, sample: u64, verify: Verify) -> bool {
        match verify {
            Verify::Never => true,
            Verify::First => self.verified.has_record(sample),
            Verify::Always => false,
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
                    .record(self.len(), at, record, checksums, verify)
            }
            None => {
                let expected = self.shard_entry(row.shard)?.0.sha256;
                let shards = self.manifest.shards.len();
                self.verified.index(index, self.manifest.index_sha256)?;
                self.verified.shard(shards, row.shard, shard, expected)
            }
        }
    }

    /// The metadata table, in batches that point into the file; checked against the manifest the first time.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] if the checksum, the columns or the number of rows differ.
    pub fn metadata(&self) -> Result<Arc<Vec<RecordBatch>>> {
        let mut slot = lock(&self.metadata);
        if let Some(batches) = slot.as_ref() {
            return Ok(Arc::clone(batches));
        }
        let batches = table::read(&self.path, self.io, &self.manifest, self.len())?;
        let batches = Arc::new(batches);
        *slot = Some(Arc::clone(&batches));
        Ok(batches)
    }
}

/// Reads and checks the manifest of the cache at `path`.
///
/// # Errors
/// [`CacheError::NotFound`] if there is none, otherwise as [`Manifest::parse`].
pub fn read_manifest(path: &Path) -> Result<Manifest> {
    manifest_in(&open_folder(path)?, path)
}

fn open_folder(path: &Path) -> Result<Folder> {
    Folder::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => CacheError::NotFound {
            path: path.to_path_buf(),
            reason: "no such directory".to_owned(),
        },
        _ => CacheError::io("open", path, error),
    })
}

fn manifest_in(folder: &Folder, path: &Path) -> Result<Manifest> {
    let file = path.join(names::MANIFEST);
    let text = folder.read(names::MANIFEST, MANIFEST_BYTES_MAX);
    let text = text.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CacheError::NotFound {
            path: path.to_path_buf(),
            reason: "the directory has no manifest.json".to_owned(),
        },
        _ => CacheError::io("read", &file, error),
    })??;
    Manifest::parse(&file, &text)
}
