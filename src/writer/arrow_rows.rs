//! Arrow columns as payload fields, pointing into the memory of the column.

use arrow_array::cast::AsArray;
use arrow_array::types::GenericBinaryType;
use arrow_array::{
    Array, ArrayRef, BooleanArray, GenericByteArray, GenericListArray, OffsetSizeTrait,
};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::DataType;

use super::rows::{FieldRows, Offsets};
use crate::format::payload::{Dtype, FieldSpec};

/// Why a column is no payload field.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ColumnFault {
    /// The row at fault.
    pub row: usize,
    /// What was found, for a message.
    pub found: String,
    /// Empty, or `; ` and what to do.
    pub advice: &'static str,
}

/// Whether a column of this type is a payload field unless it is said to be metadata.
pub(super) fn is_payload(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
            | DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(..)
            | DataType::ListView(_)
            | DataType::LargeListView(_)
    )
}

/// A column as a payload field: what it is, and its values.
///
/// Bytes give a field of bytes, lists an open axis, lists of fixed size a fixed axis, and numbers no axis.
///
/// # Errors
/// A null, or a type that no field has.
pub(super) fn field_rows(
    name: &str,
    column: &ArrayRef,
) -> Result<(FieldSpec, FieldRows), ColumnFault> {
    refuse_nulls(column)?;
    let spec = |dtype, shape| FieldSpec {
        name: name.to_owned(),
        dtype,
        shape,
    };
    let bytes = || spec(Dtype::Bytes, vec![None]);
    match column.data_type() {
        DataType::Binary => Ok((bytes(), byte_rows(column.as_binary::<i32>()))),
        DataType::LargeBinary => Ok((bytes(), byte_rows(column.as_binary::<i64>()))),
        DataType::BinaryView => Ok((bytes(), FieldRows::Views(column.as_binary_view().clone()))),
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let (dtype, shape, rows) = list_rows(list)?;
            Ok((spec(dtype, shape), rows))
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            let (dtype, shape, rows) = list_rows(list)?;
            Ok((spec(dtype, shape), rows))
        }
        _ => {
            let dense = Elements::of(column)?;
            let shape = dense.shape.iter().copied().map(Some).collect();
            let rows = FieldRows::Dense {
                row_bytes: dense.item_bytes,
                bytes: dense.bytes,
            };
            Ok((spec(dense.dtype, shape), rows))
        }
    }
}

fn byte_rows<O: OffsetSizeTrait>(column: &GenericByteArray<GenericBinaryType<O>>) -> FieldRows {
    FieldRows::Ragged {
        bytes: column.values().clone(),
        offsets: offsets(column.offsets()),
        unit: 1,
    }
}

fn list_rows<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
) -> Result<(Dtype, Vec<Option<u64>>, FieldRows), ColumnFault> {
    let elements = Elements::of(list.values())?;
    let shape = elements.shape.iter().copied().map(Some);
    let rows = FieldRows::Ragged {
        bytes: elements.bytes,
        offsets: offsets(list.offsets()),
        unit: elements.item_bytes,
    };
    let shape = std::iter::once(None).chain(shape).collect();
    Ok((elements.dtype, shape, rows))
}

fn offsets<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Offsets {
    let buffer = offsets.inner().inner().clone();
    match O::IS_LARGE {
        true => Offsets::Large(buffer.into()),
        false => Offsets::Small(buffer.into()),
    }
}

/// Values of equal length and shape, one after another.
struct Elements {
    dtype: Dtype,
    shape: Vec<u64>,
    bytes: Buffer,
    /// Bytes of one value.
    item_bytes: usize,
}

