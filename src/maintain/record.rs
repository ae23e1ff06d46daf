//! Checks one record: its checksum, its parts, its metadata against the table, and that its payload can be restored.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_schema::DataType;

use super::findings::{Kind, Place};
use super::rows::Entry;
use super::tables::Tables;
use super::verify::Check;
use crate::error::CacheError;
use crate::format::checksum::Crc32c;
use crate::format::columns::Value;
use crate::format::compression::{Decoder, payload_len, plain};
use crate::format::manifest::ShardEntry;
use crate::format::payload::FieldPlace;
use crate::format::row::Rows;
use crate::format::{envelope, names};
use crate::limits::PAYLOAD_BYTES_MAX;

/// What a record is expected to be as a whole.
const WHOLE: &str = "metadata and payload as the manifest describes them";

/// Memory used again for each record.
#[derive(Debug, Default)]
pub struct Scratch {
    payload: Vec<u8>,
    decoder: Decoder,
    rows: Rows,
    extents: Vec<u64>,
    places: Vec<FieldPlace>,
}

/// All records of a cache under check.
#[derive(Debug)]
pub struct Records<'a> {
    pub check: &'a Check<'a>,
    pub tables: &'a Tables,
    sums: Vec<Sum>,
}

/// What the records of a shard add up to.
#[derive(Debug, Default)]
struct Sum {
    payload_bytes: AtomicU64,
    /// Whether the shard was read to its end.
    is_read: AtomicBool,
}

impl<'a> Records<'a> {
    /// The records that `tables` lead to.
    pub fn new(check: &'a Check<'a>, tables: &'a Tables) -> Self {
        let shards = check.contents.manifest.shards.iter();
        Self {
            check,
            tables,
            sums: shards.map(|_| Sum::default()).collect(),
        }
    }

    /// Notes that a record is not what it should be.
    pub fn find(&self, entry: Entry, path: &Path, kind: Kind, subject: &str, found: String) {
        let expected = WHOLE.to_owned();
        self.find_at(entry, 0, path, kind, (subject, expected, found));
    }

    fn find_at(
        &self,
        entry: Entry,
        column: usize,
        path: &Path,
        kind: Kind,
        (subject, expected, found): (&str, String, String),
    ) {
        let error = CacheError::DamagedRecord {
            path: path.to_path_buf(),
            sample_id: entry.sample,
            offset: entry.row.offset,
            subject: subject.to_owned(),
            expected,
            found,
        };
        let place = Place::Record(entry.sample, column);
        self.check.find(place, kind, error);
    }

    /// Checks one record; `path` is that of its shard, for messages.
    pub fn check(&self, entry: Entry, path: &Path, record: &[u8], scratch: &mut Scratch) {
        if let Some(expected) = entry.checksum {
            let found = Crc32c::of_record(record, entry.sample);
            if found != expected {
                let values = (format!("crc32c {expected}"), format!("crc32c {found}"));
                let fault = ("checksum of the record", values.0, values.1);
                return self.find_at(entry, 0, path, Kind::RecordChecksum, fault);
            }
        }
        let checked = self.check_parts(entry, path, record, scratch);
        match (checked, self.sum(entry.row.shard)) {
            (Ok(len), Some(sum)) => {
                sum.payload_bytes.fetch_add(len as u64, Ordering::Relaxed);
            }
            (Ok(_), None) => {}
            (Err(found), _) => self.find(entry, path, Kind::RecordFormat, "record", found),
        }
    }

