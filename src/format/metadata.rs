//! `metadata.arrow`: one row per sample in sample order, as an uncompressed Arrow IPC file.
//!
//! Reading copies nothing: the arrays point into the bytes given, which may be a mapped file.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, new_null_array,
};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::root_as_footer;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema as ArrowSchema, SchemaRef};

use super::columns::{Column, Value};
use super::row::Rows;
use super::schema::{Kind, Schema};

/// Bytes after the footer: its length and the closing magic.
const TRAILER: usize = 10;

/// Arrow type that stores a kind.
pub fn data_type(kind: Kind) -> DataType {
    match kind {
        Kind::Bool => DataType::Boolean,
        Kind::Int => DataType::Int64,
        Kind::Float => DataType::Float64,
        Kind::String => DataType::Utf8,
    }
}

/// Arrow schema of a cache.
pub fn arrow_schema(schema: &Schema) -> SchemaRef {
    let field = |column: &super::schema::ColumnSpec| {
        Field::new(&column.name, data_type(column.kind), column.nullable)
    };
    Arc::new(ArrowSchema::new(
        schema.columns().iter().map(field).collect::<Vec<_>>(),
    ))
}

/// An open metadata file that takes batches.
pub fn writer<W: Write>(out: W, schema: &Schema) -> Result<FileWriter<W>, ArrowError> {
    FileWriter::try_new(out, &arrow_schema(schema))
}

/// One batch from columns in schema order, `rows` long. A column that never had a value becomes all null.
pub fn to_batch(
    columns: &[Column],
    schema: &Schema,
    rows: usize,
) -> Result<RecordBatch, ArrowError> {
    let arrays = columns
        .iter()
        .zip(schema.columns())
        .map(|(column, spec)| to_array(column, spec.kind))
        .collect();
    batch(arrow_schema(schema), arrays, rows)
}

/// A batch whose length is known even without columns.
fn batch(schema: SchemaRef, arrays: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, arrays, &options)
}

fn to_array(column: &Column, kind: Kind) -> ArrayRef {
    if column.kind().is_none() {
        return new_null_array(&data_type(kind), column.len());
    }
    match kind {
        Kind::Bool => Arc::new(BooleanArray::from_iter(column.iter().map(
            |value| match value {
                Value::Bool(value) => Some(value),
                _ => None,
            },
        ))),
        Kind::Int => Arc::new(Int64Array::from_iter(column.iter().map(
            |value| match value {
                Value::Int(value) => Some(value),
                _ => None,
            },
        ))),
        Kind::Float => Arc::new(Float64Array::from_iter(column.iter().map(
            |value| match value {
                Value::Float(value) => Some(value),
                _ => None,
            },
        ))),
        Kind::String => Arc::new(StringArray::from_iter(column.iter().map(
            |value| match value {
                Value::Str(value) => Some(value),
                _ => None,
            },
        ))),
    }
}

/// One batch from decoded rows, `len` long.
pub fn rows_to_batch(rows: &Rows, schema: &Schema, len: usize) -> Result<RecordBatch, ArrowError> {
    let width = schema.columns().len();
    let mut columns: Vec<Column> = schema
        .columns()
        .iter()
        .map(|spec| Column::new(Some(spec.kind)))
        .collect();
    for row in 0..len {
        for (column, value) in columns.iter_mut().zip(rows.row(row, width)) {
            column
                .push(value)
                .map_err(|(_, found)| ArrowError::SchemaError(format!("a row holds {found}")))?;
        }
    }
    to_batch(&columns, schema, len)
}

/// The same rows under a schema that became known later: a column may have turned nullable, and a column without any
/// value may have got its type.
pub fn conform(found: &RecordBatch, schema: &Schema) -> Result<RecordBatch, ArrowError> {
    let arrays = found
        .columns()
        .iter()
        .zip(schema.columns())
        .map(|(array, spec)| {
            let wanted = data_type(spec.kind);
            if *array.data_type() == wanted {
                Arc::clone(array)
            } else {
                new_null_array(&wanted, array.len())
            }
        });
    batch(arrow_schema(schema), arrays.collect(), found.num_rows())
}

/// Batches of a metadata file, pointing into `file`.
///
/// # Errors
/// What is wrong with the file: not Arrow IPC, other columns than `schema`, or another number of rows.
pub fn decode(file: &Buffer, schema: &Schema, rows: u64) -> Result<Vec<RecordBatch>, String> {
    // The decoder checks most of what it reads but asserts the rest; the bytes may come from anywhere.
    let batches = catch_unwind(AssertUnwindSafe(|| decode_batches(file)))
        .map_err(|_| "an Arrow file that the decoder gave up on".to_owned())?
        .map_err(|error| format!("a file that is not Arrow IPC: {error}"))?;
    let expected = arrow_schema(schema);
    for batch in &batches {
        let found = batch.schema();
        if !fits(&found, &expected) {
            return Err(format!(
                "columns {} where the manifest has {}",
                describe(&found),
                describe(&expected)
            ));
        }
    }
    // Without columns, a batch may claim any number of rows.
    let found = batches.iter().fold(0u64, |sum, batch| {
        sum.saturating_add(batch.num_rows() as u64)
    });
    if found != rows {
        return Err(format!("{found} rows where the manifest has {rows}"));
    }
    Ok(batches)
}

/// Whether a table has these columns. One without nulls may be part of a table that has some elsewhere.
fn fits(found: &ArrowSchema, expected: &ArrowSchema) -> bool {
    let alike = |(found, expected): (&Arc<Field>, &Arc<Field>)| {
        found.name() == expected.name()
            && found.data_type() == expected.data_type()
            && (expected.is_nullable() || !found.is_nullable())
    };
    found.fields().len() == expected.fields().len()
        && found.fields().iter().zip(expected.fields()).all(alike)
}

