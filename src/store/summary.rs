//! What there is to know of a cache without reading a payload: what its manifest says, and its index and checksums as
//! columns.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::cache::Cache;
use super::file::FileReader;
use super::generations::{self, Wanted};
use crate::error::{CacheError, Result};
use crate::format::compression::Algorithm;
use crate::format::generation::Operation;
use crate::format::index::{IndexRow, ROW_BYTES};
use crate::format::manifest::{CHECKSUM_BYTES, Manifest, ShardEntry};
use crate::format::names;
use crate::format::payload::FieldSpec;
use crate::format::schema::Schema;

/// Rows of a table that are looked at together.
const BLOCK_ROWS: u64 = 1 << 16;

/// What the manifest of a cache says, and the lengths of its files.
#[derive(Debug, Serialize)]
pub struct Summary {
    path: PathBuf,
    name: String,
    samples: u64,
    /// Sample ids that were deleted.
    deleted: u64,
    format_version: u32,
    generation: u64,
    /// What made the generation, and when, in seconds since 1970; nothing for a cache that was never changed.
    operation: Option<Operation>,
    created_unix: Option<u64>,
    shards: usize,
    /// Bytes of all files of the generation but its manifest.
    stored_bytes: u64,
    shard_bytes: u64,
    metadata_bytes: u64,
    /// Payload bytes before compression, those of deleted samples included.
    payload_bytes: u64,
    /// Shards by the algorithm of their payloads.
    compression: BTreeMap<Algorithm, usize>,
    dictionary_bytes: u64,
    record_checksums: bool,
    metadata: Schema,
    /// Fields of typed payloads; nothing for plain bytes.
    payload: Option<Vec<FieldSpec>>,
    source_version: Option<String>,
    created_by: Option<String>,
}

/// What there is to know of the newest generation of the cache at `path` without opening a file but the manifest.
///
/// # Errors
/// As [`generations::choose`].
pub fn summary(path: &Path) -> Result<Summary> {
    let folder = generations::open_folder(path)?;
    let manifest = generations::choose(&folder, path, Wanted::Newest)?.manifest;
    let (mut stored_bytes, mut metadata_bytes) = (0u64, 0u64);
    for (name, len) in manifest.files() {
        let found = match len {
            Some(len) => len,
            // Only of metadata tables the manifest does not say it.
            None => folder.stat(&name)?.len,
        };
        metadata_bytes = metadata_bytes.saturating_add(if len.is_none() { found } else { 0 });
        stored_bytes = stored_bytes.saturating_add(found);
    }
    let sum = |part: fn(&ShardEntry) -> u64| {
        let shards = manifest.shards.iter();
        shards.fold(0u64, |sum, shard| sum.saturating_add(part(shard)))
    };
    let own = manifest.generation.as_ref();
    Ok(Summary {
        path: path.to_path_buf(),
        samples: manifest.sample_count,
        deleted: manifest.sample_ids().saturating_sub(manifest.sample_count),
        format_version: manifest.format_version,
        generation: manifest.number(),
        operation: own.map(|own| own.operation),
        created_unix: own.map(|own| own.created_unix),
        shards: manifest.shards.len(),
        stored_bytes,
        shard_bytes: sum(|shard| shard.byte_len),
        metadata_bytes,
        payload_bytes: sum(|shard| shard.uncompressed_byte_len),
        compression: compression(&manifest),
        dictionary_bytes: manifest.dictionary.as_ref().map_or(0, |d| d.byte_len),
        record_checksums: manifest.record_checksums.is_some(),
        payload: manifest.payload.map(|schema| schema.fields().to_vec()),
        metadata: manifest.metadata_schema,
        name: manifest.source_name,
        source_version: manifest.source_version,
        created_by: manifest.created_by,
    })
}

fn compression(manifest: &Manifest) -> BTreeMap<Algorithm, usize> {
    let mut shards = BTreeMap::new();
    for shard in &manifest.shards {
        *shards.entry(shard.compression.algo).or_default() += 1;
    }
    shards
}

/// The cache at `path`, or the caches that lie directly in it, by name.
///
/// Only names are looked at; hidden ones are left out. A path that is neither is returned itself, so that opening it says
/// what is wrong with it.
///
/// # Errors
/// [`CacheError::Io`] if the directory cannot be listed.
pub fn find(path: &Path) -> Result<Vec<PathBuf>> {
    let is_cache = |path: &Path| path.join(names::MANIFEST).exists();
    if is_cache(path) || !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let listed = |error| CacheError::io("list", path, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(listed)? {
        let entry = entry.map_err(listed)?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && is_cache(&entry.path()) {
            found.push(entry.path());
        }
    }
    found.sort();
    if found.is_empty() {
        found.push(path.to_path_buf());
    }
    Ok(found)
}

/// Stored bytes of each record, metadata included; no payload is read.
///
/// # Errors
/// [`CacheError::Io`] or [`CacheError::DamagedFile`] if the index cannot be read.
pub fn record_lengths(cache: &Cache) -> Result<Vec<u64>> {
    let index = cache.index()?;
    column(&index, ROW_BYTES, |row| {
        IndexRow::from_bytes(row).map(|row| row.byte_len)
    })
}

/// The checksum of each record, which covers its id, metadata and stored payload; nothing for a cache without them.
///
/// # Errors
/// [`CacheError::Io`] or [`CacheError::DamagedFile`] if the checksums cannot be read.
pub fn record_checksums(cache: &Cache) -> Result<Option<Vec<u64>>> {
    let Some(file) = cache.checksums()? else {
        return Ok(None);
    };
    let value = |row: &[u8]| Some(u32::from_le_bytes(row.try_into().ok()?).into());
    column(&file, CHECKSUM_BYTES, value).map(Some)
}

/// A value of each row of a table whose rows have `width` bytes.
fn column(file: &FileReader, width: u64, value: impl Fn(&[u8]) -> Option<u64>) -> Result<Vec<u64>> {
    let rows = file.len() / width;
    let capacity = usize::try_from(rows)
        .map_err(|_| CacheError::limit("rows of a table", rows, usize::MAX as u64))?;
    let mut values = Vec::with_capacity(capacity);
    let mut scratch = Vec::new();
    for first in (0..rows).step_by(BLOCK_ROWS as usize) {
        let count = BLOCK_ROWS.min(rows - first);
        let block = file.view(first * width, count * width, &mut scratch)?;
        values.extend(block.chunks_exact(width as usize).filter_map(&value));
    }
    Ok(values)
}
