//! Metadata values out of Arrow arrays, whatever their width and encoding.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayAccessor};
use arrow_schema::DataType;
use arrow_select::take::take;

use super::columns::{Column, Value};

/// A value that a column does not take.
#[derive(Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Its row in the array.
    pub row: usize,
    /// What belongs there.
    pub expected: &'static str,
    /// What was found, for a message.
    pub found: String,
}

/// Whether arrays of a type hold metadata values.
pub fn is_value(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_value(values),
        DataType::Null | DataType::Boolean => true,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        other => other.is_integer() || other.is_floating(),
    }
}

/// Appends all values of an array to `column`.
///
/// # Errors
/// The first value that does not fit; what came before it may have been appended.
pub fn append(column: &mut Column, array: &dyn Array) -> Result<(), Misfit> {
    match array.data_type() {
        DataType::Null => each(column, (0..array.len()).map(|_| Ok(Value::Null))),
        DataType::Boolean => items(column, array.as_boolean(), |value| Ok(Value::Bool(value))),
        DataType::Int8 => primitives::<Int8Type>(column, array, int),
        DataType::Int16 => primitives::<Int16Type>(column, array, int),
        DataType::Int32 => primitives::<Int32Type>(column, array, int),
        DataType::Int64 => primitives::<Int64Type>(column, array, int),
        DataType::UInt8 => primitives::<UInt8Type>(column, array, int),
        DataType::UInt16 => primitives::<UInt16Type>(column, array, int),
        DataType::UInt32 => primitives::<UInt32Type>(column, array, int),
        DataType::UInt64 => primitives::<UInt64Type>(column, array, |value| {
            i64::try_from(value)
                .map(Value::Int)
                .map_err(|_| format!("the int {value}, which is beyond 64 bits with a sign"))
        }),
        DataType::Float16 => {
            primitives::<Float16Type>(column, array, |value| Ok(Value::Float(value.to_f64())))
        }
        DataType::Float32 => primitives::<Float32Type>(column, array, float),
        DataType::Float64 => primitives::<Float64Type>(column, array, float),
        DataType::Utf8 => items(column, array.as_string::<i32>(), text),
        DataType::LargeUtf8 => items(column, array.as_string::<i64>(), text),
        DataType::Utf8View => items(column, array.as_string_view(), text),
        DataType::Dictionary(_, values) if is_value(values) => {
            let dictionary = array.as_any_dictionary();
            match take(dictionary.values(), dictionary.keys(), None) {
                Ok(flat) => append(column, &flat),
                Err(error) => Err(misfit(0, format!("a broken dictionary ({error})"))),
            }
        }
        other => Err(misfit(
            0,
            format!("Arrow type {other}; cast the column first"),
        )),
    }
}

fn misfit(row: usize, found: String) -> Misfit {
    Misfit {
        row,
        expected: "bool, int, float or string",
        found,
    }
}

fn int<'a>(value: impl Into<i64>) -> Result<Value<'a>, String> {
    Ok(Value::Int(value.into()))
}

fn float<'a>(value: impl Into<f64>) -> Result<Value<'a>, String> {
    Ok(Value::Float(value.into()))
}

fn text(value: &str) -> Result<Value<'_>, String> {
    Ok(Value::Str(value))
}

fn primitives<T: ArrowPrimitiveType>(
    column: &mut Column,
    array: &dyn Array,
    convert: impl Fn(T::Native) -> Result<Value<'static>, String>,
) -> Result<(), Misfit> {
    items(column, array.as_primitive::<T>(), convert)
}

fn items<'a, A: ArrayAccessor>(
    column: &mut Column,
    array: A,
    convert: impl Fn(A::Item) -> Result<Value<'a>, String>,
) -> Result<(), Misfit> {
    let value = |row: usize| match array.is_null(row) {
        true => Ok(Value::Null),
        false => convert(array.value(row)),
    };
    each(column, (0..array.len()).map(value))
}

