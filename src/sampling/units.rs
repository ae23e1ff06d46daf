//! Weights as whole numbers of units, 2^32 units being the mean weight, whose sum is exactly `rows * 2^32`.
//!
//! A row lighter than half the mean is off by at most half a unit (and gets one unit if it would get none), a heavier one
//! by at most half a unit plus one unit plus one part in 2^31: what the rounded numbers miss their sum by is taken up by
//! the first heavy rows.

#![forbid(unsafe_code)]

use super::weights;
use crate::error::{CacheError, Result};

/// Units of a row of mean weight.
pub(super) const MEAN: u64 = 1 << 32;

/// Weights as whole units that sum to exactly `rows * MEAN`, computed anew at each look instead of stored.
pub(super) struct Units<'a> {
    weights: &'a [f64],
    unit: f64,
    scale: f64,
    /// Heavy rows before this one give or take their whole allowance, this one `last`, later ones nothing.
    stop: usize,
    last: u64,
    surplus: bool,
}

impl<'a> Units<'a> {
    /// Rounds weights that are finite and not negative; one has to be above zero.
    pub(super) fn new(weights: &'a [f64]) -> Result<Self> {
        let target = weights.len() as u128 * u128::from(MEAN);
        let unit = weights::unit_scale(weights::largest(weights)?);
        let mut units = Self {
            weights,
            unit,
            scale: target as f64 / weights::scaled_sum(weights, unit),
            stop: 0,
            last: 0,
            surplus: false,
        };
        let sum: u128 = weights.iter().map(|&w| u128::from(units.rounded(w))).sum();
        units.surplus = sum > target;
        let mut open = sum.abs_diff(target);
        for (row, &weight) in weights.iter().enumerate() {
            let allowance = allowance(units.rounded(weight));
            (units.stop, units.last) = (row, open.min(allowance.into()) as u64);
            open -= u128::from(units.last);
            if open == 0 {
                return Ok(units);
            }
        }
        // Rows above half the mean hold half of all units at least, so their allowances exceed any rounding error.
        Err(CacheError::internal("rounded weights miss their sum"))
    }

    #[inline(always)]
    fn rounded(&self, weight: f64) -> u64 {
        let nearest = (weight * self.unit * self.scale + 0.5) as u64;
        nearest.max(u64::from(weight > 0.0))
    }

    #[inline(always)]
    fn of(&self, row: usize, weight: f64) -> u64 {
        let units = self.rounded(weight);
        if row > self.stop {
            return units;
        }
        let change = if row < self.stop {
            allowance(units)
        } else {
            self.last
        };
        if self.surplus {
            units - change
        } else {
            units + change
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.weights.len()
    }

    /// Each row with its units, in row order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        let rows = self.weights.iter().enumerate();
        rows.map(|(row, &weight)| (row, self.of(row, weight)))
    }
}

/// By how many units a row may differ from its rounded weight to make the sum come out: two parts in 2^31 at most.
#[inline(always)]
fn allowance(units: u64) -> u64 {
    if units >= MEAN / 2 {
        1 + (units >> 31)
    } else {
        0
    }
}
