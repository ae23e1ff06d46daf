//! Builds `CachedSample` named tuples.

#![expect(
    unsafe_code,
    reason = "a named tuple is filled directly: calling its class costs a fifth of the whole sample"
)]

use std::sync::Arc;

use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};

use super::arrays::FieldBuilder;
use crate::format::columns::Value;
use crate::format::payload::PayloadSchema;
use crate::format::schema::Schema;
use crate::reader::Sample;

/// What all samples of a dataset share: the class, one string object per metadata column, and what payload fields are
/// built of.
pub struct SampleBuilder {
    class: Py<PyType>,
    keys: Vec<Py<PyString>>,
    fields: Option<FieldBuilder>,
}

impl SampleBuilder {
    /// A builder for samples of these schemas.
    pub fn new(
        py: Python<'_>,
        schema: &Schema,
        payload: Option<&Arc<PayloadSchema>>,
    ) -> PyResult<Self> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let class = CLASS.import(py, "dataset_rt.records", "CachedSample")?;
        if !class.is_subclass_of::<PyTuple>()? {
            return Err(PySystemError::new_err(
                "dataset_rt.records.CachedSample is no named tuple",
            ));
        }
        let keys = schema
            .columns()
            .iter()
            .map(|column| PyString::intern(py, &column.name).unbind())
            .collect();
        Ok(Self {
            class: class.clone().unbind(),
            keys,
            fields: payload.map(|payload| FieldBuilder::new(py, payload)),
        })
    }

    /// One sample as a Python object that owns all its parts.
    pub fn build<'py>(&self, py: Python<'py>, sample: Sample<'_>) -> PyResult<Bound<'py, PyAny>> {
        let metadata = PyDict::new(py);
        for (key, value) in self.keys.iter().zip(sample.metadata()) {
            match value {
                Value::Null => metadata.set_item(key, py.None())?,
                Value::Bool(value) => metadata.set_item(key, PyBool::new(py, value))?,
                Value::Int(value) => metadata.set_item(key, PyInt::new(py, value))?,
                Value::Float(value) => metadata.set_item(key, PyFloat::new(py, value))?,
                Value::Str(value) => metadata.set_item(key, PyString::new(py, value))?,
            }
        }
        let reference = sample.reference;
        let data = match &self.fields {
            None => PyBytes::new(py, sample.payload).into_any(),
            Some(fields) => fields.build(py, sample.payload)?,
        };
        self.tuple(
            py,
            [
                data,
                metadata.into_any(),
                PyInt::new(py, reference.cache).into_any(),
                PyInt::new(py, reference.sample).into_any(),
            ],
        )
    }

    fn tuple<'py>(
        &self,
        py: Python<'py>,
        fields: [Bound<'py, PyAny>; 4],
    ) -> PyResult<Bound<'py, PyAny>> {
        let class = self.class.bind(py).as_type_ptr();
        // SAFETY: `class` is a live type object that was checked to be a subclass of tuple, so an instance of it has
        // room for the four items asked for. We are attached to the interpreter. The result is a new reference or null
        // with an exception set, which is what `from_owned_ptr_or_err` takes.
        let tuple =
            unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class, 4))? };
        for (position, field) in (0..).zip(fields) {
            // SAFETY: `tuple` was created above, nobody else holds a reference to it, and `position` is below its length;
            // the call takes over the reference to `field`.
            let status =
                unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), position, field.into_ptr()) };
            if status != 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(tuple)
    }
}
