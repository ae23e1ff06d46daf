//! Rows asked for together: what Python hands over, and destinations of its own.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use super::batch::NativeBatch;
use super::buffer::Destination;
use super::errors::to_pyerr;
use super::signals::detached;
use crate::dataset::{Batch, Dataset, RowNumbers};
use crate::error::{CacheError, Result};
use crate::reader::{Column, Extent, Selection};
use crate::store::slot::SlotPool;

/// Reads the chosen fields of rows, given as a contiguous array of i64 or u64; into `out`, one writable buffer per chosen
/// field, where it is given.
pub fn gather(
    py: Python<'_>,
    dataset: &Dataset,
    selection: &Selection,
    rows: &Bound<'_, PyAny>,
    out: Option<Vec<Bound<'_, PyAny>>>,
) -> PyResult<NativeBatch> {
    let rows = Rows::from(py, rows)?;
    let destinations = out
        .map(|out| {
            out.iter()
                .map(Destination::new)
                .collect::<PyResult<Vec<_>>>()
        })
        .transpose()?;
    let batch = detached(py, |interrupt| {
        let samples = dataset.samples_of(rows.numbers())?;
        match destinations {
            None => dataset.gather(samples, selection, interrupt),
            Some(mut destinations) => {
                let (extents, caches) = dataset.with_gatherer(|gatherer, crew| {
                    let measured = gatherer.measure(&samples, selection, Some(crew))?;
                    let out = fitting(&mut destinations, selection, measured.extents());
                    let out = out.or_else(|error| measured.explain(error))?;
                    measured.fill(out, Some(crew), interrupt)
                })?;
                let nothing = SlotPool::new();
                let columns = extents.into_iter().map(|extent| {
                    Ok(Column {
                        values: nothing.take(0)?,
                        extent,
                    })
                });
                Ok(Batch {
                    samples,
                    columns: columns.collect::<Result<_>>()?,
                    left_out: Vec::new(),
                    caches,
                })
            }
        }
    })?;
    Ok(NativeBatch::new(batch, None))
}

/// The part of each destination that is filled.
fn fitting<'a>(
    destinations: &'a mut [Destination],
    selection: &Selection,
    extents: &[Extent],
) -> Result<Vec<&'a mut [u8]>> {
    if destinations.len() != extents.len() {
        return Err(CacheError::option(
            "out",
            format!("a destination for each of {} fields", extents.len()),
            destinations.len(),
        ));
    }
    Destination::check_disjoint(destinations)?;
    let field = |column: usize| {
        let number = selection.chosen().get(column)?;
        let field = selection.schema()?.fields().get(*number)?;
        Some(field.name.clone())
    };
    let mut parts = Vec::new();
    for (column, (destination, extent)) in destinations.iter_mut().zip(extents).enumerate() {
        let bytes = destination.bytes();
        let found = bytes.len();
        let is_open = extent.offsets.is_some();
        let part = bytes.get_mut(..extent.byte_len);
        let fits = if is_open {
            found >= extent.byte_len
        } else {
            found == extent.byte_len
        };
        let (Some(part), true) = (part, fits) else {
            let name = field(column).map_or("out".to_owned(), |name| format!("out[{name:?}]"));
            let least = if is_open { "at least " } else { "" };
            return Err(CacheError::option(
                &name,
                format!("{least}{} bytes", extent.byte_len),
                format!("{found} bytes"),
            ));
        };
        parts.push(part);
    }
    Ok(parts)
}

/// Row numbers, copied out of Python.
enum Rows {
    Signed(Vec<i64>),
    Unsigned(Vec<u64>),
}

impl Rows {
    fn from(py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(signed) = PyBuffer::<i64>::get(rows) {
            return signed.to_vec(py).map(Self::Signed);
        }
        let unsigned = PyBuffer::<u64>::get(rows).map_err(|_| {
            to_pyerr(CacheError::option(
                "rows",
                "an array of 64-bit integers",
                super::source::type_name(rows),
            ))
        })?;
        unsigned.to_vec(py).map(Self::Unsigned)
    }

    fn numbers(&self) -> RowNumbers<'_> {
        match self {
            Self::Signed(rows) => RowNumbers::Signed(rows),
            Self::Unsigned(rows) => RowNumbers::Unsigned(rows),
        }
    }
}
