//! Samples out of Python objects: payload bytes by the buffer protocol, metadata by exact types.

use pyo3::exceptions::{PyAttributeError, PyOverflowError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};

use super::fields::Fields;
use super::mapping::as_dict;
use super::payload::with_payload;
use super::source::{Source, type_name};
use super::tables::Tables;
use crate::error::CacheError;
use crate::format::columns::Value;
use crate::writer::{CacheWriter, Feed, Row};

/// Why a source's cache is not written.
pub enum Fault {
    /// The core refused.
    Core(CacheError),
    /// Its cache exists and cannot be reused.
    Unusable(CacheError),
    /// Code of the source raised an exception.
    Raised(PyErr),
    /// An exception for the caller, above all sources.
    Caller(PyErr),
}

impl From<CacheError> for Fault {
    fn from(error: CacheError) -> Self {
        Self::Core(error)
    }
}

impl From<PyErr> for Fault {
    fn from(exception: PyErr) -> Self {
        Self::Raised(exception)
    }
}

/// Takes the samples of one source.
pub struct Ingest<'py> {
    /// The class that most sources yield.
    cache_input: Bound<'py, PyAny>,
    /// Column names as dictionary keys, in column order; none before the first sample.
    keys: Option<Vec<Bound<'py, PyString>>>,
    /// What payloads are; none before the first sample.
    payloads: Option<Payloads<'py>>,
    tables: Tables<'py>,
    scalars: Scalars<'py>,
}

/// What the payloads of one source are.
enum Payloads<'py> {
    /// Opaque bytes.
    Plain,
    /// Mappings of fields.
    Typed(Fields<'py>),
    /// Columns of tables.
    Tables,
}

/// What became of an item.
pub enum Taken {
    /// It was a sample, and the writer has room for more.
    Sample,
    /// It was a sample, after which the writer wants its chunk to be submitted.
    Full,
    /// It is a table, to be given to the writer as a whole.
    Table(Box<Feed>),
}

/// The scalar types of NumPy that are taken, and one that only looks like them; none while NumPy is not loaded.
struct Scalars<'py> {
    taken: Option<(Bound<'py, PyTuple>, Bound<'py, PyAny>)>,
}

impl<'py> Ingest<'py> {
    /// Ready for the first item of `source`; `writer` may already have declared columns.
    pub fn new(source: &Source<'py>, writer: &CacheWriter) -> PyResult<Self> {
        let py = source.object.py();
        let cache_input = py.import("dataset_rt.records")?.getattr("CacheInput")?;
        Ok(Self {
            cache_input,
            keys: writer.columns().map(|names| keys(py, names)),
            payloads: match writer.payload() {
                Some(schema) => {
                    let origin = writer.payload_origin();
                    Some(Payloads::Typed(Fields::new(py, schema.clone(), origin)?))
                }
                None => None,
            },
            tables: Tables::new(py, source.payload_columns.clone())?,
            scalars: Scalars { taken: None },
        })
    }

    /// Takes one item of a source.
    pub fn take(
        &mut self,
        writer: &mut CacheWriter,
        item: &Bound<'py, PyAny>,
    ) -> Result<Taken, Fault> {
        let row = writer.rows();
        let pair = self.pair(item);
        if pair.is_none()
            && let Some(table) = self.tables.take(item)?
        {
            // Declared fields are known before the first item.
            if row > 0 && !matches!(self.payloads, None | Some(Payloads::Tables)) {
                return Err(mixed(item, row, "CacheInput(data, metadata)"));
            }
            self.payloads = Some(Payloads::Tables);
            return Ok(Taken::Table(Box::new(table)));
        }
        if matches!(self.payloads, Some(Payloads::Tables)) {
            return Err(mixed(item, row, "a table"));
        }
        let (data, metadata) = pair.map_or_else(|| parts(item, row), Ok)?;
        match self.push(writer, &data, &metadata)? {
            true => Ok(Taken::Full),
            false => Ok(Taken::Sample),
        }
    }

