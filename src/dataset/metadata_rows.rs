//! Metadata of some samples, out of the metadata tables of their caches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use arrow_select::interleave::interleave_record_batch;

use super::caches::Caches;
use super::samples_metadata::with_schema;
use crate::error::{CacheError, Result};
use crate::format::metadata::arrow_schema;
use crate::types::SampleRef;

/// Metadata columns in name order, one row per sample, in the order of `samples`.
///
/// # Errors
/// As [`crate::store::cache::Cache::metadata`].
pub fn metadata_of(caches: &Caches, samples: &[SampleRef]) -> Result<RecordBatch> {
    let schema = arrow_schema(caches.schema());
    if schema.fields().is_empty() {
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(samples.len()));
        return RecordBatch::try_new_with_options(schema, Vec::new(), &options)
            .map_err(|error| internal(&error));
    }
    let mut tables = HashMap::new();
    // The record batches that hold a sample, and where each sample is among them.
    let mut used: Vec<RecordBatch> = Vec::new();
    let mut places = Vec::with_capacity(samples.len());
    for sample in samples {
        let table = match tables.entry(sample.cache) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                let cache = caches.list().get(sample.cache as usize);
                let cache = cache.ok_or_else(|| CacheError::internal("a sample of no cache"))?;
                vacant.insert(Table::new(cache.metadata()?))
            }
        };
        places.push(table.place(sample.sample, |batch| {
            used.push(with_schema(batch, &schema)?);
            Ok(used.len() - 1)
        })?);
    }
    if used.is_empty() {
        return Ok(RecordBatch::new_empty(schema));
    }
    let used: Vec<&RecordBatch> = used.iter().collect();
    interleave_record_batch(&used, &places).map_err(|error| internal(&error))
}

/// The metadata of one cache.
struct Table {
    batches: Arc<Vec<RecordBatch>>,
    /// First row of each batch.
    starts: Vec<u64>,
    /// For each batch its place among those used, once it is.
    used: Vec<Option<usize>>,
}

impl Table {
    fn new(batches: Arc<Vec<RecordBatch>>) -> Self {
        let mut next = 0;
        let mut start = |batch: &RecordBatch| {
            let start = next;
            next += batch.num_rows() as u64;
            start
        };
        Self {
            starts: batches.iter().map(&mut start).collect(),
            used: vec![None; batches.len()],
            batches,
        }
    }

    /// Where a sample is: number of the batch among those used, and row in it. `add` adds a batch to those.
    fn place(
        &mut self,
        sample: u64,
        add: impl FnOnce(&RecordBatch) -> Result<usize>,
    ) -> Result<(usize, usize)> {
        let fault = || CacheError::internal("a sample beyond its metadata table");
        let after = self.starts.partition_point(|start| *start <= sample);
        let number = after.checked_sub(1).ok_or_else(fault)?;
        let start = self.starts.get(number).ok_or_else(fault)?;
        let slot = self.used.get_mut(number).ok_or_else(fault)?;
        let place = match *slot {
            Some(place) => place,
            None => add(self.batches.get(number).ok_or_else(fault)?)?,
        };
        *slot = Some(place);
        Ok((place, (sample - start) as usize))
    }
}

fn internal(error: &ArrowError) -> CacheError {
    CacheError::internal(format!("metadata of samples cannot be assembled: {error}"))
}
