//! The damaged samples that a process has met, as a table.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringViewArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};

use super::Dataset;
use crate::error::{CacheError, Result};
use crate::reader::CorruptSample;

impl Dataset {
    /// The damaged samples that were left out or replaced in this process, one row each, by cache and sample: `cache_id`,
    /// `sample_id`, `path` of the damaged file, and `reason`.
    ///
    /// # Errors
    /// Only internal ones.
    pub fn corrupt_samples(&self) -> Result<(SchemaRef, RecordBatch)> {
        let found = self.recipe()?.caches.corrupt().list();
        let number = |name| Field::new(name, DataType::UInt64, false);
        let text = |name| Field::new(name, DataType::Utf8View, false);
        let schema = Arc::new(ArrowSchema::new(vec![
            number("cache_id"),
            number("sample_id"),
            text("path"),
            text("reason"),
        ]));
        let numbers = |value: fn(&CorruptSample) -> u64| {
            Arc::new(UInt64Array::from_iter_values(found.iter().map(value))) as ArrayRef
        };
        let texts = |value: fn(&CorruptSample) -> String| {
            Arc::new(StringViewArray::from_iter_values(found.iter().map(value))) as ArrayRef
        };
        let columns = vec![
            numbers(|found| u64::from(found.sample.cache)),
            numbers(|found| found.sample.sample),
            texts(|found| found.path.display().to_string()),
            texts(|found| found.reason.clone()),
        ];
        let table = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(|error| {
            CacheError::internal(format!("damaged samples that make no table: {error}"))
        })?;
        Ok((schema, table))
    }
}
