//! What is left of a damaged cache: which files are what the manifest says, and which records can be trusted.

use std::path::PathBuf;
use std::sync::Arc;

use super::taken::Taken;
use crate::error::{CacheError, Result};
use crate::format::checksum::{Crc32c, Sha256Digest, Sha256Hasher};
use crate::format::compression::{self, Algorithm};
use crate::format::generation::{DeletedPart, placed};
use crate::format::index::{IndexRow, ROW_BYTES};
use crate::format::manifest::{CHECKSUM_BYTES, Compression};
use crate::format::row::Rows;
use crate::format::{envelope, names};
use crate::store::cache::Cache;
use crate::store::file::{FileReader, Purpose};
use crate::store::folder::file_len;
use crate::sync::{available_threads, try_map_on_threads};
use crate::types::Io;

/// A file as it is, and whether it is what it should be.
#[derive(Debug, Default)]
struct Remains {
    file: Option<FileReader>,
    is_sound: bool,
}

/// What is left of a cache.
#[derive(Debug)]
pub struct Wreck {
    cache: Arc<Cache>,
    index: Remains,
    checksums: Remains,
    shards: Vec<Remains>,
    is_dictionary_sound: bool,
    /// Ids that are gone, in ascending order, and those of them that sound parts name.
    gone: Vec<u64>,
    told: Vec<u64>,
    sound_parts: Vec<DeletedPart>,
    /// Files that are not what they should be.
    damaged: Vec<PathBuf>,
}

/// A record that can be trusted.
#[derive(Clone, Copy, Debug)]
pub struct Trusted {
    /// Where it lies.
    pub row: IndexRow,
    /// How its payload is stored.
    pub compression: Compression,
    /// Bytes of its payload before compression.
    pub payload_len: u64,
    /// Its checksum.
    pub checksum: Crc32c,
}

/// A file to look at.
struct Place {
    path: PathBuf,
    byte_len: Option<u64>,
    sha256: Sha256Digest,
}

impl Wreck {
    /// Reads every file of a cache whose manifest can be trusted, on all threads. `stop` is asked whether to go on.
    ///
    /// # Errors
    /// Those of `stop`, and of [`Taken::look`]; whatever else is wrong with files is no error.
    pub fn look(cache: Arc<Cache>, stop: &(dyn Fn() -> Result<()> + Sync)) -> Result<Self> {
        let (manifest, path) = (cache.manifest(), cache.path());
        let own = manifest.generation.as_ref();
        let place = |generation: u64, name: &str, byte_len, sha256| Place {
            path: path.join(placed(generation, name)),
            byte_len,
            sha256,
        };
        let index = place(
            own.map_or(0, |own| own.index),
            names::INDEX,
            Some(manifest.index_byte_len()),
            manifest.index_sha256,
        );
        let checksums = manifest.record_checksums.as_ref().map(|entry| {
            let generation = own.map_or(0, |own| own.checksums);
            let byte_len = Some(manifest.checksums_byte_len());
            place(generation, names::CHECKSUMS, byte_len, entry.sha256)
        });
        let dictionary = manifest.dictionary.as_ref().map(|entry| {
            let generation = own.map_or(0, |own| own.dictionary);
            place(
                generation,
                names::DICTIONARY,
                Some(entry.byte_len),
                entry.sha256,
            )
        });
        let parts = manifest.metadata_parts();
        let metadata = parts
            .iter()
            .map(|part| place(part.generation, names::METADATA, None, part.sha256));
        let shards = manifest.shards.iter().map(|shard| Place {
            path: path.join(shard.file()),
            byte_len: Some(shard.byte_len),
            sha256: shard.sha256,
        });
        let is_dictionary_due = dictionary.is_some();
        let is_checksummed = checksums.is_some();
        let places: Vec<Place> = [index]
            .into_iter()
            .chain(checksums)
            .chain(dictionary)
            .chain(metadata)
            .chain(shards)
            .collect();
        let found = try_map_on_threads(available_threads(), &places, |place| remains(place, stop))?;
        let damaged = places.iter().zip(&found);
        let damaged = damaged.filter(|(_, found)| !found.is_sound);
        let mut damaged: Vec<PathBuf> = damaged.map(|(place, _)| place.path.clone()).collect();

        let mut found = found.into_iter();
        let index = found.next().unwrap_or_default();
        let checksums = match is_checksummed {
            true => found.next().unwrap_or_default(),
            false => Remains::default(),
        };
        let is_dictionary_sound = match is_dictionary_due {
            true => found.next().is_some_and(|found| found.is_sound),
            false => true,
        };
        let found = found.skip(parts.len());
        let is_left_behind = |id| {
            let bytes = read(&index, id, ROW_BYTES).filter(|_| index.is_sound);
            bytes.and_then(|bytes| IndexRow::from_bytes(&bytes)) == Some(IndexRow::GONE)
        };
        let Taken {
            gone,
            told,
            sound_parts,
            bad_parts,
        } = Taken::look(path, manifest, is_left_behind)?;
        damaged.extend(bad_parts);
        Ok(Self {
            index,
            checksums,
            shards: found.collect(),
            is_dictionary_sound,
            gone,
            told,
            sound_parts,
            damaged,
            cache,
        })
    }

