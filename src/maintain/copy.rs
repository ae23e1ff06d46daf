//! A new cache from samples of others: their records are copied as they are stored, under ids of their own.
//!
//! A cache has one zstd dictionary. Where those of the sources differ, the one that most samples were compressed with
//! stays, and payloads that were compressed with another, or without, are compressed again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use super::copier::{Copier, dissect};
use super::window::Windows;
use crate::error::{CacheError, Result};
use crate::format::checksum::{Crc32cHasher, Sha256Digest};
use crate::format::compression::{Algorithm, Decoder, Encoder, Recipe, ZstdParameters, plain};
use crate::format::index::IndexRow;
use crate::format::manifest::{Compression, Manifest};
use crate::format::names::{CHECKSUMS, DICTIONARY, INDEX, MANIFEST, check_source_name};
use crate::format::payload::PayloadSchema;
use crate::format::schema::Schema;
use crate::limits::{CACHE_SAMPLES_MAX, METADATA_BATCH_ROWS, ZSTD_LEVEL_DEFAULT};
use crate::store::cache::Cache;
use crate::store::file::FileReader;
use crate::store::lock::CacheLock;
use crate::store::outflow::flow::{Flow, supervised};
use crate::store::outflow::manifest::{Contents, NewShard, manifest};
use crate::store::outflow::output::{Outputs, Tag};
use crate::store::outflow::table;
use crate::store::publish::Staging;
use crate::store::vfs::Vfs;
use crate::types::{SampleRef, Verify};

/// Samples of some caches, in the order in which they become samples of another.
pub trait Rows: Send {
    /// How many there are.
    fn count(&self) -> u64;

    /// Appends `count` of them, from number `first` on.
    ///
    /// # Errors
    /// Those of finding them.
    fn append(&self, first: u64, count: u64, samples: &mut Vec<SampleRef>) -> Result<()>;

    /// Their metadata, one row for each.
    ///
    /// # Errors
    /// Those of reading it.
    fn metadata(&self, samples: &[SampleRef]) -> Result<RecordBatch>;
}

/// What to copy, and where to.
pub struct CopyRequest<'a> {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// Folder of the caches.
    pub base: &'a Path,
    /// Name of the new cache.
    pub name: &'a str,
    /// The right to write it.
    pub lock: CacheLock,
    /// Length of a shard after which the next is begun, in bytes.
    pub max_shard_bytes: u64,
    /// The caches that samples come from.
    pub caches: Arc<[Arc<Cache>]>,
    /// Their metadata columns.
    pub schema: Schema,
    /// Their payload fields.
    pub payload: Option<PayloadSchema>,
    /// The samples.
    pub rows: Box<dyn Rows>,
}

/// Writes the cache and returns its path. `interrupt` is called at least every 50 ms, but no more once publication has
/// begun.
///
/// # Errors
/// [`CacheError::EmptySource`] without samples; [`CacheError::DamagedRecord`] or [`CacheError::DamagedFile`] for a sample
/// that is not what its checksum says; the error of `interrupt`; as [`Staging::begin`] and [`Staging::publish`].
/// Nothing is left behind but where that says so.
pub fn copy(
    request: CopyRequest<'_>,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<PathBuf> {
    let CopyRequest {
        vfs,
        base,
        name,
        lock,
        max_shard_bytes,
        caches,
        schema,
        payload,
        rows,
    } = request;
    check_source_name(name)?;
    let count = rows.count();
    if count == 0 {
        let name = name.to_owned();
        return Err(CacheError::EmptySource { name });
    }
    if count > CACHE_SAMPLES_MAX {
        let what = "the number of samples of a cache";
        return Err(CacheError::limit(what, count, CACHE_SAMPLES_MAX));
    }
    let staging = Staging::begin(vfs, base, name, lock)?;
    let (staging, written) = supervised("copy", interrupt, move |failure| {
        let flow = Flow::start(staging, failure)?;
        let outputs = flow.outputs()?;
        let dictionary = dictionary(&caches, &*rows, outputs)?;
        if let Some(bytes) = &dictionary {
            let mut file = outputs.open(Tag::Dictionary, DICTIONARY)?;
            file.append(bytes)?;
            file.close()?;
        }
        let shards = records(
            &caches,
            &*rows,
            dictionary.as_deref(),
            max_shard_bytes,
            outputs,
        )?;
        let non_finite = metadata(&schema, &*rows, outputs)?;
        let (staging, digests) = flow.finish()?;
        let contents = Contents {
            samples: count,
            shards,
            schema,
            payload,
            non_finite,
        };
        Ok((staging, manifest(contents, &digests)?))
    })?;
    let manifest = Manifest {
        source_name: name.to_owned(),
        ..written
    };
    staging.publish(MANIFEST, &manifest.to_bytes()?)
}

