//! The samples metadata table: identity, metadata columns in name order, weight; one row per active row, in row order.
//!
//! Metadata columns point into the files where the caches are large; strings are handed out as views, the form Polars uses
//! itself. Small caches are gathered into batches of a useful length.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, StringViewArray, UInt64Array};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema as ArrowSchema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;

use super::active::ActiveRows;
use super::caches::Caches;
use super::weights::Weights;
use crate::error::{CacheError, Result};
use crate::format::metadata::arrow_schema;
use crate::format::schema::Schema;
use crate::limits::METADATA_BATCH_ROWS;

/// Schema of the table for a metadata schema.
pub fn table_schema(schema: &Schema) -> SchemaRef {
    let metadata = arrow_schema(schema);
    let columns = metadata
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            DataType::Utf8 => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)),
            _ => Arc::clone(field),
        });
    let identity =
        ["cache_id", "sample_id"].map(|name| Arc::new(Field::new(name, DataType::UInt64, false)));
    let weight = Arc::new(Field::new("weight", DataType::Float64, false));
    Arc::new(ArrowSchema::new(
        identity
            .into_iter()
            .chain(columns)
            .chain([weight])
            .collect::<Vec<_>>(),
    ))
}

/// The whole table in batches.
///
/// # Errors
/// As [`Cache::metadata`] for a damaged metadata file.
///
/// [`Cache::metadata`]: crate::store::cache::Cache::metadata
pub fn table(caches: &Caches, rows: &ActiveRows, weights: &Weights) -> Result<Vec<RecordBatch>> {
    let mut assembly = Assembly {
        caches,
        rows,
        weights,
        output: table_schema(caches.schema()),
        next_row: 0,
        batches: Vec::new(),
    };
    match rows {
        ActiveRows::All => every_row(caches, &mut assembly)?,
        ActiveRows::Chosen(chosen) => chosen_rows(caches, chosen, &mut assembly)?,
    }
    Ok(assembly.batches)
}

/// The metadata of all caches, batch by batch.
fn every_row(caches: &Caches, assembly: &mut Assembly<'_>) -> Result<()> {
    let mut pending = Pending {
        schema: arrow_schema(caches.schema()),
        parts: Vec::new(),
        rows: 0,
    };
    for cache in caches.list().iter() {
        for batch in cache.metadata()?.iter() {
            pending.push(batch.clone())?;
            if pending.rows >= METADATA_BATCH_ROWS / 2 {
                assembly.add(&pending.take()?)?;
            }
        }
    }
    if pending.rows > 0 {
        assembly.add(&pending.take()?)?;
    }
    Ok(())
}

/// The metadata of these physical rows, gathered.
fn chosen_rows(caches: &Caches, chosen: &[u64], assembly: &mut Assembly<'_>) -> Result<()> {
    let schema = arrow_schema(caches.schema());
    let mut parts: Vec<RecordBatch> = Vec::new();
    // First physical row of each part.
    let mut starts = Vec::new();
    let mut next = 0;
    for cache in caches.list().iter() {
        for batch in cache.metadata()?.iter() {
            starts.push(next);
            next += batch.num_rows() as u64;
            parts.push(with_schema(batch, &schema)?);
        }
    }
    let parts: Vec<&RecordBatch> = parts.iter().collect();
    for block in chosen.chunks(METADATA_BATCH_ROWS) {
        let place = |row: &u64| {
            let part = starts
                .partition_point(|start| start <= row)
                .saturating_sub(1);
            (
                part,
                (row - starts.get(part).copied().unwrap_or(0)) as usize,
            )
        };
        let places: Vec<(usize, usize)> = block.iter().map(place).collect();
        let gathered = if schema.fields().is_empty() {
            empty_columns(&schema, block.len())?
        } else {
            interleave_record_batch(&parts, &places).map_err(|error| internal(&error))?
        };
        assembly.add(&gathered)?;
    }
    Ok(())
}

