//! The weight of every active row, and its replacement from a samples metadata table.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::DataType;

use super::rows::Rows;
use crate::error::{CacheError, Result};

/// Rows that a message names before it only counts.
const NAMED_MAX: usize = 10;

/// Weights of all active rows.
#[derive(Clone, Debug)]
pub enum Weights {
    /// Every row weighs the same, so no table is needed.
    Equal,
    /// One positive finite weight per row; clones share the memory.
    Each(ScalarBuffer<f64>),
}

impl Weights {
    /// The weight of every row, or `None` if all weigh the same.
    pub fn each(&self) -> Option<&ScalarBuffer<f64>> {
        match self {
            Self::Equal => None,
            Self::Each(weights) => Some(weights),
        }
    }

    /// Reads the columns `cache_id`, `sample_id` and `weight` of `batches`, which must name every row exactly once, in any
    /// order. Costs O(rows).
    ///
    /// # Errors
    /// [`CacheError::Weights`] saying what is wrong and with which rows: a missing column or a wrong type, a null, a row that
    /// is unknown, repeated or missing, a weight that is not positive and finite.
    pub fn from_batches(
        rows: &Rows,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
    ) -> Result<Self> {
        let count = usize::try_from(rows.len()).map_err(|_| CacheError::Limit {
            what: "number of rows".to_owned(),
            found: rows.len(),
            limit: usize::MAX as u64,
        })?;
        let mut collector = Collector {
            rows,
            weights: vec![0.0; count],
            table_rows: 0,
            faults: Faults::default(),
        };
        for batch in batches {
            collector.add(&batch?)?;
        }
        collector.finish()
    }
}

/// Gathers weights by row; 0.0 marks a row that has not come yet.
struct Collector<'a> {
    rows: &'a Rows,
    weights: Vec<f64>,
    table_rows: u64,
    faults: Faults,
}

/// Rows that break a rule: the first few by name, all by number.
#[derive(Default)]
struct Faults {
    unknown: Named,
    repeated: Named,
    bad_weight: Named,
}

#[derive(Default)]
struct Named {
    count: u64,
    names: Vec<String>,
    table_rows: Vec<u64>,
}

impl Named {
    fn add(&mut self, table_row: u64, name: impl FnOnce() -> String) {
        if self.names.len() < NAMED_MAX {
            self.names.push(name());
            self.table_rows.push(table_row);
        }
        self.count += 1;
    }

    fn check(self, rule: &str) -> Result<()> {
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

fn name(cache: u64, sample: u64) -> String {
    format!("(cache_id {cache}, sample_id {sample})")
}

impl Collector<'_> {
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let caches = integers(batch, "cache_id", self.table_rows)?;
        let samples = integers(batch, "sample_id", self.table_rows)?;
        let weights = floats(batch, "weight", self.table_rows)?;
        // Consecutive table rows mostly belong to one cache.
        let mut known = None;
        for ((&cache, &sample), &weight) in caches.iter().zip(samples.iter()).zip(weights.iter()) {
            let (start, count) = match known {
                Some((known, start, count)) if known == cache => (start, count),
                _ => {
                    let (start, count) = self.rows.cache(cache).unwrap_or((0, 0));
                    known = Some((cache, start, count));
                    (start, count)
                }
            };
            let slot = if sample < count {
                self.weights.get_mut((start + sample) as usize)
            } else {
                None
            };
            match slot {
                None => self
                    .faults
                    .unknown
                    .add(self.table_rows, || name(cache, sample)),
                Some(slot) if *slot != 0.0 => self
                    .faults
                    .repeated
                    .add(self.table_rows, || name(cache, sample)),
                Some(slot) => {
                    // NaN marks the row as seen and fails the check of weights too.
                    *slot = if weight == 0.0 { f64::NAN } else { weight };
                    if !(weight > 0.0 && weight.is_finite()) {
                        self.faults.bad_weight.add(self.table_rows, || {
                            format!("{} has {weight}", name(cache, sample))
                        });
                    }
                }
            }
            self.table_rows += 1;
        }
        Ok(())
    }