/// Calls `visit` with the samples, some thousands at a time, and the number of the first.
fn for_each_run(
    rows: &dyn Rows,
    outputs: &Outputs,
    mut visit: impl FnMut(u64, &[SampleRef]) -> Result<()>,
) -> Result<()> {
    let mut samples = Vec::new();
    let (mut first, count) = (0, rows.count());
    while first < count {
        outputs.failure.check()?;
        let next = (METADATA_BATCH_ROWS as u64).min(count - first);
        samples.clear();
        rows.append(first, next, &mut samples)?;
        visit(first, &samples)?;
        first += next;
    }
    Ok(())
}

fn cache_of(caches: &[Arc<Cache>], sample: SampleRef) -> Result<&Cache> {
    let cache = caches.get(sample.cache as usize);
    let cache = cache.ok_or_else(|| CacheError::internal("a sample of no cache"))?;
    Ok(cache)
}

/// The dictionary that payloads of one cache need, if they need one.
fn dictionary_of(cache: &Cache) -> Option<Sha256Digest> {
    let entry = cache.manifest().dictionary.as_ref();
    entry.map(|entry| entry.sha256)
}

/// The dictionary of most samples in caches with zstd payloads; among equals, that of the first cache.
fn dictionary(
    caches: &[Arc<Cache>],
    rows: &dyn Rows,
    outputs: &Outputs,
) -> Result<Option<Vec<u8>>> {
    if caches.iter().all(|cache| dictionary_of(cache).is_none()) {
        return Ok(None);
    }
    let mut counts = vec![0u64; caches.len()];
    for_each_run(rows, outputs, |_, samples| {
        for sample in samples {
            if let Some(count) = counts.get_mut(sample.cache as usize) {
                *count += 1;
            }
        }
        Ok(())
    })?;
    let is_zstd = |cache: &Cache| {
        let shards = &cache.manifest().shards;
        let mut algorithms = shards.iter().map(|shard| shard.compression.algo);
        algorithms.any(|algorithm| algorithm == Algorithm::Zstd)
    };
    // By dictionary: its samples, and the first cache that has it.
    let mut found: BTreeMap<Option<[u8; 32]>, (u64, usize)> = BTreeMap::new();
    for (place, (cache, count)) in caches.iter().zip(counts).enumerate() {
        if is_zstd(cache) && count > 0 {
            let dictionary = dictionary_of(cache).map(|sha256| sha256.0);
            found.entry(dictionary).or_insert((0, place)).0 += count;
        }
    }
    let most = found
        .into_values()
        .max_by_key(|(count, place)| (*count, usize::MAX - place));
    let chosen = most.and_then(|(_, place)| caches.get(place));
    chosen.map_or(Ok(None), |cache| cache.dictionary_bytes())
}

/// Copies the records, and writes index and checksums.
fn records(
    caches: &[Arc<Cache>],
    rows: &dyn Rows,
    dictionary: Option<&[u8]>,
    max_shard_bytes: u64,
    outputs: &Arc<Outputs>,
) -> Result<Vec<NewShard>> {
    let mut index = outputs.open(Tag::Index, INDEX)?;
    let mut checksums = outputs.open(Tag::Checksums, CHECKSUMS)?;
    let mut copier = Copier::new(outputs, max_shard_bytes);
    let parameters = ZstdParameters::new(ZSTD_LEVEL_DEFAULT, dictionary);
    let recipe = Recipe::Zstd(parameters.map_err(CacheError::internal)?);
    let mut recoder = Recoder {
        target: dictionary.map(Sha256Digest::of),
        encoder: Encoder::new(&recipe).map_err(CacheError::internal)?,
        decoder: Decoder::default(),
        payload: Vec::new(),
        stored: Vec::new(),
    };
    let mut sources = Sources {
        caches,
        windows: Windows::default(),
        last: None,
    };
    for_each_run(rows, outputs, |first, samples| {
        for (id, sample) in (first..).zip(samples) {
            outputs.failure.check()?;
            let (cache, row, record, compression) = sources.verified(*sample)?;
            let damaged = |found| CacheError::DamagedRecord {
                path: cache.shard_path(row.shard),
                sample_id: sample.sample,
                offset: row.offset,
                subject: "record".to_owned(),
                expected: "metadata and payload as the manifest describes them".to_owned(),
                found,
            };
            let (head, stored, len) = dissect(compression.algo, record).map_err(damaged)?;
            let stored = recoder
                .stored(cache, compression.algo, stored)
                .map_err(damaged)?;
            let place = copier.push(compression, &[head, stored], len)?;
            let row = IndexRow {
                shard: place.shard,
                offset: place.offset,
                byte_len: (head.len() + stored.len()) as u64,
            };
            index.append(&row.to_bytes())?;
            let mut checksum = Crc32cHasher::default();
            for part in [head, stored, &id.to_le_bytes()] {
                checksum.update(part);
            }
            let checksum = checksum.finish();
            checksums.append(&checksum.0.to_le_bytes())?;
        }
        Ok(())
    })?;
    index.close()?;
    checksums.close()?;
    copier.close()
}

