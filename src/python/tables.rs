//! Samples that come by column: whole Arrow tables from a source, or the arrays of `write_arrays`.

use arrow_buffer::ScalarBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::arrow::import_with;
use super::errors::to_pyerr;
use super::fault::{Fault, sample};
use super::payload::shared_bytes;
use crate::error::CacheError;
use crate::format::payload::{Dtype, FieldSpec};
use crate::writer::{Feed, FieldRows, Offsets, Rule};

/// Takes the tables of one source.
pub struct Tables<'py> {
    array_block: Bound<'py, PyType>,
    frame: Bound<'py, PyType>,
    exportable: Bound<'py, PyAny>,
    /// Payload columns that the source names; otherwise their type decides.
    payload_columns: Option<Vec<String>>,
}

/// A field of an `ArrayBlock`: name, dtype, shape, values, and offsets of a ragged one.
type ArrayField<'py> = (
    String,
    String,
    Vec<Option<u64>>,
    Bound<'py, PyAny>,
    Option<Bound<'py, PyAny>>,
);

impl<'py> Tables<'py> {
    /// Ready for the first table.
    pub fn new(py: Python<'py>, payload_columns: Option<Vec<String>>) -> PyResult<Self> {
        let arrays = py.import("dataset_rt.arrays")?;
        Ok(Self {
            array_block: arrays.getattr("ArrayBlock")?.cast_into()?,
            frame: py.import("polars")?.getattr("DataFrame")?.cast_into()?,
            exportable: arrays.getattr("exportable")?,
            payload_columns,
        })
    }

    /// The item as a table, if it is one.
    pub fn take(&self, item: &Bound<'py, PyAny>) -> Result<Option<Feed>, Fault> {
        let py = item.py();
        if item.get_type().is(&self.array_block) {
            return arrays(item).map(Some);
        }
        if !item.hasattr(intern!(py, "__arrow_c_stream__"))?
            && !item.hasattr(intern!(py, "__arrow_c_array__"))?
        {
            return Ok(None);
        }
        let table = match item.is_instance(&self.frame)? {
            true => self.exportable.call1((item,))?,
            false => item.clone(),
        };
        let rule = match &self.payload_columns {
            Some(names) => Rule::Named(names.clone()),
            None => Rule::ByType,
        };
        Ok(Some(Feed {
            arrays: Vec::new(),
            rows: 0,
            batches: Some(Box::new(import_with(&[table], fault)?)),
            rule,
        }))
    }
}

/// Rows, fields as buffers, further fields, and metadata.
type Block<'py> = (
    usize,
    Vec<ArrayField<'py>>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
);

/// An `ArrayBlock`: fields as buffers, a frame of further fields, and one of metadata.
fn arrays(item: &Bound<'_, PyAny>) -> Result<Feed, Fault> {
    let (rows, fields, columns, metadata): Block<'_> = item.extract()?;
    let mut arrays = Vec::with_capacity(fields.len());
    for (name, dtype, shape, values, offsets) in fields {
        let Some(dtype) = Dtype::from_name(&dtype) else {
            let fault =
                format!("payload field `{name}`: dtype {dtype} is not stored; view it as uint8");
            return Err(sample(0, fault));
        };
        let spec = FieldSpec { name, dtype, shape };
        let bytes = shared_bytes(&values)?;
        // What one element of an open axis takes, or a whole value without one.
        let unit = spec.byte_len(&vec![1; spec.open_axes()]);
        let unit = unit.and_then(|unit| usize::try_from(unit).ok());
        let Some(unit) = unit else {
            let fault = format!("payload field `{}`: too large for a payload", spec.name);
            return Err(sample(0, fault));
        };
        let rows = match offsets {
            None => FieldRows::Dense {
                bytes,
                row_bytes: unit,
            },
            Some(offsets) => FieldRows::Ragged {
                bytes,
                offsets: Offsets::Large(numbers(&offsets)?),
                unit,
            },
        };
        arrays.push((spec, rows));
    }
    let width = match &columns {
        Some(columns) => columns.getattr(intern!(item.py(), "width"))?.extract()?,
        None => 0,
    };
    let tables: Vec<_> = columns.into_iter().chain(metadata).collect();
    Ok(Feed {
        arrays,
        rows,
        batches: match tables.is_empty() {
            true => None,
            false => Some(Box::new(import_with(&tables, fault)?)),
        },
        rule: Rule::First(width),
    })
}

/// Offsets as an array of 64-bit numbers.
fn numbers(offsets: &Bound<'_, PyAny>) -> PyResult<ScalarBuffer<i64>> {
    let bytes = shared_bytes(offsets)?;
    if bytes.as_ptr().align_offset(align_of::<i64>()) != 0 {
        let what = "offsets that lie between the words of memory";
        return Err(to_pyerr(CacheError::internal(what)));
    }
    Ok(bytes.into())
}

fn fault(fault: String) -> CacheError {
    CacheError::Sample { row: 0, fault }
}