    /// Takes one sample. True if the writer wants its chunk to be submitted.
    fn push(
        &mut self,
        writer: &mut CacheWriter,
        data: &Bound<'py, PyAny>,
        metadata: &Bound<'py, PyAny>,
    ) -> Result<bool, Fault> {
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
            .get_or_insert_with(|| keys(data.py(), writer.columns().unwrap_or_default()));
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
        let scalars = &mut self.scalars;
        let payloads = match &mut self.payloads {
            Some(payloads) => payloads,
            none => none.insert(Payloads::first(data, writer)?),
        };
        let fill = |sample: &mut Row<'_>| {
            let pairs = keys.iter().zip(&values);
            pairs
                .into_iter()
                .try_for_each(|(key, value)| set(sample, key, value, row, scalars))
        };
        match payloads {
            Payloads::Plain => with_payload(data, row, |payload| writer.push(payload, fill)),
            Payloads::Tables => Err(mixed(data, row, "a table")),
            Payloads::Typed(fields) => match as_dict(data)? {
                Some(data) => writer.push_with(|out| fields.append(&data, row, out), fill),
                None => {
                    let found = type_name(data);
                    let fault = format!(
                        "data is of type {found}, expected a mapping of payload fields, as {}",
                        fields.origin()
                    );
                    Err(sample(row, fault))
                }
            },
        }
    }

    /// Payload and metadata of an item of the classes that most sources yield.
    fn pair(&self, item: &Bound<'py, PyAny>) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let pair = item.cast::<PyTuple>().ok()?;
        let is_known =
            item.is_exact_instance_of::<PyTuple>() || item.get_type().is(&self.cache_input);
        if !is_known || pair.len() != 2 {
            return None;
        }
        Some((pair.get_item(0).ok()?, pair.get_item(1).ok()?))
    }
}

/// Payload and metadata of an item of any class.
fn parts<'py>(
    item: &Bound<'py, PyAny>,
    row: u64,
) -> Result<(Bound<'py, PyAny>, Bound<'py, PyAny>), Fault> {
    let py = item.py();
    let part = |name| {
        item.getattr(name).map_err(|exception| {
            if exception.is_instance_of::<PyAttributeError>(py) {
                let found = type_name(item);
                sample(
                    row,
                    format!("expected CacheInput(data, metadata), found {found}"),
                )
            } else {
                Fault::Raised(exception)
            }
        })
    };
    Ok((part(intern!(py, "data"))?, part(intern!(py, "metadata"))?))
}

/// The error for a source that gives samples and tables.
fn mixed(item: &Bound<'_, PyAny>, row: u64, expected: &str) -> Fault {
    let found = type_name(item);
    let fault = format!(
        "expected {expected} as before, found {found}; a source gives samples or tables, not both"
    );
    sample(row, fault)
}

impl<'py> Payloads<'py> {
    /// What the payload of the first sample shows.
    fn first(data: &Bound<'py, PyAny>, writer: &mut CacheWriter) -> Result<Self, Fault> {
        match as_dict(data)? {
            None => Ok(Self::Plain),
            Some(fields) => {
                let schema = Fields::infer(&fields)?;
                writer.set_payload(schema.clone())?;
                let origin = writer.payload_origin();
                Ok(Self::Typed(Fields::new(data.py(), schema, origin)?))
            }
        }
    }
}

/// The error for a sample that is no sample.
pub fn sample(row: u64, fault: String) -> Fault {
    Fault::Core(CacheError::Sample { row, fault })
}

/// Names as dictionary keys.
pub fn keys<'py>(
    py: Python<'py>,
    names: impl IntoIterator<Item = impl AsRef<str>>,
) -> Vec<Bound<'py, PyString>> {
    let names = names.into_iter();
    names
        .map(|name| PyString::intern(py, name.as_ref()))
        .collect()
}

/// The keys of a dictionary of `what`, which must be text.
pub fn names(dict: &Bound<'_, PyDict>, what: &str, row: u64) -> Result<Vec<String>, Fault> {
    let name = |key: Bound<'_, PyAny>| match key.cast::<PyString>().map(|key| key.to_str()) {
        Ok(Ok(name)) => Ok(name.to_owned()),
        Ok(Err(_)) => Err(sample(
            row,
            format!("{what} key {key:?} is not valid Unicode"),
        )),
        Err(_) => Err(sample(
            row,
            format!("a {what} key is of type {}, expected str", type_name(&key)),
        )),
    };
    dict.keys().iter().map(name).collect()
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