impl Elements {
    fn of(column: &ArrayRef) -> Result<Self, ColumnFault> {
        refuse_nulls(column)?;
        match column.data_type() {
            DataType::FixedSizeList(_, size) => {
                let extent = u64::try_from(*size).unwrap_or_default();
                let mut inner = Self::of(column.as_fixed_size_list().values())?;
                inner.shape.insert(0, extent);
                inner.item_bytes = inner.item_bytes.saturating_mul(extent as usize);
                Ok(inner)
            }
            DataType::FixedSizeBinary(size) => {
                let extent = u64::try_from(*size).unwrap_or_default();
                Ok(Self {
                    dtype: Dtype::Uint8,
                    shape: vec![extent],
                    bytes: values(column, extent as usize),
                    item_bytes: extent as usize,
                })
            }
            DataType::Boolean => Ok(Self::unpacked(column.as_boolean())),
            other => {
                let dtype = number(other).ok_or_else(|| refused(other))?;
                let width = dtype.item_bytes() as usize;
                if cfg!(target_endian = "big") && width > 1 {
                    return Err(refused(other));
                }
                Ok(Self {
                    dtype,
                    shape: Vec::new(),
                    bytes: values(column, width),
                    item_bytes: width,
                })
            }
        }
    }

    /// Arrow packs eight of them into a byte.
    fn unpacked(column: &BooleanArray) -> Self {
        let bytes: Vec<u8> = column.values().iter().map(u8::from).collect();
        Self {
            dtype: Dtype::Bool,
            shape: Vec::new(),
            bytes: Buffer::from(bytes),
            item_bytes: 1,
        }
    }
}

/// The first buffer of a column, without what lies before and behind its values of `width` bytes.
fn values(column: &ArrayRef, width: usize) -> Buffer {
    let data = column.to_data();
    let whole = data.buffers().first().cloned().unwrap_or_default();
    let start = data.offset().saturating_mul(width);
    let len = column.len().saturating_mul(width);
    match start.checked_add(len) {
        Some(end) if end <= whole.len() => whole.slice_with_length(start, len),
        _ => Buffer::default(),
    }
}

fn number(data_type: &DataType) -> Option<Dtype> {
    Some(match data_type {
        DataType::Int8 => Dtype::Int8,
        DataType::Int16 => Dtype::Int16,
        DataType::Int32 => Dtype::Int32,
        DataType::Int64 => Dtype::Int64,
        DataType::UInt8 => Dtype::Uint8,
        DataType::UInt16 => Dtype::Uint16,
        DataType::UInt32 => Dtype::Uint32,
        DataType::UInt64 => Dtype::Uint64,
        DataType::Float16 => Dtype::Float16,
        DataType::Float32 => Dtype::Float32,
        DataType::Float64 => Dtype::Float64,
        _ => return None,
    })
}

fn refuse_nulls(column: &ArrayRef) -> Result<(), ColumnFault> {
    let nulls = column.logical_nulls();
    let first = nulls.and_then(|nulls| (0..nulls.len()).find(|row| nulls.is_null(*row)));
    match first {
        None => Ok(()),
        Some(row) => Err(ColumnFault {
            row,
            found: "null".to_owned(),
            advice: "; fill it or leave the row out",
        }),
    }
}