    fn finish(self) -> Result<Weights> {
        self.faults
            .unknown
            .check("rows that this dataset does not have")?;
        self.faults.repeated.check("rows that appear twice")?;
        self.faults
            .bad_weight
            .check("weights must be positive and finite")?;
        let mut missing = Named::default();
        for (row, _) in self
            .weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight == 0.0)
        {
            let sample = self.rows.sample(row as u64)?;
            missing.add(row as u64, || name(u64::from(sample.cache), sample.sample));
        }
        missing.check("every row must appear once, these are missing")?;
        match self.weights.first() {
            Some(first) if self.weights.iter().any(|weight| weight != first) => {
                Ok(Weights::Each(self.weights.into()))
            }
            _ => Ok(Weights::Equal),
        }
    }
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
fn integers(batch: &RecordBatch, name: &str, table_row: u64) -> Result<ScalarBuffer<u64>> {
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

fn floats(batch: &RecordBatch, name: &str, table_row: u64) -> Result<ScalarBuffer<f64>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Float64Array, Int64Array, UInt64Array};
    use std::sync::Arc;

    fn table(caches: Vec<u64>, samples: Vec<u64>, weights: Vec<f64>) -> RecordBatch {
        RecordBatch::try_from_iter([
            ("cache_id", Arc::new(UInt64Array::from(caches)) as ArrayRef),
            (
                "sample_id",
                Arc::new(UInt64Array::from(samples)) as ArrayRef,
            ),
            ("weight", Arc::new(Float64Array::from(weights)) as ArrayRef),
        ])
        .unwrap()
    }

    fn read(batch: RecordBatch) -> Result<Weights> {
        Weights::from_batches(&Rows::new([2, 1]).unwrap(), [Ok(batch)])
    }

    #[test]
    fn weights_land_on_their_rows_whatever_the_table_order() {
        let weights = read(table(vec![1, 0, 0], vec![0, 1, 0], vec![3.0, 2.0, 1.0])).unwrap();
        assert_eq!(weights.each().unwrap()[..], [1.0, 2.0, 3.0]);
    }

    #[test]
    fn equal_weights_need_no_vector() {
        assert!(
            read(table(vec![0, 0, 1], vec![0, 1, 0], vec![2.0; 3]))
                .unwrap()
                .each()
                .is_none()
        );
    }

    #[test]
    fn every_fault_names_its_rows() {
        let cases = [
            (
                table(vec![0, 0, 1], vec![0, 1, 1], vec![1.0; 3]),
                "does not have: (cache_id 1, sample_id 1)",
            ),
            (
                table(vec![0, 0, 9], vec![0, 1, 0], vec![1.0; 3]),
                "does not have: (cache_id 9, sample_id 0)",
            ),
            (
                table(vec![0, 0, 0], vec![0, 1, 1], vec![1.0; 3]),
                "appear twice: (cache_id 0, sample_id 1)",
            ),
            (
                table(vec![0, 0], vec![0, 1], vec![1.0; 2]),
                "missing: (cache_id 1, sample_id 0)",
            ),
            (
                table(vec![], vec![], vec![]),
                "missing: (cache_id 0, sample_id 0), (cache_id 0, sample_id 1)",
            ),
            (
                table(vec![0, 0, 1], vec![0, 1, 0], vec![1.0, 0.0, 1.0]),
                "(cache_id 0, sample_id 1) has 0",
            ),
            (
                table(vec![0, 0, 1], vec![0, 1, 0], vec![-1.0, 1.0, 1.0]),
                "(cache_id 0, sample_id 0) has -1",
            ),
            (
                table(
                    vec![0, 0, 1],
                    vec![0, 1, 0],
                    vec![f64::NAN, 1.0, f64::INFINITY],
                ),
                "has NaN, (cache_id 1",
            ),
        ];
        for (batch, fault) in cases {
            let error = read(batch).unwrap_err().to_string();
            assert!(error.contains(fault), "{error}");
        }
    }

    #[test]
    fn integer_columns_of_any_width_are_read_and_negative_ids_are_unknown() {
        let batch = |cache: i64, weight: i64| {
            RecordBatch::try_from_iter([
                (
                    "cache_id",
                    Arc::new(Int64Array::from(vec![0, 0, cache])) as ArrayRef,
                ),
                (
                    "sample_id",
                    Arc::new(Int64Array::from(vec![0, 1, 0])) as ArrayRef,
                ),
                (
                    "weight",
                    Arc::new(Int64Array::from(vec![1, 2, weight])) as ArrayRef,
                ),
            ])
            .unwrap()
        };
        assert_eq!(
            read(batch(1, 3)).unwrap().each().unwrap()[..],
            [1.0, 2.0, 3.0]
        );
        assert!(read(batch(-1, 3)).is_err());
        assert!(read(batch(1, -3)).is_err());
    }

    #[test]
    fn nulls_and_wrong_types_are_named() {
        let batch = RecordBatch::try_from_iter([
            (
                "cache_id",
                Arc::new(UInt64Array::from(vec![Some(0), None])) as ArrayRef,
            ),
            (
                "sample_id",
                Arc::new(UInt64Array::from(vec![0, 1])) as ArrayRef,
            ),
            (
                "weight",
                Arc::new(arrow_array::StringArray::from(vec!["1", "2"])) as ArrayRef,
            ),
        ])
        .unwrap();
        assert!(
            read(batch.clone())
                .unwrap_err()
                .to_string()
                .contains("`cache_id` holds 1 nulls, the first in table rows [1]")
        );
        let batch = batch.slice(0, 1);
        assert!(
            read(batch)
                .unwrap_err()
                .to_string()
                .contains("`weight`: expected a number type, found Utf8")
        );
    }
}
