//! Weighted draws without surprise: over an epoch every row is drawn its expected number of times, rounded down or up.
//!
//! Systematic rounding: rows lie side by side on a line as long as the epoch has draws, each as wide as its expected
//! number of draws; the draws are the points `offset + 0, 1, 2, …`, the offset in `0..1` being the epoch's own. Where rows
//! begin is computed exactly in integers and stored rounded down to 2^-32 of a draw (coarser for epochs of 2^32 draws and
//! more), which amounts to rounding the offset and so keeps "down or up" exact. Weights lighter than 2^-62 of the
//! heaviest one are taken as that; others lose only bits below it.
//!
//! The offset is the low bits of words 0 (low) and 1 (high) of block 0 of the epoch's quota stream.

#![forbid(unsafe_code)]

use super::rng::{Purpose, Stream};
use super::weights;
use crate::error::{CacheError, Result};
use crate::huge;
use crate::limits::WEIGHTED_ROWS_MAX;

/// Most draws of one epoch.
pub const DRAWS_MAX: u64 = 1 << 48;

/// Rows after a stretch's first that are compared at once.
const WINDOW: usize = 8;

/// Weights become whole numbers below twice this.
const HEAVIEST: f64 = (1u64 << 62) as f64;

/// Look-ups made together.
const CHUNK: usize = 64;

/// A point on the line, and the first and last row it can belong to.
#[derive(Clone, Copy, Default)]
struct Stretch {
    point: u64,
    first: u32,
    last: u32,
}

/// Where every row's draws lie; the same for all epochs.
#[derive(Debug)]
pub struct QuotaTable {
    draws: u64,
    /// A draw is `2^fraction` wide.
    fraction: u32,
    /// Where each row begins; 8 bytes a row.
    starts: Box<[u64]>,
    /// For each stretch of `2^stretch`, the last row that begins before it (or row 0), and after the last one the last row; half as many as
    /// rows at most, so that a stretch holds a few rows and looking one up is a step or two.
    guide: Box<[u32]>,
    stretch: u32,
}

impl QuotaTable {
    /// Lays out `draws` draws over rows in proportion to finite weights, none negative, one at least positive. O(rows),
    /// 9 to 10 bytes a row. Equal input gives equal bits on every platform.
    pub fn build(weights: &[f64], draws: u64) -> Result<Self> {
        weights::check(weights, true)?;
        for (what, found, limit) in [
            (
                "rows drawn by weight",
                weights.len() as u64,
                WEIGHTED_ROWS_MAX,
            ),
            ("draws of an epoch", draws, DRAWS_MAX),
        ] {
            if found > limit {
                return Err(CacheError::limit(
                    format!("the number of {what}"),
                    found,
                    limit,
                ));
            }
        }
        let fraction = draws.leading_zeros().min(32);
        let starts = starts(weights, draws << fraction)?;
        let stretch = (0..63)
            .find(|&shift| (draws << fraction) >> shift <= weights.len() as u64 / 2)
            .unwrap_or(63);
        let guide = guide(&starts, draws << fraction, stretch)?;
        Ok(Self {
            draws,
            fraction,
            starts,
            guide,
            stretch,
        })
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.starts.len() as u64
    }

    /// How many draws an epoch has.
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// Where the draws of an epoch lie within `0..1` draw, for [`row`](Self::row) and [`count`](Self::count).
    pub fn offset(&self, seed: u64, epoch: u32) -> u64 {
        let [low, high, _, _] = Stream::new(seed, epoch, Purpose::QuotaOffset).block(0, 0);
        (u64::from(low) | u64::from(high) << 32) & ((1 << self.fraction) - 1)
    }

    /// The row of one of the epoch's draws, counted in table order; a draw from [`draws`](Self::draws) on is taken as the
    /// last.
    pub fn row(&self, offset: u64, draw: u64) -> u64 {
        self.row_in(&self.stretch_of(offset, draw))
    }

    /// Replaces each draw by its row.
    pub fn look_up(&self, offset: u64, draws: &mut [u64]) {
        // In two stages, so that the table reads of each stage do not wait for one another.
        for draws in draws.chunks_mut(CHUNK) {
            let mut stretches = [Stretch::default(); CHUNK];
            for (stretch, &draw) in stretches.iter_mut().zip(&*draws) {
                *stretch = self.stretch_of(offset, draw);
            }
            for (draw, stretch) in draws.iter_mut().zip(&stretches) {
                *draw = self.row_in(stretch);
            }
        }
    }

