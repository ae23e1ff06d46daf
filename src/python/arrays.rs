//! Typed payloads of single samples: a dict of NumPy arrays that own their memory.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyString, PyTuple, PyType};

use super::errors::to_pyerr;
use crate::error::CacheError;
use crate::format::payload::{Dtype, FieldSpec, PayloadSchema};

/// Builds the fields of payloads of one schema.
pub struct FieldBuilder {
    schema: Arc<PayloadSchema>,
    keys: Vec<Py<PyString>>,
    /// The NumPy type of each field, looked up when the first sample is built: the package that knows it may be missing.
    dtypes: PyOnceLock<Vec<Py<PyAny>>>,
}

impl FieldBuilder {
    /// A builder for payloads of `schema`.
    pub fn new(py: Python<'_>, schema: &Arc<PayloadSchema>) -> Self {
        let fields = schema.fields().iter();
        Self {
            keys: fields
                .map(|field| PyString::intern(py, &field.name).unbind())
                .collect(),
            schema: Arc::clone(schema),
            dtypes: PyOnceLock::new(),
        }
    }

    /// A dict of field name to array, in name order; `bytes` for fields of that type.
    pub fn build<'py>(&self, py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let dtypes = self.dtypes.get_or_try_init(py, || self.dtypes(py))?;
        let (mut extents, mut places) = (Vec::new(), Vec::new());
        // The reader has split it before, so this cannot fail.
        self.schema
            .split(payload, &mut extents, &mut places)
            .map_err(|fault| to_pyerr(CacheError::internal(fault)))?;
        let values = PyDict::new(py);
        let fields = self.schema.fields().iter().zip(&self.keys);
        for (((field, key), dtype), place) in fields.zip(dtypes).zip(&places) {
            let bytes = payload.get(place.bytes.clone()).unwrap_or_default();
            let open = extents.get(place.extents.clone()).unwrap_or_default();
            if field.dtype == Dtype::Bytes {
                values.set_item(key, PyBytes::new(py, bytes))?;
            } else {
                values.set_item(key, array(py, field, dtype.bind(py), open, bytes)?)?;
            }
        }
        Ok(values.into_any())
    }

    fn dtypes(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let lookup = py.import("dataset_rt.columns")?.getattr("numpy_dtype")?;
        let fields = self.schema.fields().iter();
        fields
            .map(|field| Ok(lookup.call1((field.dtype.name(),))?.unbind()))
            .collect()
    }
}

fn array<'py>(
    py: Python<'py>,
    field: &FieldSpec,
    dtype: &Bound<'py, PyAny>,
    open: &[u64],
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let mut open = open.iter();
    let axes = field
        .shape
        .iter()
        .map(|extent| extent.or_else(|| open.next().copied()).unwrap_or(0));
    let shape = PyTuple::new(py, axes.collect::<Vec<_>>())?;
    let memory = PyByteArray::new(py, bytes);
    NDARRAY
        .import(py, "numpy", "ndarray")?
        .call1((shape, dtype, memory))
}
