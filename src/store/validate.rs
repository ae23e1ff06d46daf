//! The full check of a cache: every file against its hash, every record against its checksum and the metadata table.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use super::cache::Cache;
use super::file::{FileReader, Purpose};
use super::live::LiveIds;
use super::verify::check_sha256;
use crate::error::{CacheError, Result};
use crate::format::columns::Value;
use crate::format::compression::{Algorithm, Decoder};
use crate::format::generation::placed;
use crate::format::row::Rows;
use crate::format::{compression, envelope, names};
use crate::types::{Io, Verify};

/// How often the caller is asked whether to go on.
const PATIENCE: Duration = Duration::from_millis(50);

/// Reads the whole cache and compares everything that is stored twice.
///
/// `interrupt` is called at the beginning, then about every 50 ms; its error ends the check and is returned.
///
/// # Errors
/// The first damage found, as [`CacheError::DamagedFile`] or [`CacheError::DamagedRecord`].
pub fn validate(cache: &Cache, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let mut asked = None;
    let mut pause = || {
        if asked.is_some_and(|asked: Instant| asked.elapsed() < PATIENCE) {
            return Ok(());
        }
        asked = Some(Instant::now());
        interrupt()
    };
    pause()?;
    check(cache, &mut pause)
}

fn check(cache: &Cache, pause: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let manifest = cache.manifest();
    let index = cache.index()?;
    check_sha256(&index, manifest.index_sha256, pause)?;
    let checksums = cache.checksums()?;
    if let (Some(file), Some(entry)) = (&checksums, &manifest.record_checksums) {
        check_sha256(file, entry.sha256, pause)?;
    }
    for part in manifest.metadata_parts().iter() {
        let path = cache.path().join(placed(part.generation, names::METADATA));
        let len = super::folder::file_len(&path)?;
        let metadata = FileReader::open(&path, len, Io::Pread, Purpose::Records)?;
        check_sha256(&metadata, part.sha256, pause)?;
    }
    let mut deleted = cache
        .live()?
        .into_iter()
        .flat_map(LiveIds::deleted)
        .peekable();
    cache.dictionary()?;
    for (number, entry) in (0..).zip(&manifest.shards) {
        check_sha256(&*cache.shard(number)?, entry.sha256, pause)?;
    }
    let mut payload_bytes = vec![0u64; manifest.shards.len()];
    let mut scratch = Scratch::default();
    let mut sample = 0;
    for batch in cache.metadata()?.iter() {
        for row in 0..batch.num_rows() {
            pause()?;
            if deleted.next_if_eq(&sample).is_some() {
                sample += 1;
                continue;
            }
            let files = (&*index, checksums.as_ref());
            let (shard, len) = check_record(cache, files, sample, batch, row, &mut scratch)?;
            let sum = usize::try_from(shard)
                .ok()
                .and_then(|shard| payload_bytes.get_mut(shard));
            if let Some(sum) = sum {
                *sum = sum.saturating_add(len as u64);
            }
            sample += 1;
        }
    }
    // The payloads of deleted samples are still counted by the manifest.
    if cache.has_deleted() {
        return Ok(());
    }
    for ((number, entry), found) in (0..).zip(&manifest.shards).zip(payload_bytes) {
        if entry.uncompressed_byte_len != found {
            return Err(CacheError::damaged(
                &cache.shard_path(number),
                "payload bytes of the shard before compression",
                format!(
                    "{} bytes, as the manifest says",
                    entry.uncompressed_byte_len
                ),
                format!("{found} bytes in its records"),
            ));
        }
    }
    Ok(())
}

/// Memory used again for each record.
#[derive(Default)]
struct Scratch {
    record: Vec<u8>,
    payload: Vec<u8>,
    decoder: Decoder,
    rows: Rows,
}

/// Checks one record; returns its shard and the length of its payload.
fn check_record(
    cache: &Cache,
    (index, checksums): (&FileReader, Option<&Arc<FileReader>>),
    sample: u64,
    batch: &RecordBatch,
    batch_row: usize,
    scratch: &mut Scratch,
) -> Result<(u64, usize)> {
    let row = cache.index_row(index, sample)?;
    let shard = cache.shard(row.shard)?;
    let record = shard.view(row.offset, row.byte_len, &mut scratch.record)?;
    if let Some(checksums) = checksums {
        cache.verify_record(
            (index, Some(checksums), &shard),
            row,
            sample,
            record,
            Verify::Always,
        )?;
    }
    let fault = |subject: &str, expected: String, found: String| CacheError::DamagedRecord {
        path: shard.path().to_path_buf(),
        sample_id: sample,
        offset: row.offset,
        subject: subject.to_owned(),
        expected,
        found,
    };
    let whole = "metadata and payload as the manifest describes them";
    let (json, stored) =
        envelope::split(record).map_err(|found| fault("record", whole.to_owned(), found))?;
    let schema = &cache.manifest().metadata_schema;
    let rows = &mut scratch.rows;
    rows.clear();
    rows.push(schema, json)
        .map_err(|found| fault("record", whole.to_owned(), found))?;
    for (column, (embedded, array)) in schema
        .columns()
        .iter()
        .zip(rows.row(0, schema.columns().len()).zip(batch.columns()))
    {
        let tabled = cell(array.as_ref(), batch_row);
        if !same(embedded, tabled) {
            let subject = format!(
                "embedded metadata column `{}` against {}",
                column.name,
                names::METADATA
            );
            return Err(fault(
                &subject,
                format!("{tabled:?}"),
                format!("{embedded:?}"),
            ));
        }
    }
    let algorithm = usize::try_from(row.shard)
        .ok()
        .and_then(|shard| cache.manifest().shards.get(shard))
        .map_or(Algorithm::None, |entry| entry.compression.algo);
    let damaged = |found| fault("record", whole.to_owned(), found);
    let len = compression::payload_len(algorithm, stored).map_err(damaged)?;
    if compression::plain(algorithm, stored).is_none() {
        scratch.payload.clear();
        let dictionary = cache.dictionary()?;
        scratch
            .decoder
            .append(algorithm, dictionary, stored, &mut scratch.payload)
            .map_err(damaged)?;
    }
    Ok((row.shard, len))
}

/// Value of one cell of a metadata batch.
fn cell(array: &dyn Array, row: usize) -> Value<'_> {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Int64 => Value::Int(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float64 => Value::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => Value::Str(array.as_string::<i32>().value(row)),
        _ => Value::Null,
    }
}

/// Equality in which a NaN equals itself and the two zeros differ.
fn same(a: Value<'_>, b: Value<'_>) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        (a, b) => a == b,
    }
}
