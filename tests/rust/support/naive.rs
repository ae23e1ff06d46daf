//! The slowest and plainest reader: every file whole in memory, every promise of the format checked on the way.

use std::fs;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use dataset_rt::format::checksum::{Crc32c, Sha256Digest};
use dataset_rt::format::columns::Value;
use dataset_rt::format::compression::{Decoder, Dictionary, payload_len};
use dataset_rt::format::envelope;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::manifest::Manifest;
use dataset_rt::format::metadata;
use dataset_rt::format::names::{CHECKSUMS, DICTIONARY, INDEX, MANIFEST, METADATA, SHARDS};
use dataset_rt::format::row::Rows;
use dataset_rt::format::schema::{Kind, Schema};

/// A metadata value; floats compare by their bits.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Float(u64),
    Str(String),
}

impl Cell {
    pub fn of(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Int(value) => Self::Int(value),
            Value::Float(value) => Self::Float(value.to_bits()),
            Value::Str(value) => Self::Str(value.to_owned()),
        }
    }

    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Float(value) => Value::Float(f64::from_bits(*value)),
            Self::Str(value) => Value::Str(value),
        }
    }
}

/// A sample: payload, and values in column order.
pub type Sample = (Vec<u8>, Vec<Cell>);

/// A cache as read.
pub struct Naive {
    pub manifest: Manifest,
    pub index: Vec<IndexRow>,
    pub samples: Vec<Sample>,
}

/// Reads and checks a whole cache.
pub fn read(path: &Path) -> Naive {
    let file = |name: &str| fs::read(path.join(name)).unwrap();
    let manifest = Manifest::parse(&path.join(MANIFEST), &file(MANIFEST)).unwrap();
    let shards: Vec<Vec<u8>> = manifest
        .shards
        .iter()
        .map(|entry| {
            let bytes = file(&format!("{SHARDS}/{}", entry.name));
            assert_eq!(bytes.len() as u64, entry.byte_len);
            assert_eq!(Sha256Digest::of(&bytes), entry.sha256);
            bytes
        })
        .collect();
    let index = file(INDEX);
    assert_eq!(Sha256Digest::of(&index), manifest.index_sha256);
    assert_eq!(index.len() as u64, manifest.index_byte_len());
    let table = file(METADATA);
    assert_eq!(Sha256Digest::of(&table), manifest.metadata_sha256);
    if let Some(crc32c) = manifest.metadata_crc32c {
        assert_eq!(Crc32c::of(&table), crc32c);
    }
    let checksums = manifest.record_checksums.as_ref().map(|entry| {
        let bytes = file(CHECKSUMS);
        assert_eq!(Sha256Digest::of(&bytes), entry.sha256);
        assert_eq!(bytes.len() as u64, manifest.checksums_byte_len());
        bytes
    });
    let dictionary = manifest.dictionary.as_ref().map(|entry| {
        let bytes = file(DICTIONARY);
        assert_eq!(Sha256Digest::of(&bytes), entry.sha256);
        assert_eq!(bytes.len() as u64, entry.byte_len);
        Dictionary::digest(&bytes).unwrap()
    });
    let rows = table_rows(&table, &manifest.metadata_schema, manifest.sample_count);

    let width = manifest.metadata_schema.columns().len();
    let mut uncompressed = vec![0; shards.len()];
    let index: Vec<IndexRow> = index
        .chunks(24)
        .map(|row| IndexRow::from_bytes(row).unwrap())
        .collect();
    let mut samples = Vec::new();
    for (id, row) in index.iter().enumerate() {
        let shard = row.shard as usize;
        let record = &shards[shard][row.offset as usize..][..row.byte_len as usize];
        if let Some(checksums) = &checksums {
            let expected = u32::from_le_bytes(checksums[4 * id..][..4].try_into().unwrap());
            assert_eq!(Crc32c::of_record(record, id as u64), Crc32c(expected));
        }
        let (json, stored) = envelope::split(record).unwrap();
        let algorithm = manifest.shards[shard].compression.algo;
        let mut payload = vec![0; payload_len(algorithm, stored).unwrap()];
        Decoder::default()
            .restore_into(algorithm, dictionary.as_ref(), stored, &mut payload)
            .unwrap();
        uncompressed[shard] += payload.len() as u64;
        let mut decoded = Rows::default();
        decoded.push(&manifest.metadata_schema, json).unwrap();
        let cells: Vec<Cell> = decoded.row(0, width).map(Cell::of).collect();
        assert_eq!(cells, rows[id], "sample {id}: record and table differ");
        samples.push((payload, cells));
    }
    for (entry, found) in manifest.shards.iter().zip(uncompressed) {
        assert_eq!(entry.uncompressed_byte_len, found);
    }
    Naive {
        manifest,
        index,
        samples,
    }
}

fn table_rows(file: &[u8], schema: &Schema, rows: u64) -> Vec<Vec<Cell>> {
    let batches = metadata::decode(&Buffer::from_vec(file.to_vec()), schema, rows).unwrap();
    let row_of = |batch: &RecordBatch, row: usize| {
        let columns = schema.columns().iter().enumerate();
        columns
            .map(|(position, spec)| cell(batch.column(position), spec.kind, row))
            .collect()
    };
    batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |row| row_of(batch, row)))
        .collect()
}

fn cell(array: &dyn Array, kind: Kind, row: usize) -> Cell {
    if array.is_null(row) {
        return Cell::Null;
    }
    match kind {
        Kind::Bool => Cell::Bool(array.as_boolean().value(row)),
        Kind::Int => Cell::Int(array.as_primitive::<Int64Type>().value(row)),
        Kind::Float => Cell::Float(array.as_primitive::<Float64Type>().value(row).to_bits()),
        Kind::String => Cell::Str(match array.as_string_opt::<i32>() {
            Some(texts) => texts.value(row).to_owned(),
            None => array.as_string_view().value(row).to_owned(),
        }),
    }
}

/// The rows of a table whose column types say the kinds.
pub fn cells(batch: &RecordBatch) -> Vec<Vec<Cell>> {
    let kind = |array: &dyn Array| match array.data_type() {
        DataType::Boolean => Kind::Bool,
        DataType::Int64 => Kind::Int,
        DataType::Float64 => Kind::Float,
        _ => Kind::String,
    };
    let row_of = |row| {
        let columns = batch.columns().iter();
        columns
            .map(|column| cell(column, kind(column), row))
            .collect()
    };
    (0..batch.num_rows()).map(row_of).collect()
}