fn refused(data_type: &DataType) -> ColumnFault {
    let advice = match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "; cast text to binary",
        DataType::List(_) | DataType::LargeList(_) => {
            "; only the outermost list may differ in length: cast inner ones to lists of fixed size"
        }
        _ => "; cast the column first",
    };
    ColumnFault {
        row: 0,
        found: format!("Arrow type {data_type}"),
        advice,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use arrow_array::builder::{FixedSizeListBuilder, Int16Builder, ListBuilder};
    use arrow_array::{
        BinaryArray, BinaryViewArray, FixedSizeBinaryArray, Int64Array, LargeBinaryArray,
        StringArray,
    };

    use super::*;
    use crate::writer::rows::PayloadRows;

    /// Description and payloads of a column, of which the first and last row are cut off.
    fn found(column: ArrayRef) -> (String, Vec<Vec<u8>>) {
        let column = column.slice(1, column.len() - 2);
        let (spec, rows) = field_rows("x", &column).unwrap();
        let rows = PayloadRows::typed(vec![rows], column.len()).unwrap();
        let payload = |row| {
            let mut payload = Vec::new();
            let _ = rows.parts(row, |part| {
                payload.extend_from_slice(part);
                Ok::<_, Infallible>(())
            });
            payload
        };
        (spec.describe(), (0..column.len()).map(payload).collect())
    }

    fn typed(extent: u64, rest: &[u8]) -> Vec<u8> {
        [&extent.to_le_bytes()[..], rest].concat()
    }

    #[test]
    fn bytes_of_every_encoding_are_a_field_of_bytes() {
        let bytes = vec![&b"cut"[..], b"ab", b"", b"more than twelve bytes", b"cut"];
        let arrays: [ArrayRef; 3] = [
            Arc::new(BinaryArray::from_vec(bytes.clone())),
            Arc::new(LargeBinaryArray::from_vec(bytes.clone())),
            Arc::new(BinaryViewArray::from_iter_values(bytes.clone())),
        ];
        let expected: Vec<_> = bytes[1..4]
            .iter()
            .map(|b| typed(b.len() as u64, b))
            .collect();
        for array in arrays {
            assert_eq!(found(array), ("bytes (None,)".to_owned(), expected.clone()));
        }
    }

    #[test]
    fn lists_are_axes() {
        let mut builder = ListBuilder::new(FixedSizeListBuilder::new(Int16Builder::new(), 2));
        for len in [1, 2, 0, 1] {
            for n in 0..len {
                builder.values().values().append_slice(&[n, -n]);
                builder.values().append(true);
            }
            builder.append(true);
        }
        let (spec, payloads) = found(Arc::new(builder.finish()));
        assert_eq!(spec, "int16 (None, 2)");
        assert_eq!(
            payloads,
            [typed(2, &[0, 0, 0, 0, 1, 0, 255, 255]), typed(0, &[])]
        );
    }

    #[test]
    fn values_of_fixed_size_are_dense() {
        let sized = FixedSizeBinaryArray::try_from_iter([b"ab", b"cd", b"ef"].iter()).unwrap();
        assert_eq!(
            found(Arc::new(sized)),
            ("uint8 (2,)".to_owned(), vec![b"cd".to_vec()])
        );
        let flags = BooleanArray::from(vec![false, true, false, true]);
        assert_eq!(
            found(Arc::new(flags)),
            ("bool ()".to_owned(), vec![vec![1], vec![0]])
        );
        let numbers = Int64Array::from(vec![1, -1, 3]);
        assert_eq!(
            found(Arc::new(numbers)),
            ("int64 ()".to_owned(), vec![vec![255; 8]])
        );
        let mut builder = FixedSizeListBuilder::new(Int16Builder::new(), 2);
        for n in 0..3 {
            builder.values().append_slice(&[n, n]);
            builder.append(true);
        }
        let (spec, payloads) = found(Arc::new(builder.finish()));
        assert_eq!(
            (spec.as_str(), payloads),
            ("int16 (2,)", vec![vec![1, 0, 1, 0]])
        );
    }

    #[test]
    fn nulls_and_other_types_are_refused() {
        let nulls: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![Some(b"a"), None]));
        assert_eq!(field_rows("x", &nulls).unwrap_err().row, 1);
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        let fault = field_rows("x", &text).unwrap_err();
        assert!(fault.found.contains("Utf8") && fault.advice.contains("binary"));
        let mut builder = ListBuilder::new(ListBuilder::new(Int16Builder::new()));
        builder.values().append(true);
        builder.append(true);
        let nested: ArrayRef = Arc::new(builder.finish());
        assert!(
            field_rows("x", &nested)
                .unwrap_err()
                .advice
                .contains("outermost")
        );
        let mut builder = ListBuilder::new(Int16Builder::new());
        builder.values().append_null();
        builder.append(true);
        let nulls: ArrayRef = Arc::new(builder.finish());
        assert!(field_rows("x", &nulls).is_err());
    }
}
