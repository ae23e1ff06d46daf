//! Samples delivered together, as Python takes them apart: each part is built when it is asked for.

use std::sync::Arc;

use pyo3::prelude::*;

use super::arrow::ArrowTable;
use super::buffer::NativeArray;
use super::errors::to_pyerr;
use super::state;
use crate::dataset::{Batch, Recipe, Step};
use crate::error::CacheError;
use crate::reader::Column;
use crate::sync::{Mutex, lock};

/// The parts of a `CachedBatch`. Columns are taken out once; the class in `dataset_rt.batch` keeps what it took.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct NativeBatch {
    batch: Batch,
    columns: Mutex<Vec<Option<Column>>>,
    place: Option<Place>,
}

/// Where in an order a batch was delivered.
pub struct Place {
    /// Its step.
    pub step: Step,
    /// What decided the order.
    pub recipe: Arc<Recipe>,
}

impl NativeBatch {
    /// Parts of `batch`, which stood at `place` if it was not asked for by rows.
    pub fn new(mut batch: Batch, place: Option<Place>) -> Self {
        let columns = std::mem::take(&mut batch.columns);
        Self {
            batch,
            columns: Mutex::new(columns.into_iter().map(Some).collect()),
            place,
        }
    }
}

#[pymethods]
impl NativeBatch {
    fn __len__(&self) -> usize {
        self.batch.samples.len()
    }

    /// The values of a column as bytes; then, in bytes, where each of them starts and the last one ends, if they differ in
    /// length; then the extents of their open axes.
    fn column(
        &self,
        number: usize,
    ) -> PyResult<(NativeArray, Option<NativeArray>, Option<NativeArray>)> {
        let taken = lock(&self.columns).get_mut(number).and_then(Option::take);
        let Column { values, extent } = taken.ok_or_else(|| {
            to_pyerr(CacheError::internal(
                "a column was taken out of a batch twice",
            ))
        })?;
        let is_open = !extent.open_extents.is_empty();
        Ok((
            NativeArray::from_slot(values),
            extent.offsets.map(NativeArray::from_u64),
            is_open.then(|| NativeArray::from_u64(extent.open_extents)),
        ))
    }

    /// Cache of each sample (u64).
    fn cache_id(&self) -> NativeArray {
        let samples = self.batch.samples.iter();
        NativeArray::from_u64(samples.map(|sample| u64::from(sample.cache)).collect())
    }

    /// Row of each sample in its cache (u64).
    fn sample_id(&self) -> NativeArray {
        let samples = self.batch.samples.iter();
        NativeArray::from_u64(samples.map(|sample| sample.sample).collect())
    }

    /// Epoch, step, and number of rows that are not padding; `None` for a batch asked for by rows.
    fn place(&self) -> Option<(u32, u64, u64)> {
        let step = &self.place.as_ref()?.step;
        Some((step.epoch, step.step, step.valid))
    }

    /// Rows of damaged samples, which hold nothing (u64); `None` if there are none.
    fn left_out(&self) -> Option<NativeArray> {
        let rows = &self.batch.left_out;
        let numbers = || rows.iter().map(|row| *row as u64).collect();
        (!rows.is_empty()).then(|| NativeArray::from_u64(numbers()))
    }

    /// Position of each sample in its epoch (u64).
    fn position(&self) -> Option<NativeArray> {
        let step = &self.place.as_ref()?.step;
        Some(NativeArray::from_u64(step.positions().collect()))
    }

    /// Metadata columns, one row per sample.
    fn metadata(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let batch = py.detach(|| self.batch.metadata()).map_err(to_pyerr)?;
        Ok(ArrowTable::new(batch.schema(), vec![batch]))
    }

    /// The state after this batch, as JSON.
    fn state(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let Some(Place { step, recipe }) = &self.place else {
            return Ok(None);
        };
        state::to_json(&py.detach(|| recipe.state(step.after))).map(Some)
    }
}
