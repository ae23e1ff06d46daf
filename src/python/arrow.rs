//! Tables across the Arrow C stream interface, in both directions, without a copy.

#![expect(
    unsafe_code,
    reason = "the C stream interface hands over raw structures"
)]

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, ArrayReader, ArrayRef, RecordBatch, RecordBatchIterator, make_array};
use arrow_schema::{ArrowError, Field, FieldRef, Schema, SchemaRef};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::{CacheError, Result};

const STREAM: &std::ffi::CStr = c"arrow_array_stream";
const SCHEMA: &std::ffi::CStr = c"arrow_schema";
const ARRAY: &std::ffi::CStr = c"arrow_array";

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

/// One stream of batches from columns that export Arrow C streams, such as Polars series, or tables of some. Their batches may end
/// at different rows: joined here as slices, columns are never copied to agree on where.
pub fn import(
    tables: &[Bound<'_, PyAny>],
) -> PyResult<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
    import_with(tables, |fault| CacheError::Weights {
        fault,
        rows: Vec::new(),
    })
}

/// As [`import`], of tables that are no samples metadata: `fault` makes the errors.
pub fn import_with(
    tables: &[Bound<'_, PyAny>],
    fault: Fault,
) -> PyResult<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
    let columns = tables.iter().map(|table| open(table, fault));
    Ok(Joined {
        columns: columns.collect::<PyResult<Vec<_>>>()?,
        ended: false,
        fault,
    })
}

/// Makes an error of what is wrong with a table.
type Fault = fn(String) -> CacheError;

fn open(table: &Bound<'_, PyAny>, fault: Fault) -> PyResult<Column> {
    let unreadable = |error: ArrowError| super::errors::to_pyerr(unreadable(&error, fault));
    if let Some(export) = table.getattr_opt("__arrow_c_stream__")? {
        let capsule = export.call0()?;
        let capsule = capsule.cast::<PyCapsule>()?;
        let stream = capsule
            .pointer_checked(Some(STREAM))?
            .cast::<FFI_ArrowArrayStream>();
        // SAFETY: a capsule of this name holds a valid stream by the rules of the Arrow PyCapsule interface, and stays
        // alive during the call. `from_raw` moves the stream out and leaves a released one behind, so nobody else reads
        // it after us.
        let stream = unsafe { ArrayStreamReader::from_raw(stream.as_ptr()) };
        return Ok(Column {
            stream: Some(stream.map_err(unreadable)?),
            rest: None,
            fault,
        });
    }
    let Some(export) = table.getattr_opt("__arrow_c_array__")? else {
        let kind = table
            .get_type()
            .name()
            .map_or_else(|_| "object".to_owned(), |name| name.to_string());
        return Err(PyTypeError::new_err(format!(
            "expected a Polars DataFrame or another Arrow table, found {kind}"
        )));
    };
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
        export.call0()?.extract()?;
    let schema = schema
        .pointer_checked(Some(SCHEMA))?
        .cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: capsules of these names hold a valid schema and an array of it by the rules of the Arrow PyCapsule
    // interface, and stay alive during the call. The array is moved out and a released one left behind, so nobody else
    // reads it after us; the schema is only looked at.
    let (field, data) = unsafe {
        let array = FFI_ArrowArray::from_raw(array.as_ptr());
        let field = Field::try_from(schema.as_ref());
        (field, from_ffi(array, schema.as_ref()))
    };
    let (field, data) = (field.map_err(unreadable)?, data.map_err(unreadable)?);
    let batch = to_batch(&field.into(), make_array(data)).map_err(unreadable)?;
    Ok(Column {
        stream: None,
        rest: Some(batch),
        fault,
    })
}

/// A table that is read batch by batch, and what is left of the last batch.
struct Column {
    /// None of a table that is one batch.
    stream: Option<ArrayStreamReader>,
    rest: Option<RecordBatch>,
    fault: Fault,
}

impl Column {
    /// Rows at hand, after taking the next batch if there are none; `None` at the end.
    fn at_hand(&mut self) -> Result<Option<usize>> {
        while self.rest.as_ref().is_none_or(|rest| rest.num_rows() == 0) {
            let Some(stream) = &mut self.stream else {
                return Ok(None);
            };
            match stream.next() {
                None => return Ok(None),
                Some(array) => {
                    let fault = self.fault;
                    let batch = array.and_then(|array| to_batch(stream.field(), array));
                    self.rest = Some(batch.map_err(|error| unreadable(&error, fault))?);
                }
            }
        }
        Ok(self.rest.as_ref().map(RecordBatch::num_rows))
    }

    /// The next `rows` rows of those at hand.
    fn take(&mut self, rows: usize) -> Option<RecordBatch> {
        let rest = self.rest.take()?;
        self.rest = Some(rest.slice(rows, rest.num_rows() - rows));
        Some(rest.slice(0, rows))
    }
}

/// An array of rows as a batch of its fields, or any other array as a batch of one column.
fn to_batch(field: &FieldRef, array: ArrayRef) -> std::result::Result<RecordBatch, ArrowError> {
    match array.as_struct_opt() {
        Some(rows) if rows.null_count() > 0 => Err(ArrowError::SchemaError(
            "a table with rows that are null as a whole".to_owned(),
        )),
        Some(rows) => Ok(RecordBatch::from(rows)),
        None => RecordBatch::try_new(
            SchemaRef::new(Schema::new(vec![FieldRef::clone(field)])),
            vec![array],
        ),
    }
}

struct Joined {
    columns: Vec<Column>,
    ended: bool,
    fault: Fault,
}

impl Joined {
    fn join(&mut self) -> Result<Option<RecordBatch>> {
        let at_hand = self
            .columns
            .iter_mut()
            .map(Column::at_hand)
            .collect::<Result<Vec<_>>>()?;
        let Some(rows) = at_hand.iter().copied().min().flatten() else {
            return match at_hand.iter().all(Option::is_none) {
                true => Ok(None),
                false => Err((self.fault)(
                    "its columns have different numbers of rows".to_owned(),
                )),
            };
        };
        let parts: Vec<RecordBatch> = self
            .columns
            .iter_mut()
            .filter_map(|column| column.take(rows))
            .collect();
        let fields = parts
            .iter()
            .flat_map(|part| part.schema().fields().to_vec());
        let schema = SchemaRef::new(Schema::new(fields.collect::<Vec<_>>()));
        let columns = parts
            .iter()
            .flat_map(|part| part.columns().to_vec())
            .collect();
        RecordBatch::try_new(schema, columns)
            .map(Some)
            .map_err(|error| unreadable(&error, self.fault))
    }
}

impl Iterator for Joined {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        if self.ended {
            return None;
        }
        let joined = self.join().transpose();
        self.ended = !matches!(joined, Some(Ok(_)));
        joined
    }
}

fn unreadable(error: &ArrowError, fault: Fault) -> CacheError {
    fault(format!("the table cannot be read: {error}"))
}
