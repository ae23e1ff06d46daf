//! `cache_stats`: numbers of one cache, and tables of its shards and generations.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, RecordBatch, StringArray, TimestampSecondArray, UInt64Array,
};
use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::errors::to_pyerr;
use super::signals::detached;
use crate::error::{CacheError, Result};
use crate::format::compression::Algorithm;
use crate::maintain::stats::{GenerationStats, ShardStats, stats};
use crate::store::generations::Wanted;

/// Path, generation, samples, sample ids, bytes of metadata, bytes of the index, shards, generations.
type Stats = (OsString, u64, u64, u64, u64, u64, ArrowTable, ArrowTable);

/// Describes a cache without reading a record.
#[pyfunction]
#[pyo3(signature = (path, generation = None))]
pub fn cache_stats(py: Python<'_>, path: PathBuf, generation: Option<u64>) -> PyResult<Stats> {
    let wanted = generation.map_or(Wanted::Newest, Wanted::Number);
    let found = detached(py, |interrupt| stats(&path, wanted, interrupt))?;
    Ok((
        found.path.into_os_string(),
        found.generation,
        found.samples,
        found.sample_ids,
        found.metadata_bytes,
        found.index_bytes,
        table(shards(&found.shards)).map_err(to_pyerr)?,
        table(generations(&found.generations)).map_err(to_pyerr)?,
    ))
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn table(columns: Columns) -> Result<ArrowTable> {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    );
    let batch = batch.map_err(|error| CacheError::internal(format!("statistics: {error}")))?;
    Ok(ArrowTable::new(batch.schema(), vec![batch]))
}

fn numbers<T>(rows: &[T], number: impl Fn(&T) -> u64) -> ArrayRef {
    Arc::new(
        rows.iter()
            .map(|row| Some(number(row)))
            .collect::<UInt64Array>(),
    )
}

fn shards(rows: &[ShardStats]) -> Columns {
    let places = 0..rows.len() as u64;
    let paths = rows.iter().map(|row| Some(row.path.to_string_lossy()));
    let algorithms = rows.iter().map(|row| {
        Some(match row.algorithm {
            Algorithm::None => "none",
            Algorithm::Lz4 => "lz4",
            Algorithm::Zstd => "zstd",
        })
    });
    vec![
        (
            "shard",
            Arc::new(places.collect::<UInt64Array>()) as ArrayRef,
        ),
        ("generation", numbers(rows, |row| row.generation)),
        ("path", Arc::new(paths.collect::<StringArray>())),
        ("algorithm", Arc::new(algorithms.collect::<StringArray>())),
        ("records", numbers(rows, |row| row.records.records)),
        (
            "live_records",
            numbers(rows, |row| row.records.live_records),
        ),
        ("byte_len", numbers(rows, |row| row.byte_len)),
        ("live_bytes", numbers(rows, |row| row.records.live_bytes)),
        ("dead_bytes", numbers(rows, ShardStats::dead_bytes)),
        ("payload_bytes", numbers(rows, |row| row.payload_bytes)),
    ]
}

fn generations(rows: &[GenerationStats]) -> Columns {
    let operations = rows.iter().map(|row| {
        let operation = row.operation;
        Some(operation.map_or("write", |operation| operation.name()))
    });
    let created = rows.iter().map(|row| {
        let seconds = row.created_unix;
        seconds.and_then(|seconds| i64::try_from(seconds).ok())
    });
    let removed = rows.iter().map(|row| Some(row.removed));
    let created = created.collect::<TimestampSecondArray>();
    vec![
        ("generation", numbers(rows, |row| row.number)),
        ("operation", Arc::new(operations.collect::<StringArray>())),
        ("created", Arc::new(created.with_timezone("UTC"))),
        ("samples", numbers(rows, |row| row.samples)),
        ("added", numbers(rows, |row| row.added)),
        ("deleted", numbers(rows, |row| row.deleted)),
        ("bytes", numbers(rows, |row| row.bytes)),
        ("removed", Arc::new(removed.collect::<BooleanArray>())),
    ]
}
