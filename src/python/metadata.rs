//! Metadata out of Python objects: the values under the keys of the columns, by exact types.

use pyo3::exceptions::PyOverflowError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};

use super::fault::{Fault, sample};
use super::mapping::as_dict;
use super::names::{keys, names};
use super::source::type_name;
use crate::error::CacheError;
use crate::format::columns::Value;
use crate::writer::{CacheWriter, Row};

/// Takes the metadata of the samples of one source.
pub struct Metadata<'py> {
    /// Column names as dictionary keys, in column order; none before the first sample.
    keys: Option<Vec<Bound<'py, PyString>>>,
    scalars: Scalars<'py>,
}

/// The scalar types of NumPy that are taken, and one that only looks like them; none while NumPy is not loaded.
struct Scalars<'py> {
    taken: Option<(Bound<'py, PyTuple>, Bound<'py, PyAny>)>,
}

impl<'py> Metadata<'py> {
    /// Ready for the first sample; `writer` may already have declared columns.
    pub fn new(py: Python<'py>, writer: &CacheWriter) -> Self {
        Self {
            keys: writer.columns().map(|names| keys(py, names)),
            scalars: Scalars { taken: None },
        }
    }

    /// The values of the next sample in column order; those of a first sample set the columns.
    pub fn values(
        &mut self,
        writer: &mut CacheWriter,
        metadata: &Bound<'py, PyAny>,
    ) -> Result<Vec<Bound<'py, PyAny>>, Fault> {
        let row = writer.rows();
        let Some(metadata) = as_dict(metadata)? else {
            let found = type_name(metadata);
            let fault = format!("metadata is of type {found}, expected a mapping");
            return Err(sample(row, fault));
        };
        if self.keys.is_none() {
            writer.set_columns(names(&metadata, "metadata", row)?)?;
        }
        let keys = self
            .keys
            .get_or_insert_with(|| keys(metadata.py(), writer.columns().unwrap_or_default()));
        if metadata.len() != keys.len() {
            return Err(key_fault(writer, &metadata));
        }
        let mut values = Vec::with_capacity(keys.len());
        for key in &*keys {
            match metadata.get_item(key)? {
                Some(value) => values.push(value),
                None => return Err(key_fault(writer, &metadata)),
            }
        }
        Ok(values)
    }

    /// Gives the values of sample `row` to it.
    pub fn fill(
        &mut self,
        sample: &mut Row<'_>,
        values: &[Bound<'py, PyAny>],
        row: u64,
    ) -> Result<(), Fault> {
        let keys = self.keys.as_deref().unwrap_or_default();
        let scalars = &mut self.scalars;
        let mut pairs = keys.iter().zip(values);
        pairs.try_for_each(|(key, value)| set(sample, key, value, row, scalars))
    }
}

fn key_fault(writer: &CacheWriter, metadata: &Bound<'_, PyDict>) -> Fault {
    match names(metadata, "metadata", writer.rows()) {
        Ok(found) => {
            let found: Vec<&str> = found.iter().map(String::as_str).collect();
            Fault::Core(writer.key_fault(&found))
        }
        Err(fault) => fault,
    }
}

/// Gives one metadata value to the sample.
fn set<'py>(
    sample: &mut Row<'_>,
    key: &Bound<'py, PyString>,
    value: &Bound<'py, PyAny>,
    row: u64,
    scalars: &mut Scalars<'py>,
) -> Result<(), Fault> {
    if value.is_none() {
        return Ok(sample.set(Value::Null)?);
    }
    if value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
    {
        return set_builtin(sample, key, value, row);
    }
    if scalars.take(value)? {
        let item = value.call_method0(intern!(value.py(), "item"))?;
        // The widest floats of NumPy give themselves back.
        if item.get_type().is(value.get_type()) {
            return Err(refused(
                key,
                row,
                "bool, int, float, str or None",
                type_name(value),
            ));
        }
        return set_builtin(sample, key, &item, row);
    }
    set_builtin(sample, key, value, row)
}

/// A value of a built-in type or of a class derived from one.
fn set_builtin(
    sample: &mut Row<'_>,
    key: &Bound<'_, PyString>,
    value: &Bound<'_, PyAny>,
    row: u64,
) -> Result<(), Fault> {
    if let Ok(text) = value.cast::<PyString>() {
        let Ok(text) = text.to_str() else {
            return Err(refused(
                key,
                row,
                "valid Unicode",
                "a str with lone surrogates".to_owned(),
            ));
        };
        return Ok(sample.set(Value::Str(text))?);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(sample.set(Value::Bool(flag.is_true()))?);
    }
    if let Ok(number) = value.cast::<PyInt>() {
        return match number.extract::<i64>() {
            Ok(number) => Ok(sample.set(Value::Int(number))?),
            Err(exception) if exception.is_instance_of::<PyOverflowError>(value.py()) => {
                let found = "an int beyond 64 bits".to_owned();
                Err(refused(key, row, "an int from -2^63 to 2^63 - 1", found))
            }
            Err(exception) => Err(exception.into()),
        };
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Ok(sample.set(Value::Float(number.value()))?);
    }
    Err(refused(
        key,
        row,
        "bool, int, float, str or None",
        type_name(value),
    ))
}

fn refused(key: &Bound<'_, PyString>, row: u64, expected: &str, found: String) -> Fault {
    Fault::Core(CacheError::MetadataValue {
        row,
        column: key.to_string_lossy().into_owned(),
        expected: expected.to_owned(),
        found,
    })
}

impl<'py> Scalars<'py> {
    /// Whether a value is a NumPy scalar that has an equal built-in value.
    fn take(&mut self, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        if self.taken.is_none() {
            self.look(value.py())?;
        }
        match &self.taken {
            None => Ok(false),
            // A time difference is derived from the integers, but is none.
            Some((taken, not)) => Ok(value.is_instance(taken)? && !value.is_instance(not)?),
        }
    }

    /// Finds the types if NumPy is loaded; if it is not, no value can be of it.
    fn look(&mut self, py: Python<'py>) -> PyResult<()> {
        let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>();
        let Some(numpy) = modules.map_err(PyErr::from)?.get_item("numpy")? else {
            return Ok(());
        };
        let types = ["bool_", "integer", "floating", "str_"].map(|name| numpy.getattr(name));
        let types = types.into_iter().collect::<PyResult<Vec<_>>>()?;
        let all_types = types.iter().all(|found| found.is_instance_of::<PyType>());
        if all_types {
            self.taken = Some((PyTuple::new(py, types)?, numpy.getattr("timedelta64")?));
        }
        Ok(())
    }
}
