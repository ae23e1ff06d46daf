//! Statistics shared by the tests of this module.

/// How many standard deviations the chi-square statistic of `counts` lies from its mean, if every cell is drawn in
/// proportion to `weights`.
pub(super) fn chi_square_z(counts: &[u64], weights: &[f64]) -> f64 {
    assert_eq!(counts.len(), weights.len());
    let draws: u64 = counts.iter().sum();
    let total: f64 = weights.iter().sum();
    let statistic: f64 = counts
        .iter()
        .zip(weights)
        .map(|(&count, weight)| {
            let expected = draws as f64 * weight / total;
            (count as f64 - expected).powi(2) / expected
        })
        .sum();
    let freedom = (counts.len() - 1) as f64;
    (statistic - freedom) / (2.0 * freedom).sqrt()
}
