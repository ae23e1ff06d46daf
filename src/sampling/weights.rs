//! What weights may be, and the power of two that brings them to a common size without rounding.

#![forbid(unsafe_code)]

use crate::error::{CacheError, Result};

/// Rows named by an error about weights; more would not help anyone.
const NAMED_ROWS: usize = 16;

/// Weights of one block are summed in row order, then the block sums in block order.
const SUM_BLOCK: usize = 65_536;

/// Refuses weights that are not positive and finite (or not zero either, where `zero` allows it), naming the first few rows.
pub(super) fn check(weights: &[f64], zero: bool) -> Result<()> {
    let drawable = |weight: f64| weight.is_finite() && (weight > 0.0 || (zero && weight == 0.0));
    if weights.iter().all(|&weight| drawable(weight)) {
        return Ok(());
    }
    let rows: Vec<u64> = (0u64..)
        .zip(weights)
        .filter(|&(_, &weight)| !drawable(weight))
        .map(|(row, _)| row)
        .take(NAMED_ROWS)
        .collect();
    let first = rows.first().copied().unwrap_or_default();
    let found = usize::try_from(first).ok().and_then(|row| weights.get(row));
    Err(CacheError::Weights {
        fault: format!(
            "the weight of row {first} is {:?}: expected a positive finite number",
            found.copied().unwrap_or_default()
        ),
        rows,
    })
}

/// Refuses weights of which none is above zero; returns the largest.
pub(super) fn largest(weights: &[f64]) -> Result<f64> {
    let largest = weights.iter().copied().fold(0.0, f64::max);
    if largest > 0.0 {
        return Ok(largest);
    }
    Err(CacheError::Weights {
        fault: format!(
            "none of the {} rows has a weight above zero: nothing can be drawn",
            weights.len()
        ),
        rows: Vec::new(),
    })
}

/// Whether all weights are the same number, so that no table is needed.
pub(super) fn all_equal(weights: &[f64]) -> bool {
    weights
        .first()
        .is_none_or(|first| weights.iter().all(|weight| weight == first))
}

/// The power of two, 2^-1022 to 2^1022, that brings a positive finite number into `1.0..4.0`, or as near as it can.
pub(super) fn unit_scale(largest: f64) -> f64 {
    let exponent = ((largest.to_bits() >> 52) & 0x7FF).clamp(1, 2045);
    f64::from_bits((2046 - exponent) << 52)
}

/// The sum of the weights times `scale`, in an order of operations that never changes.
pub(super) fn scaled_sum(weights: &[f64], scale: f64) -> f64 {
    weights
        .chunks(SUM_BLOCK)
        .map(|block| block.iter().fold(0.0, |sum, weight| sum + weight * scale))
        .fold(0.0, |sum, block| sum + block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_finite_weights_pass_and_the_rows_at_fault_are_named() {
        assert!(check(&[1.0, f64::MIN_POSITIVE, 5e-324, f64::MAX], false).is_ok());
        assert!(check(&[0.0, 1.0], true).is_ok());
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, -f64::INFINITY] {
            let error = check(&[1.0, bad, 1.0, bad], false).unwrap_err();
            assert!(
                matches!(&error, CacheError::Weights { rows, .. } if rows == &[1, 3]),
                "{error}"
            );
            assert!(error.to_string().contains("row 1"), "{error}");
        }
        assert!(check(&[-0.5], true).is_err());
        assert!(largest(&[0.0, 0.0]).is_err());
        assert!(largest(&[]).is_err());
    }

    #[test]
    fn the_scale_is_a_power_of_two_that_brings_the_largest_weight_near_one() {
        for weight in [
            1.0,
            1.5,
            3e-300,
            7e300,
            f64::MAX,
            f64::MIN_POSITIVE,
            123.456,
        ] {
            let scale = unit_scale(weight);
            assert_eq!(scale.to_bits() & ((1 << 52) - 1), 0);
            assert!((1.0..4.0).contains(&(weight * scale)), "{weight}");
        }
        assert!(unit_scale(5e-324) * 5e-324 >= 1e-16);
    }

    #[test]
    fn sums_are_taken_block_by_block() {
        let weights: Vec<f64> = (0..70_000).map(|row| 0.1 + f64::from(row)).collect();
        let (first, second) = weights.split_at(65_536);
        let expected = first.iter().sum::<f64>() + second.iter().sum::<f64>();
        assert_eq!(scaled_sum(&weights, 1.0).to_bits(), expected.to_bits());
    }
}
