//! Tables across the Arrow C stream interface, in both directions, without a copy.

#![expect(
    unsafe_code,
    reason = "the C stream interface hands over raw structures"
)]

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::{CacheError, Result};

const STREAM: &std::ffi::CStr = c"arrow_array_stream";

/// A table that any library speaking the Arrow C stream interface can take over.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct ArrowTable {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl ArrowTable {
    /// A table of batches that have this schema.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }
}

#[pymethods]
impl ArrowTable {
    /// The table as a stream of batches; the request for another schema is not followed, as the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches: Vec<std::result::Result<RecordBatch, ArrowError>> =
            self.batches.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, SchemaRef::clone(&self.schema));
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// The batches of any Python object that exports an Arrow C stream, such as a Polars frame.
pub fn import(
    table: &Bound<'_, PyAny>,
) -> PyResult<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
    let export = table.getattr("__arrow_c_stream__").map_err(|_| {
        let kind = table
            .get_type()
            .name()
            .map_or_else(|_| "object".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "expected a Polars DataFrame or another Arrow table, found {kind}"
        ))
    })?;
    let capsule = export.call0()?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let stream = capsule
        .pointer_checked(Some(STREAM))?
        .cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds a valid stream by the rules of the Arrow PyCapsule interface, and stays alive
    // during the call. `from_raw` moves the stream out and leaves a released one behind, so nobody else reads it after us.
    let reader = unsafe { RecordBatchStreamReader::from_raw(stream.as_ptr()) };
    let reader = reader.map_err(|error| super::errors::to_pyerr(unreadable(&error)))?;
    Ok(reader.map(|batch| batch.map_err(|error| unreadable(&error))))
}

fn unreadable(error: &ArrowError) -> CacheError {
    CacheError::Weights {
        fault: format!("the table cannot be read: {error}"),
        rows: Vec::new(),
    }
}