    /// Files that are not what they should be.
    pub fn damaged(&self) -> &[PathBuf] {
        &self.damaged
    }

    /// Ids that are gone, in ascending order.
    pub fn gone(&self) -> &[u64] {
        &self.gone
    }

    /// Those of them that sound parts name.
    pub fn told(&self) -> &[u64] {
        &self.told
    }

    /// The files of deleted ids that can be trusted.
    pub fn sound_parts(&self) -> &[DeletedPart] {
        &self.sound_parts
    }

    /// For each shard that is what it should be, its number among these.
    pub fn kept_shards(&self) -> Vec<Option<u64>> {
        let mut next = 0;
        let shards = self.shards.iter().map(|found| {
            let number = next;
            next += u64::from(found.is_sound);
            found.is_sound.then_some(number)
        });
        shards.collect()
    }

    /// Whether shard number `shard` is what it should be.
    pub fn is_shard_sound(&self, shard: u64) -> bool {
        let shard = usize::try_from(shard).ok();
        shard
            .and_then(|shard| self.shards.get(shard))
            .is_some_and(|found| found.is_sound)
    }

    /// Whether the dictionary is what it should be, or there is none.
    pub fn is_dictionary_sound(&self) -> bool {
        self.is_dictionary_sound
    }

    /// Reads the record of sample `id` into `record`, and its metadata into `rows`, if it can be trusted.
    pub fn record(&self, id: u64, record: &mut Vec<u8>, rows: &mut Rows) -> Option<Trusted> {
        let row = IndexRow::from_bytes(&read(&self.index, id, ROW_BYTES)?)?;
        let shard = usize::try_from(row.shard).ok()?;
        let entry = self.cache.manifest().shards.get(shard)?;
        let remains = self.shards.get(shard)?;
        let end = row.offset.checked_add(row.byte_len)?;
        let file = remains.file.as_ref().filter(|file| end <= file.len())?;
        let mut scratch = Vec::new();
        let bytes = file.view(row.offset, row.byte_len, &mut scratch).ok()?;
        record.clear();
        record.extend_from_slice(bytes);
        let checksum = Crc32c::of_record(record, id);
        let stored = read(&self.checksums, id, CHECKSUM_BYTES);
        let stored = stored.and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)));
        // A file of checksums that is damaged may still hold the right one; where it does not, whole files have to do.
        let is_vouched = !self.checksums.is_sound && self.index.is_sound && remains.is_sound;
        if stored != Some(checksum.0) && !is_vouched {
            return None;
        }
        let (json, payload) = envelope::split(record).ok()?;
        let algorithm = entry.compression.algo;
        let payload_len = compression::payload_len(algorithm, payload).ok()?;
        let needs_dictionary =
            compression::plain(algorithm, payload).is_none() && algorithm == Algorithm::Zstd;
        if needs_dictionary && !self.is_dictionary_sound {
            return None;
        }
        rows.clear();
        rows.push(&self.cache.manifest().metadata_schema, json)
            .ok()?;
        Some(Trusted {
            row,
            compression: entry.compression,
            payload_len: payload_len as u64,
            checksum,
        })
    }
}

/// Row number `id` of a file of rows, as far as the file goes.
fn read(remains: &Remains, id: u64, row_bytes: u64) -> Option<Vec<u8>> {
    let file = remains.file.as_ref()?;
    let start = id.checked_mul(row_bytes)?;
    start
        .checked_add(row_bytes)
        .filter(|end| *end <= file.len())?;
    let mut scratch = Vec::new();
    Some(file.view(start, row_bytes, &mut scratch).ok()?.to_vec())
}

fn remains(place: &Place, stop: &(dyn Fn() -> Result<()> + Sync)) -> Result<Remains> {
    let opened = file_len(&place.path)
        .and_then(|len| FileReader::open(&place.path, len, Io::Auto, Purpose::Records));
    let Ok(file) = opened else {
        return Ok(Remains::default());
    };
    let mut hasher = Sha256Hasher::default();
    let mut stopped = Ok(());
    let read = file.for_each_piece(|piece| {
        hasher.update(piece);
        stopped = stop();
        match stopped {
            Ok(()) => Ok(()),
            Err(_) => Err(CacheError::Interrupted),
        }
    });
    stopped?;
    let is_long = place.byte_len.is_none_or(|expected| expected == file.len());
    let is_sound = read.is_ok() && is_long && hasher.finish() == place.sha256;
    Ok(Remains {
        file: Some(file),
        is_sound,
    })
}
