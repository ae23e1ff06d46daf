//! Samples delivered together, as Python takes them apart: each part is built when it is asked for.

use std::sync::Arc;

use numpy::npyffi::npy_intp;
use numpy::{PyArray1, PyArrayDescr};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::arrow::ArrowTable;
use super::buffer::{NativeArray, ndarray};
use super::errors::to_pyerr;
use super::state;
use crate::dataset::{Batch, Recipe, Step};
use crate::error::CacheError;
use crate::reader::Column;
use crate::sync::{Mutex, lock};

/// The parts of a `CachedBatch`.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct NativeBatch {
    batch: Batch,
    columns: Mutex<Vec<Part>>,
    place: Option<Place>,
}

/// Values as bytes; then, in bytes, where each of them starts and the last one ends, if they differ in length; then the
/// extents of their open axes.
type Arrays = (
    Py<NativeArray>,
    Option<Py<PyArray1<i64>>>,
    Option<Py<PyArray1<i64>>>,
);

/// A column, before and after it was first asked for.
enum Part {
    Read(Column),
    Shown(Arrays),
    /// Its arrays could not be made.
    Lost,
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
            columns: Mutex::new(columns.into_iter().map(Part::Read).collect()),
            place,
        }
    }
}

#[pymethods]
impl NativeBatch {
    fn __len__(&self) -> usize {
        self.batch.samples.len()
    }

    /// The arrays of a column: the same ones every time.
    fn column(&self, py: Python<'_>, number: usize) -> PyResult<Arrays> {
        let mut columns = lock(&self.columns);
        let part = columns
            .get_mut(number)
            .ok_or_else(|| to_pyerr(CacheError::internal("a column beyond the last")))?;
        let arrays = match std::mem::replace(part, Part::Lost) {
            Part::Read(column) => arrays(py, column)?,
            Part::Shown(arrays) => arrays,
            Part::Lost => return Err(to_pyerr(CacheError::internal("a column that was lost"))),
        };
        let (values, offsets, extents) = &arrays;
        let share =
            |array: &Option<Py<PyArray1<i64>>>| array.as_ref().map(|array| array.clone_ref(py));
        let shared = (values.clone_ref(py), share(offsets), share(extents));
        *part = Part::Shown(arrays);
        Ok(shared)
    }

    /// The columns by name, for fields of fixed shape: `fields` are their names, NumPy types and extents, in column order.
    fn dense<'py>(
        &self,
        py: Python<'py>,
        fields: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let rows = self.batch.samples.len() as npy_intp;
        let values = PyDict::new(py);
        let mut shape = Vec::new();
        for (number, field) in fields.iter_borrowed().enumerate() {
            let field = field.cast::<PyTuple>()?;
            let dtype = field.get_item(1)?.cast_into::<PyArrayDescr>()?;
            shape.clear();
            shape.push(rows);
            for extent in field.get_item(2)?.cast::<PyTuple>()?.iter_borrowed() {
                shape.push(extent.extract()?);
            }
            let memory = self.column(py, number)?.0.into_bound(py);
            let array = ndarray(memory, dtype, &mut shape)?;
            values.set_item(field.get_item(0)?, array)?;
        }
        Ok(values)
    }

    /// Cache of each sample (u64).
    fn cache_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        let samples = self.batch.samples.iter();
        PyArray1::from_iter(py, samples.map(|sample| u64::from(sample.cache)))
    }

    /// Row of each sample in its cache (u64).
    fn sample_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        let samples = self.batch.samples.iter();
        PyArray1::from_iter(py, samples.map(|sample| sample.sample))
    }

    /// Epoch, step, and number of rows that are not padding; `None` for a batch asked for by rows.
    fn place(&self) -> Option<(u32, u64, u64)> {
        let step = &self.place.as_ref()?.step;
        Some((step.epoch, step.step, step.valid))
    }

    /// Rows of damaged samples, which hold nothing (u64); `None` if there are none.
    fn left_out<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<u64>>> {
        let rows = &self.batch.left_out;
        let numbers = rows.iter().map(|row| *row as u64);
        (!rows.is_empty()).then(|| PyArray1::from_iter(py, numbers))
    }

    /// Position of each sample in its epoch (u64).
    fn position<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<u64>>> {
        let step = &self.place.as_ref()?.step;
        Some(PyArray1::from_iter(py, step.positions()))
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

fn arrays(py: Python<'_>, column: Column) -> PyResult<Arrays> {
    let Column { values, extent } = column;
    let open = extent.open_extents;
    let numbers = |numbers: Vec<u64>| {
        let signed = numbers.into_iter().map(|number| number as i64);
        PyArray1::from_vec(py, signed.collect()).unbind()
    };
    Ok((
        Py::new(py, NativeArray::new(values))?,
        extent.offsets.map(numbers),
        (!open.is_empty()).then(|| numbers(open)),
    ))
}
