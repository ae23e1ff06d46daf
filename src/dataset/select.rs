//! Views: the rows and weights that a user's table chooses.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::active::ActiveRows;
use super::caches::Caches;
use super::lookup::{Found, Lookup, Unknown};
use super::table::{Named, floats, integers, name};
use super::weights::{Weights, is_weight};
use crate::error::Result;

/// Rows and weights of a view of `rows`: one row for each table row, in table order. Any subset, order or repetition; a
/// table without a column `weight` gives each sample the weight of its first active row.
///
/// # Errors
/// [`crate::error::CacheError::Weights`] naming the rows: a missing column or a wrong type, a null, a sample that is
/// not active here, a weight that is not positive and finite; and as [`Caches::check_table`].
pub fn select(
    caches: &Caches,
    rows: &ActiveRows,
    weights: &Weights,
    batches: impl IntoIterator<Item = Result<RecordBatch>>,
) -> Result<(ActiveRows, Weights)> {
    caches.check_table()?;
    let mut lookup = Lookup::new(caches, rows);
    let mut chosen = Vec::new();
    let mut new_weights = Vec::new();
    let mut unknown = Unknown::default();
    let mut bad_weight = Named::default();
    let mut table_row = 0;
    for batch in batches {
        let batch = batch?;
        let cache_ids = integers(&batch, "cache_id", table_row)?;
        let sample_ids = integers(&batch, "sample_id", table_row)?;
        let given = batch
            .column_by_name("weight")
            .map(|_| floats(&batch, "weight", table_row))
            .transpose()?;
        for (position, (&cache, &sample)) in cache_ids.iter().zip(sample_ids.iter()).enumerate() {
            // Where its weight is wanted, the first row of a sample must be found, not the one expected here.
            let is_any = given.is_some() || weights.each().is_none();
            let hint = if is_any { table_row } else { u64::MAX };
            match lookup.find(cache, sample, hint, |_| true)? {
                Found::Row(row) => {
                    chosen.push(rows.physical(caches, row as u64)?);
                    let weight = match &given {
                        Some(given) => given.get(position).copied(),
                        None => weights.get(row),
                    };
                    let weight = weight.unwrap_or(f64::NAN);
                    if !is_weight(weight) {
                        bad_weight.add(table_row, || {
                            format!("{} has {weight}", name(cache, sample))
                        });
                    }
                    new_weights.push(weight);
                }
                found => unknown.add(found, table_row, || name(cache, sample)),
            }
            table_row += 1;
        }
    }
    unknown.check()?;
    bad_weight.check("weights must be positive and finite")?;
    Ok((
        ActiveRows::Chosen(Arc::from(chosen)),
        Weights::from_rows(new_weights),
    ))
}

/// The first active row of each sample that a table names, in its order.
///
/// # Errors
/// [`crate::error::CacheError::Weights`] naming the rows: a missing column or a wrong type, a null, a sample that is
/// not active here.
pub fn rows_of(
    caches: &Caches,
    rows: &ActiveRows,
    batches: impl IntoIterator<Item = Result<RecordBatch>>,
) -> Result<Vec<u64>> {
    let mut lookup = Lookup::new(caches, rows);
    let mut found = Vec::new();
    let mut unknown = Unknown::default();
    for batch in batches {
        let batch = batch?;
        let first = found.len() as u64;
        let cache_ids = integers(&batch, "cache_id", first)?;
        let sample_ids = integers(&batch, "sample_id", first)?;
        for (&cache, &sample) in cache_ids.iter().zip(sample_ids.iter()) {
            match lookup.find(cache, sample, u64::MAX, |_| true)? {
                Found::Row(row) => found.push(row as u64),
                missing => {
                    unknown.add(missing, found.len() as u64, || name(cache, sample));
                    found.push(u64::MAX);
                }
            }
        }
    }
    unknown.check()?;
    Ok(found)
}
