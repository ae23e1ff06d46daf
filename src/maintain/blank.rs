//! The metadata table without what deleted samples said: their rows stay, so that ids do, but hold nothing.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, Scalar,
    StringArray, new_null_array,
};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::ArrowError;
use arrow_select::zip::zip;

use crate::error::Result;
use crate::format::columns::Value;
use crate::format::metadata::{arrow_schema, conform, data_type};
use crate::format::schema::{ColumnSpec, Kind, Schema};
use crate::limits::METADATA_BATCH_ROWS;
use crate::store::cache::Cache;
use crate::store::live::LiveIds;
use crate::store::outflow::output::Outputs;
use crate::store::outflow::table;

/// Whether the metadata of a deleted sample may still be there. A table is blank where ids went before it was made.
///
/// # Errors
/// As [`Cache::live`].
pub fn is_due(cache: &Cache) -> Result<bool> {
    if cache.manifest().metadata_schema.columns().is_empty() {
        return Ok(false);
    }
    let mut first = 0;
    for part in cache.manifest().metadata_parts().iter() {
        let end = first + part.rows;
        let gone = cache.deleted_since(part.generation)?;
        let next = gone.partition_point(|id| *id < first);
        if gone.get(next).is_some_and(|id| *id < end) {
            return Ok(true);
        }
        first = end;
    }
    Ok(false)
}

/// Writes the metadata of all ids as one table in which the rows of deleted ones are blank, a batch of at most 65,536 rows
/// at a time.
///
/// # Errors
/// As [`Cache::metadata`], [`Cache::live`] and those of the files.
pub fn write(cache: &Cache, outputs: &Arc<Outputs>) -> Result<()> {
    let schema = &cache.manifest().metadata_schema;
    let mut file = table::create(schema, outputs)?;
    let mut deleted = cache
        .live()?
        .into_iter()
        .flat_map(LiveIds::deleted)
        .peekable();
    let mut first = 0;
    for batch in cache.metadata()?.iter() {
        for start in (0..batch.num_rows()).step_by(METADATA_BATCH_ROWS) {
            outputs.failure.check()?;
            let rows = METADATA_BATCH_ROWS.min(batch.num_rows() - start);
            let piece = table::arrow(conform(&batch.slice(start, rows), schema), outputs)?;
            let end = first + rows as u64;
            let mut is_gone = BooleanBufferBuilder::new(rows);
            is_gone.append_n(rows, false);
            let mut is_whole = true;
            while let Some(id) = deleted.next_if(|id| *id < end) {
                is_gone.set_bit((id - first) as usize, true);
                is_whole = false;
            }
            first = end;
            let piece = match is_whole {
                true => piece,
                false => {
                    let is_gone = BooleanArray::new(is_gone.finish(), None);
                    table::arrow(blanked(&piece, &is_gone, schema), outputs)?
                }
            };
            table::arrow(file.write(&piece), outputs)?;
        }
    }
    table::ended(file, outputs)?.close()
}

fn blanked(
    batch: &RecordBatch,
    is_gone: &BooleanArray,
    schema: &Schema,
) -> std::result::Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.columns());
    let columns = columns.map(|(column, spec)| {
        // Copies the other rows: a mask over the column would leave its text where it is.
        zip(is_gone, &Scalar::new(nothing(spec)), column)
    });
    let columns = columns.collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(arrow_schema(schema), columns, &options)
}

/// What a blank row has in a column.
pub(super) fn blank(spec: &ColumnSpec) -> Value<'static> {
    match (spec.nullable, spec.kind) {
        (true, _) => Value::Null,
        (_, Kind::Bool) => Value::Bool(false),
        (_, Kind::Int) => Value::Int(0),
        (_, Kind::Float) => Value::Float(0.0),
        (_, Kind::String) => Value::Str(""),
    }
}

/// The same as an array of one row.
fn nothing(spec: &ColumnSpec) -> ArrayRef {
    match blank(spec) {
        Value::Null => new_null_array(&data_type(spec.kind), 1),
        Value::Bool(value) => Arc::new(BooleanArray::from(vec![value])),
        Value::Int(value) => Arc::new(Int64Array::from(vec![value])),
        Value::Float(value) => Arc::new(Float64Array::from(vec![value])),
        Value::Str(value) => Arc::new(StringArray::from(vec![value])),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    use super::*;

    #[test]
    fn blank_rows_hold_nothing_and_their_text_is_in_no_buffer() {
        let spec = |name: &str, kind, nullable| ColumnSpec {
            name: name.to_owned(),
            kind,
            nullable,
        };
        let schema = Schema::new(vec![
            spec("a", Kind::String, false),
            spec("b", Kind::String, true),
            spec("c", Kind::Int, true),
            spec("d", Kind::Bool, false),
            spec("e", Kind::Float, false),
        ])
        .unwrap();
        let text: ArrayRef = Arc::new(StringArray::from(vec!["keep", "secret", "keep"]));
        let columns: Vec<ArrayRef> = vec![
            Arc::clone(&text),
            text,
            Arc::new(Int64Array::from(vec![1, 2, 3])),
            Arc::new(BooleanArray::from(vec![true, true, true])),
            Arc::new(Float64Array::from(vec![1.0, 2.0, f64::NAN])),
        ];
        let batch = RecordBatch::try_new(arrow_schema(&schema), columns).unwrap();
        let is_gone = BooleanArray::from(vec![false, true, false]);
        let blank = blanked(&batch, &is_gone, &schema).unwrap();
        let strings = blank.column(0).as_string::<i32>();
        assert_eq!(
            strings.iter().collect::<Vec<_>>(),
            [Some("keep"), Some(""), Some("keep")]
        );
        let strings = blank.column(1).as_string::<i32>();
        assert_eq!(
            strings.iter().collect::<Vec<_>>(),
            [Some("keep"), None, Some("keep")]
        );
        for column in [0, 1] {
            let values = blank.column(column).as_string::<i32>().value_data();
            assert!(!values.windows(6).any(|window| window == b"secret"));
        }
        let ints = blank.column(2).as_primitive::<Int64Type>();
        assert_eq!(ints.iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
        assert_eq!(ints.values()[1], 0);
        assert!(!blank.column(3).as_boolean().value(1));
    }
}
