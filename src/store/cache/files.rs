//! The files of an open cache: where each lies, and each opened when first needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Cache;
use crate::error::{CacheError, Result};
use crate::format::compression::{Algorithm, Dictionary};
use crate::format::generation::{Generation, placed};
use crate::format::manifest::ShardEntry;
use crate::format::names;
use crate::store::dictionary::{self, DictionarySlot};
use crate::store::file::{FileReader, Purpose};
use crate::store::generations::GENERATIONS_FORMAT;
use crate::store::pool::{FilePool, FileSlot};

/// The places of files that may be open or closed.
#[derive(Debug)]
pub(super) struct Files {
    pool: Arc<FilePool>,
    index: FileSlot,
    checksums: FileSlot,
    shards: Box<[FileSlot]>,
    dictionary: DictionarySlot,
}

impl Files {
    /// Nothing open yet, of a cache with so many shards.
    pub fn closed(pool: Arc<FilePool>, shards: usize) -> Self {
        Self {
            pool,
            index: FileSlot::default(),
            checksums: FileSlot::default(),
            shards: (0..shards).map(|_| FileSlot::default()).collect(),
            dictionary: DictionarySlot::default(),
        }
    }
}

impl Cache {
    /// Path of the manifest, for messages.
    pub fn manifest_path(&self) -> PathBuf {
        self.placed(self.manifest.number(), names::MANIFEST)
    }

    /// Path of the index, for messages.
    pub fn index_path(&self) -> PathBuf {
        self.named(|own| own.index, names::INDEX)
    }

    /// Path of the record checksums, for messages.
    pub fn checksums_path(&self) -> PathBuf {
        self.named(|own| own.checksums, names::CHECKSUMS)
    }

    fn dictionary_path(&self) -> PathBuf {
        self.named(|own| own.dictionary, names::DICTIONARY)
    }

    /// Path of a file that `holder` names the generation of.
    fn named(&self, holder: impl Fn(&Generation) -> u64, file: &str) -> PathBuf {
        let own = self.manifest.generation.as_ref();
        self.placed(own.map_or(0, holder), file)
    }

    /// Path of a file of generation `number`.
    pub(super) fn placed(&self, number: u64, file: &str) -> PathBuf {
        self.path.join(placed(number, file))
    }

    /// `index.bin`, open.
    pub fn index(&self) -> Result<Arc<FileReader>> {
        let len = self.manifest.index_byte_len();
        self.files.index.get(&self.files.pool, || {
            self.open_file(&self.index_path(), len, Purpose::Table)
        })
    }

    /// `checksums.bin`, open, if the cache has one.
    pub fn checksums(&self) -> Result<Option<Arc<FileReader>>> {
        if self.manifest.record_checksums.is_none() {
            return Ok(None);
        }
        let len = self.manifest.checksums_byte_len();
        let open = || self.open_file(&self.checksums_path(), len, Purpose::Table);
        self.files.checksums.get(&self.files.pool, open).map(Some)
    }

    /// Opens a file that was there when the cache was opened.
    fn open_file(&self, path: &Path, byte_len: u64, purpose: Purpose) -> Result<FileReader> {
        let opened = FileReader::open(path, byte_len, self.io, purpose);
        let may_be_vacuumed = self.manifest.format_version >= GENERATIONS_FORMAT;
        match opened {
            Err(CacheError::DamagedFile { .. }) if may_be_vacuumed && !path.exists() => {
                let number = self.manifest.number();
                let found = format!(
                    "nothing; a vacuum may have given up generation {number}, which a lease would have kept"
                );
                Err(CacheError::damaged(
                    path,
                    "file of the cache",
                    "a file",
                    found,
                ))
            }
            opened => opened,
        }
    }

    /// The zstd dictionary of the payloads, if the cache has one: read, checked and digested the first time.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] if it is not the file that the manifest describes, or no dictionary.
    pub fn dictionary(&self) -> Result<Option<&Dictionary>> {
        let entry = self.manifest.dictionary.as_ref();
        let path = || self.dictionary_path();
        entry
            .map(|entry| self.files.dictionary.get(&path, self.io, entry))
            .transpose()
    }

    /// The bytes of that dictionary, for whoever compresses with it.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] if it is not the file that the manifest describes.
    pub fn dictionary_bytes(&self) -> Result<Option<Vec<u8>>> {
        let entry = self.manifest.dictionary.as_ref();
        entry
            .map(|entry| dictionary::read(&self.dictionary_path(), self.io, entry))
            .transpose()
    }

    /// Shard number `shard`, open.
    pub fn shard(&self, shard: u64) -> Result<Arc<FileReader>> {
        let (entry, slot) = self.shard_entry(shard)?;
        let path = self.path.join(entry.file());
        slot.get(&self.files.pool, || {
            self.open_file(&path, entry.byte_len, Purpose::Records)
        })
    }

    /// Path of shard number `shard`, for messages.
    pub fn shard_path(&self, shard: u64) -> PathBuf {
        match self.shard_entry(shard) {
            Ok((entry, _)) => self.path.join(entry.file()),
            Err(_) => self.path.join(names::SHARDS).join(names::shard(shard)),
        }
    }

    /// What the manifest says of shard number `shard`, and the place of its file.
    pub(super) fn shard_entry(&self, shard: u64) -> Result<(&ShardEntry, &FileSlot)> {
        let position = usize::try_from(shard).ok();
        let entry = position.and_then(|position| self.manifest.shards.get(position));
        let slot = position.and_then(|position| self.files.shards.get(position));
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
}