fn describe(schema: &ArrowSchema) -> String {
    let column = |field: &Arc<Field>| {
        let null = if field.is_nullable() { " or null" } else { "" };
        format!("{} {}{null}", field.name(), field.data_type())
    };
    format!(
        "({})",
        schema
            .fields()
            .iter()
            .map(column)
            .collect::<Vec<_>>()
            .join(", ")
    )
}

fn decode_batches(file: &Buffer) -> Result<Vec<RecordBatch>, ArrowError> {
    let short = || ArrowError::ParseError("the file is cut".to_owned());
    let trailer_start = file.len().checked_sub(TRAILER).ok_or_else(short)?;
    let (head, trailer) = file.split_at_checked(trailer_start).ok_or_else(short)?;
    let footer_len = read_footer_length(trailer.try_into().map_err(|_| short())?)?;
    let footer_start = trailer_start.checked_sub(footer_len).ok_or_else(short)?;
    let footer = root_as_footer(head.get(footer_start..).ok_or_else(short)?)
        .map_err(|error| ArrowError::ParseError(format!("footer: {error}")))?;
    let schema = footer
        .schema()
        .ok_or_else(|| ArrowError::ParseError("footer without schema".to_owned()))?;
    let decoder = FileDecoder::new(Arc::new(try_fb_to_schema(schema)?), footer.version());
    let mut batches = Vec::new();
    for block in footer.recordBatches().iter().flatten() {
        let position = |value: i64| usize::try_from(value).map_err(|_| short());
        let start = position(block.offset())?;
        let len =
            position(i64::from(block.metaDataLength()))?.checked_add(position(block.bodyLength())?);
        let len = len
            .filter(|len| {
                start
                    .checked_add(*len)
                    .is_some_and(|end| end <= footer_start)
            })
            .ok_or_else(short)?;
        if let Some(batch) =
            decoder.read_record_batch(block, &file.slice_with_length(start, len))?
        {
            batches.push(batch);
        }
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::schema::ColumnSpec;

    fn schema(nullable: bool) -> Schema {
        let column = |name: &str, kind| ColumnSpec {
            name: name.to_owned(),
            kind,
            nullable,
        };
        Schema::new(vec![
            column("b", Kind::Bool),
            column("f", Kind::Float),
            column("i", Kind::Int),
            column("s", Kind::String),
        ])
        .unwrap()
    }

    fn columns(rows: i64) -> Vec<Column> {
        let mut columns = vec![
            Column::new(None),
            Column::new(None),
            Column::new(None),
            Column::new(None),
        ];
        for row in 0..rows {
            let text = format!("row {row} of a text longer than twelve bytes");
            let values = [
                Value::Bool(row % 3 == 0),
                Value::Float(row as f64 / 3.0),
                Value::Int(row),
                Value::Str(&text),
            ];
            for (column, value) in columns.iter_mut().zip(values) {
                column.push(value).unwrap();
            }
        }
        columns
    }

    fn file(rows: i64) -> Vec<u8> {
        file_of(rows, &schema(false))
    }

    fn file_of(rows: i64, schema: &Schema) -> Vec<u8> {
        let mut writer = writer(Vec::new(), schema).unwrap();
        writer
            .write(&to_batch(&columns(rows), schema, rows as usize).unwrap())
            .unwrap();
        writer.finish().unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn rows_survive_without_being_copied() {
        let file = Buffer::from_vec(file(100));
        let batches = decode(&file, &schema(false), 100).unwrap();
        assert_eq!(
            batches,
            [to_batch(&columns(100), &schema(false), 100).unwrap()]
        );
        let inside = file.as_ptr_range();
        for column in batches[0].columns() {
            for buffer in column.to_data().buffers() {
                assert!(inside.contains(&buffer.as_ptr()));
            }
        }
    }

    #[test]
    fn a_wrong_schema_or_row_count_is_reported() {
        let nullable = Buffer::from_vec(file_of(5, &schema(true)));
        let file = Buffer::from_vec(file(5));
        let two = Schema::new(schema(false).columns()[..2].to_vec()).unwrap();
        for (file, expected) in [(&nullable, schema(false)), (&file, two)] {
            let fault = decode(file, &expected, 5).unwrap_err();
            assert!(fault.contains("columns"), "{fault}");
        }
        // A part without nulls of a table that has some elsewhere.
        decode(&file, &schema(true), 5).unwrap();
        assert!(
            decode(&file, &schema(false), 6)
                .unwrap_err()
                .contains("5 rows")
        );
    }

    #[test]
    fn no_cut_and_no_flip_panics() {
        let whole = file(3);
        for len in 0..whole.len() {
            assert!(
                decode(&Buffer::from_vec(whole[..len].to_vec()), &schema(false), 3).is_err(),
                "{len}"
            );
        }
        for position in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[position] ^= 0x80;
            let _ = decode(&Buffer::from_vec(flipped), &schema(false), 3);
        }
    }

    #[test]
    fn early_batches_conform_to_what_was_learned_later() {
        let mut open = Column::new(None);
        open.push(Value::Null).unwrap();
        let spec = |kind| ColumnSpec {
            name: "c".to_owned(),
            kind,
            nullable: true,
        };
        let early = to_batch(&[open], &Schema::new(vec![spec(Kind::String)]).unwrap(), 1).unwrap();
        let late = Schema::new(vec![spec(Kind::Int)]).unwrap();
        let found = conform(&early, &late).unwrap();
        assert_eq!(found.schema(), arrow_schema(&late));
        assert_eq!(found.column(0).null_count(), 1);
    }
}
