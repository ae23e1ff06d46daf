//! The weight of every active row, and its replacement from a samples metadata table.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::active::ActiveRows;
use super::caches::Caches;
use super::lookup::{Found, Lookup, Unknown};
use super::table::{Named, floats, integers, name};
use crate::error::{CacheError, Result};

/// Weights of all active rows.
#[derive(Clone, Debug)]
pub enum Weights {
    /// Every row has this weight, so no table is needed.
    Equal(f64),
    /// One positive finite weight per row; clones share the memory.
    Each(Arc<[f64]>),
}

impl Weights {
    /// The weight of every row, or `None` if all weigh the same.
    pub fn each(&self) -> Option<&Arc<[f64]>> {
        match self {
            Self::Equal(_) => None,
            Self::Each(weights) => Some(weights),
        }
    }

    /// The weight of one row.
    pub fn get(&self, row: usize) -> Option<f64> {
        match self {
            Self::Equal(weight) => Some(*weight),
            Self::Each(weights) => weights.get(row).copied(),
        }
    }

    /// Weights in row order; equal ones need no vector.
    pub fn from_rows(weights: Vec<f64>) -> Self {
        match weights.first() {
            Some(first) if weights.iter().any(|weight| weight != first) => {
                Self::Each(weights.into())
            }
            first => Self::Equal(first.copied().unwrap_or(1.0)),
        }
    }

    /// Reads the columns `cache_id`, `sample_id` and `weight` of `batches`, which must name every active row exactly once,
    /// in any order. A sample that is active several times must be named as often; its rows take the weights in table
    /// order. Costs O(rows).
    ///
    /// # Errors
    /// [`CacheError::Weights`] saying what is wrong and with which rows: a missing column or a wrong type, a null, a row that
    /// is unknown, repeated or missing, a weight that is not positive and finite.
    pub fn from_batches(
        caches: &Caches,
        rows: &ActiveRows,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
    ) -> Result<Self> {
        let count = row_count(caches, rows)?;
        let mut collector = Collector {
            caches,
            rows,
            lookup: Lookup::new(caches, rows),
            weights: vec![0.0; count],
            table_row: 0,
            unknown: Unknown::default(),
            repeated: Named::default(),
            bad_weight: Named::default(),
        };
        for batch in batches {
            collector.add(&batch?)?;
        }
        collector.finish()
    }
}

/// Number of active rows as a length in memory.
pub fn row_count(caches: &Caches, rows: &ActiveRows) -> Result<usize> {
    let len = rows.len(caches);
    usize::try_from(len).map_err(|_| CacheError::limit("number of rows", len, usize::MAX as u64))
}

/// The rule for one weight.
pub fn is_weight(weight: f64) -> bool {
    weight > 0.0 && weight.is_finite()
}

/// Gathers weights by row; 0.0 marks a row that has not come yet.
struct Collector<'a> {
    caches: &'a Caches,
    rows: &'a ActiveRows,
    lookup: Lookup<'a>,
    weights: Vec<f64>,
    table_row: u64,
    unknown: Unknown,
    repeated: Named,
    bad_weight: Named,
}

impl Collector<'_> {
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let caches = integers(batch, "cache_id", self.table_row)?;
        let samples = integers(batch, "sample_id", self.table_row)?;
        let weights = floats(batch, "weight", self.table_row)?;
        for ((&cache, &sample), &weight) in caches.iter().zip(samples.iter()).zip(weights.iter()) {
            let seen = &self.weights;
            let is_free = |row: usize| seen.get(row).is_some_and(|weight| *weight == 0.0);
            match self.lookup.find(cache, sample, self.table_row, is_free)? {
                found @ (Found::Unknown | Found::Deleted) => {
                    self.unknown
                        .add(found, self.table_row, || name(cache, sample));
                }
                Found::Taken => self.repeated.add(self.table_row, || name(cache, sample)),
                Found::Row(row) => {
                    if let Some(slot) = self.weights.get_mut(row) {
                        // NaN marks the row as seen and fails the check of weights too.
                        *slot = if weight == 0.0 { f64::NAN } else { weight };
                    }
                    if !is_weight(weight) {
                        self.bad_weight.add(self.table_row, || {
                            format!("{} has {weight}", name(cache, sample))
                        });
                    }
                }
            }
            self.table_row += 1;
        }
        Ok(())
    }

    fn finish(self) -> Result<Weights> {
        self.unknown.check()?;
        self.repeated.check("rows that appear twice")?;
        self.bad_weight
            .check("weights must be positive and finite")?;
        let mut missing = Named::default();
        for (row, _) in self
            .weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight == 0.0)
        {
            let sample = self.rows.sample(self.caches, row as u64)?;
            missing.add(row as u64, || name(u64::from(sample.cache), sample.sample));
        }
        missing.check("every row must appear once, these are missing")?;
        Ok(Weights::from_rows(self.weights))
    }
}
