//! The full check of a cache: every file against its hash, every record against its checksum and the metadata table.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use super::cache::{Cache, check_sha256};
use super::file::{FileReader, Purpose};
use crate::error::{CacheError, Result};
use crate::format::columns::Value;
use crate::format::row::Rows;
use crate::format::{compression, envelope, names};
use crate::types::{Io, Verify};

/// Reads the whole cache and compares everything that is stored twice.
///
/// # Errors
/// The first damage found, as [`CacheError::DamagedFile`] or [`CacheError::DamagedRecord`].
pub fn validate(cache: &Cache) -> Result<()> {
    let manifest = cache.manifest();
    let index = cache.index()?;
    check_sha256(&index, manifest.index_sha256)?;
    let checksums = cache.checksums()?;
    if let (Some(file), Some(entry)) = (&checksums, &manifest.record_checksums) {
        check_sha256(file, entry.sha256)?;
    }
    let metadata_path = cache.path().join(names::METADATA);
    let metadata_len = super::folder::file_len(&metadata_path)?;
    let metadata = FileReader::open(&metadata_path, metadata_len, Io::Pread, Purpose::Records)?;
    check_sha256(&metadata, manifest.metadata_sha256)?;
    for (number, entry) in (0..).zip(&manifest.shards) {
        check_sha256(&*cache.shard(number)?, entry.sha256)?;
    }
    let mut sample = 0;
    for batch in cache.metadata()?.iter() {
        for row in 0..batch.num_rows() {
            validate_record(cache, &index, checksums.as_ref(), sample, batch, row)?;
            sample += 1;
        }
    }
    Ok(())
}

fn validate_record(
    cache: &Cache,
    index: &FileReader,
    checksums: Option<&Arc<FileReader>>,
    sample: u64,
    batch: &RecordBatch,
    batch_row: usize,
) -> Result<()> {
    let row = cache.index_row(index, sample)?;
    let shard = cache.shard(row.shard)?;
    let mut scratch = Vec::new();
    let record = shard.view(row.offset, row.byte_len, &mut scratch)?;
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
    let mut rows = Rows::default();
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
    let entry = usize::try_from(row.shard)
        .ok()
        .and_then(|shard| cache.manifest().shards.get(shard));
    if let Some(entry) = entry {
        let algorithm = entry.compression.algo;
        let restored = compression::payload_len(algorithm, stored).and_then(|len| {
            let mut payload = vec![0; len];
            compression::restore_into(algorithm, stored, &mut payload)
        });
        restored.map_err(|found| fault("record", whole.to_owned(), found))?;
    }
    Ok(())
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