    /// Checks what a record consists of; returns the length of its payload, or says what is wrong.
    fn check_parts(
        &self,
        entry: Entry,
        path: &Path,
        record: &[u8],
        scratch: &mut Scratch,
    ) -> Result<usize, String> {
        let (json, stored) = envelope::split(record)?;
        self.check_metadata(entry, path, json, &mut scratch.rows)?;
        let manifest = self.check.contents.manifest;
        let algorithm = self
            .shard(entry.row.shard)
            .map(|shard| shard.compression.algo);
        let algorithm = algorithm.ok_or("a shard that the manifest does not have")?;
        let len = payload_len(algorithm, stored)?;
        let payload = match plain(algorithm, stored) {
            Some(payload) => payload,
            // What is wrong with the dictionary was told already.
            None if manifest.dictionary.is_some() && self.tables.dictionary.is_none() => {
                return Ok(len);
            }
            None if len as u64 > PAYLOAD_BYTES_MAX => {
                return Err(format!(
                    "a payload of {len} bytes, more than {PAYLOAD_BYTES_MAX}"
                ));
            }
            None => {
                let (out, dictionary) = (&mut scratch.payload, self.tables.dictionary.as_ref());
                out.clear();
                scratch.decoder.append(algorithm, dictionary, stored, out)?;
                out
            }
        };
        if let Some(fields) = &manifest.payload {
            fields.split(payload, &mut scratch.extents, &mut scratch.places)?;
        }
        Ok(len)
    }

    /// Compares the metadata in a record with the table.
    fn check_metadata(
        &self,
        entry: Entry,
        path: &Path,
        json: &[u8],
        rows: &mut Rows,
    ) -> Result<(), String> {
        let schema = &self.check.contents.manifest.metadata_schema;
        rows.clear();
        rows.push(schema, json)?;
        let Some((batch, batch_row)) = self.tables.metadata(entry.sample) else {
            return Ok(());
        };
        let columns = schema.columns().iter();
        let embedded = rows.row(0, schema.columns().len());
        for (number, ((column, embedded), array)) in
            columns.zip(embedded).zip(batch.columns()).enumerate()
        {
            let tabled = cell(array.as_ref(), batch_row);
            if !same(embedded, tabled) {
                let (name, table) = (&column.name, names::METADATA);
                let subject = format!("embedded metadata column `{name}` against {table}");
                let fault = (&*subject, format!("{tabled:?}"), format!("{embedded:?}"));
                self.find_at(entry, number, path, Kind::MetadataMismatch, fault);
            }
        }
        Ok(())
    }

    /// Compares the payload bytes of each shard with the manifest, where all its records were sound.
    pub fn compare_sums(&self) {
        let contents = &self.check.contents;
        let manifest = contents.manifest;
        let has_rows = self.tables.rows.len() >= manifest.sample_ids();
        // Payloads of samples that are gone are still counted by the manifest.
        if !self.check.is_whole() || !has_rows || !manifest.deleted_parts().is_empty() {
            return;
        }
        for (number, (entry, sum)) in manifest.shards.iter().zip(&self.sums).enumerate() {
            let found = sum.payload_bytes.load(Ordering::Relaxed);
            let is_read = sum.is_read.load(Ordering::Relaxed);
            let (true, Ok(file)) = (is_read, contents.shard(number)) else {
                continue;
            };
            if entry.uncompressed_byte_len == found {
                continue;
            }
            let subject = "payload bytes of the shard before compression";
            let expected = format!(
                "{} bytes, as the manifest says",
                entry.uncompressed_byte_len
            );
            let found = format!("{found} bytes in its records");
            let error = CacheError::damaged(&file.path, subject, expected, found);
            self.check
                .find(Place::Shard(number), Kind::PayloadBytes, error);
        }
    }

    /// Notes that a shard was read to its end.
    pub fn is_read(&self, shard: usize) {
        if let Some(sum) = self.sums.get(shard) {
            sum.is_read.store(true, Ordering::Relaxed);
        }
    }

    fn shard(&self, number: u64) -> Option<&ShardEntry> {
        let shards = &self.check.contents.manifest.shards;
        shards.get(usize::try_from(number).ok()?)
    }

    fn sum(&self, shard: u64) -> Option<&Sum> {
        self.sums.get(usize::try_from(shard).ok()?)
    }
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