    #[inline(always)]
    fn stretch_of(&self, offset: u64, draw: u64) -> Stretch {
        let point = (draw.min(self.draws.saturating_sub(1)) << self.fraction) + offset;
        let at = (point >> self.stretch) as usize;
        let bound = |at: usize| self.guide.get(at).copied().unwrap_or_default();
        Stretch {
            point,
            first: bound(at),
            last: bound(at + 1),
        }
    }

    #[inline(always)]
    fn row_in(&self, stretch: &Stretch) -> u64 {
        let (point, first, last) = (stretch.point, stretch.first as usize, stretch.last as usize);
        // Rows after the stretch begin after the point, so counting a few too many changes nothing; a count of fixed
        // length has no branch to mispredict.
        let later = self.starts.get(first + 1..).unwrap_or_default();
        let passed = match later.first_chunk::<WINDOW>() {
            Some(near) if last - first <= WINDOW => {
                near.iter().map(|&start| usize::from(start <= point)).sum()
            }
            _ => {
                let later = later.get(..last - first).unwrap_or_default();
                later.partition_point(|&start| start <= point)
            }
        };
        (first + passed) as u64
    }

    /// How often a row is drawn in the epoch with this offset: its expected number of draws, rounded down or up.
    pub fn count(&self, offset: u64, row: u64) -> u64 {
        let before = |row: u64| {
            let start = usize::try_from(row)
                .ok()
                .and_then(|row| self.starts.get(row));
            // Draws whose point lies before the row.
            start.map_or(self.draws, |start| {
                let width = 1 << self.fraction;
                (start + (width - 1 - offset)) >> self.fraction
            })
        };
        before(row.saturating_add(1)) - before(row)
    }
}

/// Where each row begins on a line of `length`: `floor(length * weight of all rows before / weight of all rows)`, exactly.
fn starts(weights: &[f64], length: u64) -> Result<Box<[u64]>> {
    let unit = weights::unit_scale(weights::largest(weights)?);
    let whole = |weight: f64| ((weight * unit * HEAVIEST) as u64).max(u64::from(weight > 0.0));
    let total: u128 = weights
        .iter()
        .map(|&weight| u128::from(whole(weight)))
        .sum();
    let ratio = length as f64 / total as f64;
    let mut start = 0u64;
    // `start * total + rest == length * weight of all rows before`, with `rest` below `total`.
    let mut rest = 0u128;
    let place = |&weight: &f64| {
        let begin = start;
        let share = u128::from(whole(weight)) * u128::from(length);
        // A guess by floating point, off by little; the remainder says by how much. Modulo 2^128 all along, because
        // only the remainder has to fit.
        let guess = (whole(weight) as f64 * ratio) as u64;
        let remainder = rest
            .wrapping_add(share)
            .wrapping_sub(u128::from(guess).wrapping_mul(total)) as i128;
        let correction = if (0..total as i128).contains(&remainder) {
            0
        } else {
            remainder.div_euclid(total as i128)
        };
        start = start.wrapping_add(guess).wrapping_add(correction as u64);
        rest = (remainder - correction * total as i128) as u128;
        begin
    };
    huge::boxed(weights.len(), weights.iter().map(place))
}

