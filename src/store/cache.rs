//! One published cache, opened: its manifest in memory, its files opened when first needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::deleted;
use super::dictionary::{self, DictionarySlot};
use super::file::{FileReader, Purpose};
use super::folder::Identity;
use super::generations::{self, Wanted};
use super::live::LiveIds;
use super::pool::{FilePool, FileSlot};
use super::stride::Stride;
use super::table;
use super::verify::{Checked, RecordPlace, Verified};
use crate::error::{CacheError, Result};
use crate::format::compression::{Algorithm, Dictionary};
use crate::format::index::{IndexRow, ROW_BYTES};
use crate::format::manifest::{Manifest, ShardEntry};
use crate::format::{generation, names};
use crate::sync::{Mutex, OnceLock, lock};
use crate::types::{Io, Verify};

/// An open cache. Shared by every reader of the process, so that a record is verified once, not once per reader.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    identity: Identity,
    manifest: Manifest,
    passed_over: Option<String>,
    io: Io,
    pool: Arc<FilePool>,
    index: FileSlot,
    checksums: FileSlot,
    shards: Box<[FileSlot]>,
    dictionary: DictionarySlot,
    stride: Stride,
    verified: Verified,
    metadata: Mutex<Option<Arc<Vec<RecordBatch>>>>,
    live_metadata: Mutex<Option<Arc<Vec<RecordBatch>>>>,
    live: OnceLock<LiveIds>,
}

impl Cache {
    /// Opens the newest generation of the cache at `path`: reads the manifest and checks that every file is there with its
    /// length.
    ///
    /// Its files are read as `pool` says, and kept open by it.
    ///
    /// # Errors
    /// [`CacheError::NotFound`] without a manifest, [`CacheError::Manifest`] or [`CacheError::UnsupportedVersion`] for
    /// a bad one, [`CacheError::DamagedFile`] for a missing file or one of another length; with later generations
    /// [`CacheError::DamagedGeneration`].
    pub fn open(path: &Path, pool: Arc<FilePool>) -> Result<Self> {
        Self::open_generation(path, pool, Wanted::Newest)
    }

    /// As [`Cache::open`], the wanted generation.
    ///
    /// # Errors
    /// As [`generations::choose`].
    pub fn open_generation(path: &Path, pool: Arc<FilePool>, wanted: Wanted) -> Result<Self> {
        let folder = generations::open_folder(path)?;
        let chosen = generations::choose(&folder, path, wanted)?;
        let identity = folder.identity()?;
        let io = pool.engine(path, &identity);
        Ok(Self::closed(
            path.to_path_buf(),
            identity,
            chosen.manifest,
            chosen.passed_over,
            io,
            pool,
        ))
    }

    /// The same cache with nothing open and nothing locked. Reads nothing.
    pub fn reopened(&self, pool: Arc<FilePool>) -> Self {
        Self::closed(
            self.path.clone(),
            self.identity.clone(),
            self.manifest.clone(),
            self.passed_over.clone(),
            self.io,
            pool,
        )
    }

