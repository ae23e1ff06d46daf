//! What a cache holds and what compaction would give back, from manifests, index and deleted ids: no record and no
//! metadata row is read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::usage::{ShardUse, usage};
use crate::error::{CacheError, Result};
use crate::format::compression::Algorithm;
use crate::format::generation::{Operation, placed};
use crate::format::manifest::Manifest;
use crate::format::names::{MANIFEST, METADATA};
use crate::store::cache::Cache;
use crate::store::folder::Folder;
use crate::store::generations::{Wanted, list, open_folder, read_manifest};
use crate::store::outflow::flow::supervised;
use crate::store::pool::FilePool;
use crate::types::Io;

/// What a cache holds.
#[derive(Clone, Debug)]
pub struct Stats {
    /// The cache directory, resolved.
    pub path: PathBuf,
    /// The generation that is described.
    pub generation: u64,
    /// Samples.
    pub samples: u64,
    /// Sample ids ever given.
    pub sample_ids: u64,
    /// Bytes of the metadata tables.
    pub metadata_bytes: u64,
    /// Bytes of index and record checksums.
    pub index_bytes: u64,
    /// Its shards, in the order of the manifest.
    pub shards: Vec<ShardStats>,
    /// All generations of the cache that can still be told of, in order.
    pub generations: Vec<GenerationStats>,
}

/// One shard.
#[derive(Clone, Debug)]
pub struct ShardStats {
    /// The generation that wrote it.
    pub generation: u64,
    /// The file.
    pub path: PathBuf,
    /// How payloads are stored.
    pub algorithm: Algorithm,
    /// What lies in it.
    pub records: ShardUse,
    /// Its length in bytes.
    pub byte_len: u64,
    /// Bytes of its payloads before compression, those of deleted samples too.
    pub payload_bytes: u64,
}

impl ShardStats {
    /// Bytes that compaction would leave behind.
    pub fn dead_bytes(&self) -> u64 {
        self.byte_len.saturating_sub(self.records.live_bytes)
    }
}

/// One generation.
#[derive(Clone, Debug)]
pub struct GenerationStats {
    /// Its number.
    pub number: u64,
    /// What made it; none for the first.
    pub operation: Option<Operation>,
    /// When, in seconds since 1970; not known of the first.
    pub created_unix: Option<u64>,
    /// Samples that it gave.
    pub samples: u64,
    /// Samples that it added.
    pub added: u64,
    /// Samples that it took out.
    pub deleted: u64,
    /// Bytes of the files in its folder that it wrote, as far as they are there.
    pub bytes: u64,
    /// Whether a vacuum has given it up.
    pub removed: bool,
}

/// Describes a cache. `interrupt` is called at least every 50 ms.
///
/// # Errors
/// As [`Cache::open_generation`]; [`CacheError::DamagedRecord`] for an index row that points outside the shards; the error
/// of `interrupt`.
pub fn stats(
    path: &Path,
    wanted: Wanted,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Stats> {
    let folder = open_folder(path)?;
    let path =
        std::fs::canonicalize(path).map_err(|error| CacheError::io("resolve", path, error))?;
    supervised("stats", interrupt, move |failure| {
        let cache = Cache::open_generation(&path, Arc::new(FilePool::new(Io::Auto)), wanted)?;
        let found = usage(&cache, &mut || failure.check())?;
        let manifest = cache.manifest();
        let shard =
            |(entry, records): (&crate::format::manifest::ShardEntry, ShardUse)| ShardStats {
                generation: entry.generation,
                path: path.join(entry.file()),
                algorithm: entry.compression.algo,
                records,
                byte_len: entry.byte_len,
                payload_bytes: entry.uncompressed_byte_len,
            };
        let tables = manifest.metadata_parts();
        let tables = tables.iter().map(|part| placed(part.generation, METADATA));
        let checksums = manifest.record_checksums.as_ref();
        Ok(Stats {
            generation: manifest.number(),
            samples: manifest.sample_count,
            sample_ids: manifest.sample_ids(),
            metadata_bytes: tables.map(|name| len_of(&folder, &name)).sum(),
            index_bytes: manifest.index_byte_len()
                + checksums.map_or(0, |_| manifest.checksums_byte_len()),
            shards: manifest.shards.iter().zip(found).map(shard).collect(),
            generations: generations(&folder, &path)?,
            path,
        })
    })
}

/// Every generation whose manifest can be read. What is wrong with another is for a verification to say.
fn generations(folder: &Folder, path: &Path) -> Result<Vec<GenerationStats>> {
    let numbers = [0].into_iter().chain(list(path)?);
    let manifests = numbers.filter_map(|number| read_manifest(folder, path, number).ok());
    Ok(manifests
        .map(|manifest| generation(folder, &manifest))
        .collect())
}

fn generation(folder: &Folder, manifest: &Manifest) -> GenerationStats {
    let number = manifest.number();
    let operation = manifest.generation.as_ref().map(|own| own.operation);
    let own_files = manifest
        .files()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| is_of(number, name))
        .chain([placed(number, MANIFEST)]);
    let tables = manifest.metadata_parts();
    let own_tables = tables.iter().filter(|part| part.generation == number);
    let gone = manifest.deleted_parts().iter();
    let gone = gone.filter(|part| part.generation == number);
    GenerationStats {
        number,
        operation,
        created_unix: manifest.generation.as_ref().map(|own| own.created_unix),
        samples: manifest.sample_count,
        added: match operation {
            None => manifest.sample_count,
            Some(Operation::Append) => own_tables.map(|part| part.rows).sum(),
            Some(Operation::Delete | Operation::Compact | Operation::Repair) => 0,
        },
        deleted: gone.map(|part| part.count).sum(),
        bytes: own_files.map(|name| len_of(folder, &name)).sum(),
        removed: manifest.removed,
    }
}

/// Whether a file lies in the folder of generation `number`.
fn is_of(number: u64, name: &str) -> bool {
    match number {
        0 => !name.starts_with(crate::format::names::GENERATIONS),
        _ => name.starts_with(&placed(number, "")),
    }
}

/// Length of a file, 0 if it is not there.
fn len_of(folder: &Folder, name: &str) -> u64 {
    folder.stat(name).map_or(0, |found| found.len)
}
