//! The samples metadata table: identity, metadata columns in name order, weight; one row per active row, in row order.
//!
//! Metadata columns point into the files where the caches are large; strings are handed out as views, the form Polars uses
//! itself. Small caches are gathered into batches of a useful length.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, StringViewArray, UInt64Array,
};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{ArrowError, DataType, Field, Schema as ArrowSchema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;

use super::active::ActiveRows;
use super::caches::Caches;
use super::identity::{Identities, Identity};
use super::weights::Weights;
use crate::error::{CacheError, Result};
use crate::format::metadata::arrow_schema;
use crate::format::schema::Schema;
use crate::limits::METADATA_BATCH_ROWS;
use crate::sync::{available_threads, try_map_on_threads};

/// Threads beyond this wait for memory, not for the processor.
const THREADS_MAX: usize = 8;

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
/// As [`Cache::metadata`] for a damaged metadata file, and as [`Caches::check_table`].
///
/// [`Cache::metadata`]: crate::store::cache::Cache::metadata
pub fn table(caches: &Caches, rows: &ActiveRows, weights: &Weights) -> Result<Vec<RecordBatch>> {
    caches.check_table()?;
    let threads = available_threads().min(THREADS_MAX);
    let metadata = try_map_on_threads(threads, caches.list(), |cache| cache.live_metadata())?;
    let input = arrow_schema(caches.schema());
    let mut sources = Vec::new();
    for batch in metadata.iter().flat_map(|batches| batches.iter()) {
        sources.push(with_schema(batch, &input)?);
    }
    let parts = match rows {
        ActiveRows::All => consecutive(&sources),
        ActiveRows::Chosen(chosen) => scattered(&sources, chosen),
    };
    let output = table_schema(caches.schema());
    let longest = parts.iter().map(|part| part.count).max().unwrap_or(0);
    let equal = match weights {
        Weights::Equal(weight) => ScalarBuffer::from(vec![*weight; longest]),
        Weights::Each(_) => ScalarBuffer::from(Vec::new()),
    };
    let identities = Identities::new(
        caches,
        rows,
        parts.iter().map(|part| (part.first_row, part.count)),
    );
    let places: Vec<usize> = (0..parts.len()).collect();
    try_map_on_threads(threads, &places, |place| {
        let part = parts
            .get(*place)
            .ok_or_else(|| CacheError::internal("a part of the table is gone"))?;
        let weight = match weights {
            Weights::Equal(_) => equal.slice(0, part.count),
            Weights::Each(weights) => {
                let rows = weights
                    .iter()
                    .skip(part.first_row as usize)
                    .take(part.count);
                rows.copied().collect()
            }
        };
        finish(
            &part.metadata(&input)?,
            &identities.get(*place)?,
            weight,
            &output,
        )
    })
}

/// Consecutive rows of the table, and where their metadata comes from.
struct Part<'a> {
    first_row: u64,
    count: usize,
    from: From<'a>,
}

enum From<'a> {
    /// These batches, one after the other.
    Whole(&'a [RecordBatch]),
    /// These rows of these batches.
    Places(&'a [RecordBatch], Vec<(usize, usize)>),
}

/// All rows, in parts of one large batch or of several small ones.
fn consecutive(sources: &[RecordBatch]) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut first_row, mut start, mut count) = (0, 0, 0);
    for (place, batch) in sources.iter().enumerate() {
        count += batch.num_rows();
        if count >= METADATA_BATCH_ROWS / 2 || place + 1 == sources.len() {
            let from = From::Whole(sources.get(start..=place).unwrap_or_default());
            parts.push(Part {
                first_row,
                count,
                from,
            });
            first_row += count as u64;
            (start, count) = (place + 1, 0);
        }
    }
    parts
}

/// These physical rows, in parts of a fixed length.
fn scattered<'a>(sources: &'a [RecordBatch], chosen: &[u64]) -> Vec<Part<'a>> {
    let mut starts = Vec::with_capacity(sources.len());
    let mut next = 0;
    for batch in sources {
        starts.push(next);
        next += batch.num_rows() as u64;
    }
    let place = |row: &u64| {
        let source = starts
            .partition_point(|start| start <= row)
            .saturating_sub(1);
        (
            source,
            (row - starts.get(source).copied().unwrap_or(0)) as usize,
        )
    };
    let blocks = (0..)
        .step_by(METADATA_BATCH_ROWS)
        .zip(chosen.chunks(METADATA_BATCH_ROWS));
    blocks
        .map(|(first_row, block)| Part {
            first_row,
            count: block.len(),
            from: From::Places(sources, block.iter().map(place).collect()),
        })
        .collect()
}

impl Part<'_> {
    fn metadata(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let gathered = match &self.from {
            From::Whole([only]) => return Ok(only.clone()),
            From::Whole(batches) => concat_batches(schema, *batches),
            // Without columns there is nothing to gather, and no batch would know its length.
            From::Places(_, places) if schema.fields().is_empty() => {
                let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
                RecordBatch::try_new_with_options(Arc::clone(schema), Vec::new(), &options)
            }
            From::Places(batches, places) => {
                interleave_record_batch(&batches.iter().collect::<Vec<_>>(), places)
            }
        };
        gathered.map_err(|error| internal(&error))
    }
}

/// Metadata with identity before it and weight after it.
fn finish(
    metadata: &RecordBatch,
    identity: &Identity,
    weight: ScalarBuffer<f64>,
    output: &SchemaRef,
) -> Result<RecordBatch> {
    let numbers =
        |values: &ScalarBuffer<u64>| Arc::new(UInt64Array::new(values.clone(), None)) as ArrayRef;
    let mut columns = vec![numbers(&identity.cache_ids), numbers(&identity.sample_ids)];
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
    RecordBatch::try_new(Arc::clone(output), columns).map_err(|error| internal(&error))
}

/// The batch under the common schema: a column may be nullable in one cache and not in another.
pub(super) fn with_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)
        .map_err(|error| internal(&error))
}

fn internal(error: &ArrowError) -> CacheError {
    CacheError::internal(format!(
        "the samples metadata table cannot be assembled: {error}"
    ))
}