    fn closed(
        path: PathBuf,
        identity: Identity,
        manifest: Manifest,
        passed_over: Option<String>,
        io: Io,
        pool: Arc<FilePool>,
    ) -> Self {
        let shards = manifest.shards.iter().map(|_| FileSlot::default());
        Self {
            path,
            identity,
            shards: shards.collect(),
            manifest,
            passed_over,
            io,
            pool,
            index: FileSlot::default(),
            checksums: FileSlot::default(),
            dictionary: DictionarySlot::default(),
            stride: Stride::default(),
            verified: Verified::default(),
            metadata: Mutex::default(),
            live_metadata: Mutex::default(),
            live: OnceLock::new(),
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

    /// Why a newer generation than this was passed over.
    pub fn passed_over(&self) -> Option<&str> {
        self.passed_over.as_deref()
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.manifest.sample_count
    }

    /// Number of sample ids ever given: every sample has one below it, and some may be deleted.
    pub fn sample_ids(&self) -> u64 {
        self.manifest.sample_ids()
    }

    /// Whether samples were taken out of the cache.
    pub fn has_deleted(&self) -> bool {
        !self.manifest.deleted_parts().is_empty()
    }

    /// The ids of the samples, if some were taken out: read the first time. Without, they are `0..len`.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] for a file of deleted ids that is not what the manifest describes.
    pub fn live(&self) -> Result<Option<&LiveIds>> {
        if !self.has_deleted() {
            return Ok(None);
        }
        if let Some(live) = self.live.get() {
            return Ok(Some(live));
        }
        let gone = self.deleted_since(0)?;
        let live = LiveIds::new(gone, self.sample_ids()).ok_or_else(|| {
            CacheError::damaged(
                &self.manifest_path(),
                "deleted ids",
                format!("distinct ones below {}", self.sample_ids()),
                "others",
            )
        })?;
        Ok(Some(self.live.get_or_init(|| live)))
    }

    /// The ids that generations after number `generation` took out, in ascending order.
    ///
    /// # Errors
    /// As [`Cache::live`].
    pub fn deleted_since(&self, generation: u64) -> Result<Vec<u64>> {
        let mut gone = Vec::new();
        for part in self.manifest.deleted_parts() {
            if part.generation > generation {
                gone.extend(deleted::read(&self.path, part, self.io)?);
            }
        }
        gone.sort_unstable();
        Ok(gone)
    }

    /// Path of the manifest, for messages.
    pub fn manifest_path(&self) -> PathBuf {
        self.placed(self.manifest.number(), names::MANIFEST)
    }

    /// Path of a file of generation `number`.
    fn placed(&self, number: u64, file: &str) -> PathBuf {
        self.path.join(generation::placed(number, file))
    }

    /// Path of the index, for messages.
    pub fn index_path(&self) -> PathBuf {
        let own = self.manifest.generation.as_ref();
        self.placed(own.map_or(0, |own| own.index), names::INDEX)
    }

    /// Path of the record checksums, for messages.
    pub fn checksums_path(&self) -> PathBuf {
        let own = self.manifest.generation.as_ref();
        self.placed(own.map_or(0, |own| own.checksums), names::CHECKSUMS)
    }

    /// Whether the cache has no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `index.bin`, open.
    pub fn index(&self) -> Result<Arc<FileReader>> {
        let len = self.manifest.index_byte_len();
        self.index.get(&self.pool, || {
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
        self.checksums.get(&self.pool, open).map(Some)
    }

    /// Opens a file that was there when the cache was opened.
    fn open_file(&self, path: &Path, byte_len: u64, purpose: Purpose) -> Result<FileReader> {
        let opened = FileReader::open(path, byte_len, self.io, purpose);
        let is_old = self.manifest.format_version >= generations::GENERATIONS_FORMAT;
        match opened {
            Err(CacheError::DamagedFile { .. }) if is_old && !path.exists() => {
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
            .map(|entry| self.dictionary.get(&path, self.io, entry))
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

    fn dictionary_path(&self) -> PathBuf {
        let own = self.manifest.generation.as_ref();
        self.placed(own.map_or(0, |own| own.dictionary), names::DICTIONARY)
    }

    /// Shard number `shard`, open.
    pub fn shard(&self, shard: u64) -> Result<Arc<FileReader>> {
        let (entry, slot) = self.shard_entry(shard)?;
        let path = self.path.join(entry.file());
        slot.get(&self.pool, || {
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

    /// The metadata of all sample ids, deleted ones too, in batches that point into the files; checked against the manifest
    /// the first time.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] if the checksum, the columns or the number of rows differ.
    pub fn metadata(&self) -> Result<Arc<Vec<RecordBatch>>> {
        let mut slot = lock(&self.metadata);
        if let Some(batches) = slot.as_ref() {
            return Ok(Arc::clone(batches));
        }
        let mut batches = Vec::new();
        for part in self.manifest.metadata_parts().iter() {
            let path = self.placed(part.generation, names::METADATA);
            batches.extend(table::read(&path, self.io, &self.manifest, part)?);
        }
        let batches = Arc::new(batches);
        *slot = Some(Arc::clone(&batches));
        Ok(batches)
    }

    /// The metadata of the samples that are left, one row for each in order.
    ///
    /// # Errors
    /// As [`Cache::metadata`] and [`Cache::live`].
    pub fn live_metadata(&self) -> Result<Arc<Vec<RecordBatch>>> {
        let Some(live) = self.live()? else {
            return self.metadata();
        };
        let mut slot = lock(&self.live_metadata);
        if let Some(batches) = slot.as_ref() {
            return Ok(Arc::clone(batches));
        }
        let batches = Arc::new(table::without(&self.metadata()?, live)?);
        *slot = Some(Arc::clone(&batches));
        Ok(batches)
    }
}

/// Reads and checks the manifest of the newest generation of the cache at `path`.
///
/// # Errors
/// [`CacheError::NotFound`] if there is none, otherwise as [`generations::choose`].
pub fn read_manifest(path: &Path) -> Result<Manifest> {
    let folder = generations::open_folder(path)?;
    generations::choose(&folder, path, Wanted::Newest).map(|chosen| chosen.manifest)
}