fn guide(starts: &[u64], length: u64, stretch: u32) -> Result<Box<[u32]>> {
    let stretches = (length >> stretch) + 1;
    let mut row = 0u32;
    let mut later = starts.iter().skip(1).peekable();
    let first_of = |number: u64| {
        // The last row that begins before the stretch.
        while later.next_if(|&&start| start >> stretch < number).is_some() {
            row += 1;
        }
        row
    };
    let last = starts.len().saturating_sub(1) as u32;
    let rows = (0..stretches).map(first_of).chain([last]);
    huge::boxed(stretches as usize + 1, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::testing::chi_square_z;

    fn spread(rows: usize, power: i32) -> Vec<f64> {
        let mut out = vec![0; rows];
        crate::sampling::uniform::fill(3, 0, 1 << 20, 0, &mut out);
        out.iter()
            .map(|&x| ((x + 1) as f64 / (1u64 << 20) as f64).powi(power))
            .collect()
    }

    /// Expected draws of each row, as exact fractions over whole weights.
    fn assert_rounded(weights: &[u64], draws: u64, offset_seed: u64) {
        let floats: Vec<f64> = weights.iter().map(|&weight| weight as f64).collect();
        let table = QuotaTable::build(&floats, draws).unwrap();
        let total: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
        let offset = table.offset(offset_seed, 0);
        let mut counts = vec![0u64; weights.len()];
        for draw in 0..draws {
            counts[table.row(offset, draw) as usize] += 1;
        }
        for (row, (&weight, &count)) in weights.iter().zip(&counts).enumerate() {
            let expected = u128::from(weight) * u128::from(draws);
            let (floor, ceil) = (expected / total, expected.div_ceil(total));
            assert!((floor..=ceil).contains(&count.into()), "row {row}: {count}");
            assert_eq!(table.count(offset, row as u64), count);
        }
    }

    #[test]
    fn every_row_is_drawn_its_expected_number_of_times_rounded_down_or_up() {
        let mut words = vec![0; 3000];
        crate::sampling::uniform::fill(5, 0, 1000, 0, &mut words);
        let mixed: Vec<u64> = words.iter().map(|word| word + 1).collect();
        let total: u64 = mixed.iter().sum();
        for seed in 0..20 {
            for draws in [0, 1, 2, 7, 2999, 3000, 10_000, total / 1000] {
                assert_rounded(&mixed, draws, seed);
            }
            assert_rounded(&[1], 5, seed);
            assert_rounded(&[1, 2, 3, 4], 10, seed);
            assert_rounded(&[1, 1, 1], 10, seed);
            assert_rounded(&[1 << 40, 1, 1, 1], 1000, seed);
            assert_rounded(&[1, 1, 1 << 40, 1], 3, seed);
            assert_rounded(&[0, 3, 0, 0, 1, 0], 8, seed);
        }
        // Every expectation is a whole number here, so rounding has nothing to choose.
        assert_rounded(&mixed, total, 20);
    }

    #[test]
    fn starts_are_the_exact_quotients() {
        for (weights, length) in [
            (spread(5000, 1), 5000u64 << 32),
            (spread(5000, 9), u64::MAX),
            (vec![1.0, 1e-300, 1e300, 5e-324], 1 << 63),
            (vec![3.0; 1000], 1),
        ] {
            let unit = weights::unit_scale(weights.iter().copied().fold(0.0, f64::max));
            let whole = |w: f64| ((w * unit * HEAVIEST) as u128).max(1);
            let total: u128 = weights.iter().map(|&w| whole(w)).sum();
            // Long division bit by bit: quotient and remainder of `before * length / total` without wide products.
            let (mut quotient, mut rest) = (0u128, 0u128);
            for (&weight, &start) in weights.iter().zip(&starts(&weights, length).unwrap()) {
                assert_eq!(u128::from(start), quotient);
                for bit in (0..64).filter(|bit| length >> bit & 1 == 1) {
                    let part = whole(weight) << bit.min(60);
                    for _ in 0..1u32 << (bit - bit.min(60)) {
                        quotient += part / total;
                        rest += part % total;
                    }
                }
                quotient += rest / total;
                rest %= total;
            }
        }
    }

    #[test]
    fn ratios_are_kept_down_to_the_stated_part_of_the_heaviest() {
        // 2^48 draws; expectations are `DRAWS_MAX * ratio / (1 + ratio)`.
        for power in [0, 1, 20, 40, 46] {
            let ratio = 2f64.powi(-power);
            for (heavy, light) in [(1.0, ratio), (1e300, 1e300 * ratio)] {
                let table = QuotaTable::build(&[heavy, light], DRAWS_MAX).unwrap();
                let expected = (u128::from(DRAWS_MAX) / ((1 << power) + 1)) as u64;
                for epoch in 0..20 {
                    let found = table.count(table.offset(3, epoch), 1);
                    assert!(
                        (expected..=expected + 1).contains(&found),
                        "{power} {found}"
                    );
                }
            }
        }
        // Below 2^-62 of the heaviest all weights are equal, and rows of weight zero stay out.
        let table = |light: f64| QuotaTable::build(&[light, 0.0, 1.0], DRAWS_MAX).unwrap();
        let widths = |light: f64| table(light).starts;
        assert_eq!(widths(5e-324), widths(2f64.powi(-62)));
        assert_eq!(widths(1e-30), widths(2f64.powi(-62)));
        assert_ne!(widths(2f64.powi(-46)), widths(2f64.powi(-62)));
        let table = table(1e-30);
        assert!((0..100).all(|epoch| table.count(table.offset(3, epoch), 0) <= 1));
        assert!((0..100).all(|epoch| table.count(table.offset(3, epoch), 1) == 0));
    }

    #[test]
    fn looking_up_equals_a_walk_over_all_rows() {
        let one_giant = [vec![1.0; 500], vec![1e6], vec![1e-3; 2000]].concat();
        for weights in [vec![2.0], spread(777, 1), spread(3000, 6), one_giant] {
            for draws in [1, 5, 100, 3001, 20_000] {
                let table = QuotaTable::build(&weights, draws).unwrap();
                for epoch in 0..3 {
                    let offset = table.offset(7, epoch);
                    let mut row = 0;
                    let mut all: Vec<u64> = (0..draws).collect();
                    table.look_up(offset, &mut all);
                    for (draw, &found) in (0..).zip(&all) {
                        let point = (draw << table.fraction) + offset;
                        while table.starts.get(row + 1).is_some_and(|&s| s <= point) {
                            row += 1;
                        }
                        assert_eq!(found, row as u64);
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_is_rounded_up_as_often_as_its_fraction_says() {
        let weights = [0.3, 1.25, 0.1, 2.85, 0.5];
        let mut counts = [0; 5];
        let table = QuotaTable::build(&weights, 5).unwrap();
        for epoch in 0..20_000 {
            let offset = table.offset(1, epoch);
            for (row, count) in counts.iter_mut().enumerate() {
                *count += table.count(offset, row as u64);
            }
        }
        // Rounded draws scatter less than multinomial ones, so the statistic lies below its usual mean.
        let z = chi_square_z(&counts, &weights);
        assert!(z < 1.0, "{z}");
    }

    #[test]
    fn a_row_includes_its_beginning_and_not_its_end() {
        let table = QuotaTable::build(&[1.0, 2.0, 1.0, 4.0], 8).unwrap();
        for offset in [0, 1, u64::from(u32::MAX)] {
            assert_eq!(
                [0, 1, 2, 3].map(|row| table.count(offset, row)),
                [1, 2, 1, 4]
            );
            let rows = [0, 1, 2, 3, 4, 5, 6, 7].map(|draw| table.row(offset, draw));
            assert_eq!(rows, [0, 1, 1, 2, 3, 3, 3, 3]);
        }
        let many = QuotaTable::build(&[1.0; 30], 30).unwrap();
        for offset in [0, u64::from(u32::MAX)] {
            assert!((0..30).all(|draw| many.row(offset, draw) == draw));
        }
        let halves = QuotaTable::build(&[1.0, 1.0, 1.0, 1.0], 2).unwrap();
        assert_eq!([0, 1].map(|draw| halves.row(0, draw)), [0, 2]);
        assert_eq!([0, 1].map(|draw| halves.row((1 << 31) - 1, draw)), [0, 2]);
        assert_eq!([0, 1].map(|draw| halves.row(1 << 31, draw)), [1, 3]);
        assert_eq!(
            [0, 1, 2, 3].map(|row| halves.count(1 << 31, row)),
            [0, 1, 0, 1]
        );
        assert_eq!([0, 1, 2, 3].map(|row| halves.count(0, row)), [1, 0, 1, 0]);
    }

    #[test]
    fn long_epochs_and_many_rows_stay_within_their_limits() {
        let table = QuotaTable::build(&[1.0, 3.0], DRAWS_MAX).unwrap();
        let offset = table.offset(3, 0);
        assert_eq!(table.count(offset, 0), DRAWS_MAX / 4);
        assert_eq!(table.row(offset, DRAWS_MAX / 4 - 1), 0);
        assert_eq!(table.row(offset, DRAWS_MAX / 4), 1);
        assert_eq!(table.row(offset, DRAWS_MAX - 1), 1);
        assert!(QuotaTable::build(&[1.0], DRAWS_MAX + 1).is_err());
        assert!(QuotaTable::build(&[f64::NAN], 1).is_err());
        let table = QuotaTable::build(&[1.0, 2.0, 1.0], (1 << 32) + 5).unwrap();
        let offset = table.offset(3, 0);
        assert_eq!(
            (0..3).map(|row| table.count(offset, row)).sum::<u64>(),
            (1 << 32) + 5
        );
    }
}
