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

use super::rows::Rows;
use super::weights::Weights;
use crate::error::{CacheError, Result};
use crate::format::metadata::arrow_schema;
use crate::format::schema::Schema;
use crate::limits::METADATA_BATCH_ROWS;
use crate::store::cache::Cache;

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
pub fn table(
    caches: &[Arc<Cache>],
    schema: &Schema,
    rows: &Rows,
    weights: &Weights,
) -> Result<Vec<RecordBatch>> {
    let output = table_schema(schema);
    let mut batches = Vec::new();
    let mut pending = Pending {
        schema: arrow_schema(schema),
        parts: Vec::new(),
        rows: 0,
    };
    let mut first = 0;
    for cache in caches {
        for batch in cache.metadata()?.iter() {
            pending.push(batch.clone())?;
            if pending.rows >= METADATA_BATCH_ROWS / 2 {
                let part = pending.take()?;
                first = finish(&part, first, rows, weights, &output, &mut batches)?;
            }
        }
    }
    if pending.rows > 0 || batches.is_empty() {
        finish(
            &pending.take()?,
            first,
            rows,
            weights,
            &output,
            &mut batches,
        )?;
    }
    Ok(batches)
}

/// Batches of small caches on their way into one.
struct Pending {
    schema: SchemaRef,
    parts: Vec<RecordBatch>,
    rows: usize,
}

impl Pending {
    /// Takes a batch of any cache; a column may be nullable in one cache and not in another.
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            batch.columns().to_vec(),
            &options,
        );
        self.parts.push(batch.map_err(|error| internal(&error))?);
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

/// Adds identity and weight to a batch that starts at row `first`; returns the row after it.
fn finish(
    metadata: &RecordBatch,
    first: u64,
    rows: &Rows,
    weights: &Weights,
    output: &SchemaRef,
    batches: &mut Vec<RecordBatch>,
) -> Result<u64> {
    let count = metadata.num_rows();
    let end = first + count as u64;
    let (mut caches, mut samples) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut row = first;
    while row < end {
        let sample = rows.sample(row)?;
        let (start, len) = rows.cache(u64::from(sample.cache)).unwrap_or((row, 0));
        let run_end = end.min(start + len);
        caches.resize(
            caches.len() + (run_end - row) as usize,
            u64::from(sample.cache),
        );
        samples.extend(row - start..run_end - start);
        row = run_end;
    }
    let weight = match weights {
        Weights::Equal => ScalarBuffer::from(vec![1.0; count]),
        Weights::Each(weights) => weights.slice(first as usize, count),
    };
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from(caches)),
        Arc::new(UInt64Array::from(samples)),
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
    batches
        .push(RecordBatch::try_new(Arc::clone(output), columns).map_err(|error| internal(&error))?);
    Ok(end)
}

fn internal(error: &ArrowError) -> CacheError {
    CacheError::internal(format!(
        "the samples metadata table cannot be assembled: {error}"
    ))
}