fn each<'a>(
    column: &mut Column,
    values: impl Iterator<Item = Result<Value<'a>, String>>,
) -> Result<(), Misfit> {
    for (row, value) in values.enumerate() {
        let value = value.map_err(|found| misfit(row, found))?;
        column.push(value).map_err(|(kind, found)| Misfit {
            row,
            expected: kind.name(),
            found,
        })?;
    }
    Ok(())
}

/// Bytes of text in an array.
pub fn text_bytes(array: &dyn Array) -> usize {
    match array.data_type() {
        DataType::Utf8 => span(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => span(array.as_string::<i64>().value_offsets()),
        DataType::Utf8View => {
            let views = array.as_string_view().lengths();
            views.map(|len| len as usize).sum()
        }
        DataType::Dictionary(_, values) if is_value(values) => {
            let dictionary = array.as_any_dictionary();
            take(dictionary.values(), dictionary.keys(), None).map_or(0, |flat| text_bytes(&flat))
        }
        _ => 0,
    }
}

fn span<T: Copy + Into<i64>>(offsets: &[T]) -> usize {
    let ends = offsets.first().zip(offsets.last());
    let len = ends.map_or(0, |(start, end)| (*end).into() - (*start).into());
    usize::try_from(len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, BooleanArray, DictionaryArray, Float32Array, Int8Array, Int64Array,
        LargeStringArray, NullArray, StringArray, StringViewArray, UInt32Array, UInt64Array,
    };

    use super::*;
    use crate::format::schema::Kind;

    fn values(array: &dyn Array) -> Vec<String> {
        assert!(is_value(array.data_type()));
        let mut column = Column::new(None);
        append(&mut column, array).unwrap();
        column.iter().map(|value| format!("{value:?}")).collect()
    }

    #[test]
    fn arrays_of_every_width_give_their_values_and_nulls() {
        let numbers = ["Int(-1)", "Null", "Int(7)"];
        assert_eq!(
            values(&Int8Array::from(vec![Some(-1), None, Some(7)])),
            numbers
        );
        assert_eq!(
            values(&Int64Array::from(vec![Some(-1), None, Some(7)])),
            numbers
        );
        assert_eq!(
            values(&UInt32Array::from(vec![u32::MAX])),
            ["Int(4294967295)"]
        );
        assert_eq!(
            values(&BooleanArray::from(vec![true, false])),
            ["Bool(true)", "Bool(false)"]
        );
        assert_eq!(values(&Float32Array::from(vec![0.5])), ["Float(0.5)"]);
        assert_eq!(values(&NullArray::new(2)), ["Null", "Null"]);
    }

    #[test]
    fn text_of_every_encoding_is_the_same_text() {
        let text = vec![
            Some("a"),
            None,
            Some("a text longer than twelve bytes"),
            Some("ü"),
        ];
        let arrays: [ArrayRef; 4] = [
            Arc::new(StringArray::from(text.clone())),
            Arc::new(LargeStringArray::from(text.clone())),
            Arc::new(StringViewArray::from(text.clone())),
            Arc::new(text.into_iter().collect::<DictionaryArray<Int8Type>>()),
        ];
        for array in arrays {
            let sliced = array.slice(1, 3);
            let expected = [
                "Null",
                "Str(\"a text longer than twelve bytes\")",
                "Str(\"ü\")",
            ];
            assert_eq!(values(&sliced), expected);
            assert_eq!(text_bytes(&sliced), 33, "{}", array.data_type());
        }
    }

    #[test]
    fn values_that_do_not_fit_are_named_with_their_row() {
        let mut column = Column::new(None);
        let array = UInt64Array::from(vec![1, u64::MAX]);
        let misfit = append(&mut column, &array).unwrap_err();
        assert_eq!(misfit.row, 1);
        let mut column = Column::new(Some(Kind::Bool));
        let misfit = append(&mut column, &Int64Array::from(vec![1])).unwrap_err();
        assert_eq!((misfit.row, misfit.expected), (0, "bool"));
        let mut column = Column::new(None);
        let array = arrow_array::Date32Array::from(vec![1]);
        assert!(!is_value(array.data_type()));
        assert!(
            append(&mut column, &array)
                .unwrap_err()
                .found
                .contains("Date32")
        );
    }
}