/// Records of several caches that are what their checksums say.
struct Sources<'a> {
    caches: &'a [Arc<Cache>],
    windows: Windows,
    /// The cache of the last sample, with its open tables.
    last: Option<(u32, Arc<FileReader>, Option<Arc<FileReader>>)>,
}

impl<'a> Sources<'a> {
    fn verified(&mut self, sample: SampleRef) -> Result<(&'a Cache, IndexRow, &[u8], Compression)> {
        let cache = cache_of(self.caches, sample)?;
        let (_, index, checksums) = match &mut self.last {
            Some(last) if last.0 == sample.cache => last,
            last => last.insert((sample.cache, cache.index()?, cache.checksums()?)),
        };
        let row = cache.index_row(index, sample.sample)?;
        let entry = usize::try_from(row.shard).ok();
        let entry = entry.and_then(|shard| cache.manifest().shards.get(shard));
        let entry = entry.ok_or_else(|| CacheError::internal("a record of no shard"))?;
        let of = (sample.cache, cache);
        let (shard, record) = self
            .windows
            .record(of, row.shard, row.offset, row.byte_len)?;
        let files = (&**index, checksums.as_deref(), shard);
        cache.verify_record(files, row, sample.sample, record, Verify::Always)?;
        Ok((cache, row, record, entry.compression))
    }
}

/// Brings payloads of other dictionaries under that of the new cache.
struct Recoder<'a> {
    target: Option<Sha256Digest>,
    encoder: Encoder<'a>,
    decoder: Decoder,
    payload: Vec<u8>,
    stored: Vec<u8>,
}

impl Recoder<'_> {
    fn stored<'b>(
        &'b mut self,
        cache: &Cache,
        algorithm: Algorithm,
        stored: &'b [u8],
    ) -> std::result::Result<&'b [u8], String> {
        if algorithm != Algorithm::Zstd
            || dictionary_of(cache) == self.target
            || plain(algorithm, stored).is_some()
        {
            return Ok(stored);
        }
        let dictionary = cache.dictionary().map_err(|error| error.to_string())?;
        self.payload.clear();
        self.decoder
            .append(algorithm, dictionary, stored, &mut self.payload)?;
        self.stored.clear();
        self.encoder.store(&self.payload, &mut self.stored)?;
        Ok(&self.stored)
    }
}

/// Writes the metadata table; returns whether a float was NaN or infinite.
fn metadata(schema: &Schema, rows: &dyn Rows, outputs: &Arc<Outputs>) -> Result<bool> {
    let mut file = table::create(schema, outputs)?;
    let mut non_finite = false;
    for_each_run(rows, outputs, |_, samples| {
        let batch = rows.metadata(samples)?;
        non_finite |= has_non_finite(&batch);
        table::arrow(file.write(&batch), outputs)
    })?;
    table::ended(file, outputs)?.close()?;
    Ok(non_finite)
}

fn has_non_finite(batch: &RecordBatch) -> bool {
    let floats = batch.columns().iter();
    let mut floats = floats.filter(|column| *column.data_type() == DataType::Float64);
    floats.any(|column| {
        let values = column.as_primitive::<Float64Type>();
        values.iter().flatten().any(|value| !value.is_finite())
    })
}
