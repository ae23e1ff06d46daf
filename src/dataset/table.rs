//! Identity and weight columns of a table that a user hands in, and the faults found in its rows.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::DataType;

use crate::error::{CacheError, Result};

/// Rows that a message names before it only counts.
const NAMED_MAX: usize = 10;

/// Rows that break a rule: the first few by name, all by number.
#[derive(Default)]
pub struct Named {
    count: u64,
    names: Vec<String>,
    table_rows: Vec<u64>,
}

impl Named {
    pub fn add(&mut self, table_row: u64, name: impl FnOnce() -> String) {
        if self.names.len() < NAMED_MAX {
            self.names.push(name());
            self.table_rows.push(table_row);
        }
        self.count += 1;
    }

    /// # Errors
    /// [`CacheError::Weights`] with the rule and the rows, if there is any.
    pub fn check(self, rule: &str) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let more = self.count - self.names.len() as u64;
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        Err(CacheError::Weights {
            fault: format!("{rule}: {}{more}", self.names.join(", ")),
            rows: self.table_rows,
        })
    }
}

/// A physical sample as messages name it.
pub fn name(cache: u64, sample: u64) -> String {
    format!("(cache_id {cache}, sample_id {sample})")
}

fn column<'a>(batch: &'a RecordBatch, name: &str, table_row: u64) -> Result<&'a dyn Array> {
    let column = batch
        .column_by_name(name)
        .ok_or_else(|| CacheError::Weights {
            fault: format!("column `{name}` is missing"),
            rows: Vec::new(),
        })?;
    match column
        .logical_nulls()
        .filter(|nulls| nulls.null_count() > 0)
    {
        None => Ok(column.as_ref()),
        Some(nulls) => {
            let null_rows = nulls
                .iter()
                .zip(table_row..)
                .filter(|(valid, _)| !valid)
                .map(|(_, row)| row);
            let rows: Vec<u64> = null_rows.take(NAMED_MAX).collect();
            Err(CacheError::Weights {
                fault: format!(
                    "column `{name}` holds {} nulls, the first in table rows {rows:?}",
                    nulls.null_count()
                ),
                rows,
            })
        }
    }
}

/// The column as row or cache numbers; a negative number becomes one that no dataset has, and is reported as unknown.
pub fn integers(batch: &RecordBatch, name: &str, table_row: u64) -> Result<ScalarBuffer<u64>> {
    let column = column(batch, name, table_row)?;
    Ok(match column.data_type() {
        DataType::UInt64 => column.as_primitive::<UInt64Type>().values().clone(),
        DataType::UInt32 => convert::<UInt32Type, _>(column, u64::from),
        DataType::UInt16 => convert::<UInt16Type, _>(column, u64::from),
        DataType::UInt8 => convert::<UInt8Type, _>(column, u64::from),
        DataType::Int64 => convert::<Int64Type, _>(column, |value| value as u64),
        DataType::Int32 => convert::<Int32Type, _>(column, |value| value as u64),
        DataType::Int16 => convert::<Int16Type, _>(column, |value| value as u64),
        DataType::Int8 => convert::<Int8Type, _>(column, |value| value as u64),
        found => return Err(wrong_type(name, "an integer type", found)),
    })
}

/// The column as numbers.
pub fn floats(batch: &RecordBatch, name: &str, table_row: u64) -> Result<ScalarBuffer<f64>> {
    let column = column(batch, name, table_row)?;
    Ok(match column.data_type() {
        DataType::Float64 => column.as_primitive::<Float64Type>().values().clone(),
        DataType::Float32 => convert::<Float32Type, _>(column, f64::from),
        DataType::UInt64 => convert::<UInt64Type, _>(column, |value| value as f64),
        DataType::UInt32 => convert::<UInt32Type, _>(column, f64::from),
        DataType::UInt16 => convert::<UInt16Type, _>(column, f64::from),
        DataType::UInt8 => convert::<UInt8Type, _>(column, f64::from),
        DataType::Int64 => convert::<Int64Type, _>(column, |value| value as f64),
        DataType::Int32 => convert::<Int32Type, _>(column, f64::from),
        DataType::Int16 => convert::<Int16Type, _>(column, f64::from),
        DataType::Int8 => convert::<Int8Type, _>(column, f64::from),
        found => return Err(wrong_type(name, "a number type", found)),
    })
}

fn convert<T: ArrowPrimitiveType, V: ArrowNativeType>(
    column: &dyn Array,
    convert: impl Fn(T::Native) -> V,
) -> ScalarBuffer<V> {
    column
        .as_primitive::<T>()
        .values()
        .iter()
        .map(|value| convert(*value))
        .collect()
}

fn wrong_type(name: &str, expected: &str, found: &DataType) -> CacheError {
    CacheError::Weights {
        fault: format!("column `{name}`: expected {expected}, found {found}"),
        rows: Vec::new(),
    }
}
