//! Items of a source: samples or tables, plain payloads or mappings of fields, and the same from the first item to the last.

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::fault::{Fault, sample};
use super::fields::Fields;
use super::mapping::as_dict;
use super::metadata::Metadata;
use super::payload::with_payload;
use super::source::{Source, type_name};
use super::tables::Tables;
use crate::writer::{CacheWriter, Feed, Row};

/// Takes the samples of one source.
pub struct Ingest<'py> {
    /// The class that most sources yield.
    cache_input: Bound<'py, PyAny>,
    metadata: Metadata<'py>,
    /// What payloads are; none before the first sample.
    payloads: Option<Payloads<'py>>,
    tables: Tables<'py>,
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

impl<'py> Ingest<'py> {
    /// Ready for the first item of `source`; `writer` may already have declared columns.
    pub fn new(source: &Source<'py>, writer: &CacheWriter) -> PyResult<Self> {
        let py = source.object.py();
        let cache_input = py.import("dataset_rt.records")?.getattr("CacheInput")?;
        Ok(Self {
            cache_input,
            metadata: Metadata::new(py, writer),
            payloads: match writer.payload() {
                Some(schema) => {
                    let origin = writer.payload_origin();
                    Some(Payloads::Typed(Fields::new(py, schema.clone(), origin)?))
                }
                None => None,
            },
            tables: Tables::new(py, source.payload_columns.clone())?,
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
        let values = self.metadata.values(writer, metadata)?;
        let payloads = match &mut self.payloads {
            Some(payloads) => payloads,
            none => none.insert(Payloads::first(data, writer)?),
        };
        let fill = |sample: &mut Row<'_>| self.metadata.fill(sample, &values, row);
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