fn empty_columns(schema: &SchemaRef, rows: usize) -> Result<RecordBatch> {
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), Vec::new(), &options)
        .map_err(|error| internal(&error))
}

/// The batch under the common schema: a column may be nullable in one cache and not in another.
fn with_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| internal(&error))
}

/// Batches of small caches on their way into one.
struct Pending {
    schema: SchemaRef,
    parts: Vec<RecordBatch>,
    rows: usize,
}

impl Pending {
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        self.parts.push(with_schema(&batch, &self.schema)?);
        Ok(())
    }

    fn take(&mut self) -> Result<RecordBatch> {
        self.rows = 0;
        let parts = std::mem::take(&mut self.parts);
        match <[RecordBatch; 1]>::try_from(parts) {
            Ok([only]) => Ok(only),
            Err(parts) => concat_batches(&self.schema, &parts).map_err(|error| internal(&error)),
        }
    }
}

/// Adds identity and weight to metadata that comes in row order.
struct Assembly<'a> {
    caches: &'a Caches,
    rows: &'a ActiveRows,
    weights: &'a Weights,
    output: SchemaRef,
    next_row: u64,
    batches: Vec<RecordBatch>,
}

impl Assembly<'_> {
    fn add(&mut self, metadata: &RecordBatch) -> Result<()> {
        let count = metadata.num_rows();
        let (first, end) = (self.next_row, self.next_row + count as u64);
        self.next_row = end;
        let (cache_ids, sample_ids) = match self.rows {
            ActiveRows::All => self.consecutive(first, end)?,
            ActiveRows::Chosen(_) => self.scattered(first, end)?,
        };
        let weight = match self.weights {
            Weights::Equal(weight) => ScalarBuffer::from(vec![*weight; count]),
            Weights::Each(weights) => weights.slice(first as usize, count),
        };
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(cache_ids)),
            Arc::new(UInt64Array::from(sample_ids)),
        ];
        columns.extend(
            metadata
                .columns()
                .iter()
                .map(|column| match column.data_type() {
                    DataType::Utf8 => {
                        Arc::new(StringViewArray::from(column.as_string::<i32>())) as ArrayRef
                    }
                    _ => Arc::clone(column),
                }),
        );
        columns.push(Arc::new(Float64Array::new(weight, None)));
        let batch = RecordBatch::try_new(Arc::clone(&self.output), columns)
            .map_err(|error| internal(&error))?;
        self.batches.push(batch);
        Ok(())
    }

    /// Identity of physical rows, cache by cache.
    fn consecutive(&self, first: u64, end: u64) -> Result<(Vec<u64>, Vec<u64>)> {
        let count = (end - first) as usize;
        let (mut cache_ids, mut sample_ids) =
            (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut row = first;
        while row < end {
            let sample = self.caches.sample(row)?;
            let (start, len) = self
                .caches
                .rows()
                .cache(u64::from(sample.cache))
                .unwrap_or((row, 0));
            let run_end = end.min(start + len);
            cache_ids.resize(
                cache_ids.len() + (run_end - row) as usize,
                u64::from(sample.cache),
            );
            sample_ids.extend(row - start..run_end - start);
            row = run_end;
        }
        Ok((cache_ids, sample_ids))
    }

    fn scattered(&self, first: u64, end: u64) -> Result<(Vec<u64>, Vec<u64>)> {
        let count = (end - first) as usize;
        let (mut cache_ids, mut sample_ids) =
            (Vec::with_capacity(count), Vec::with_capacity(count));
        for row in first..end {
            let sample = self.rows.sample(self.caches, row)?;
            cache_ids.push(u64::from(sample.cache));
            sample_ids.push(sample.sample);
        }
        Ok((cache_ids, sample_ids))
    }
}

fn internal(error: &ArrowError) -> CacheError {
    CacheError::internal(format!(
        "the samples metadata table cannot be assembled: {error}"
    ))
}
