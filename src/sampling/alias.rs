//! Weighted draws with replacement: an alias table of 8 bytes a row, exact for weights rounded to 2^-32 of the mean.
//!
//! `units` turns weights into whole numbers that sum to exactly `rows * 2^32`; from there on everything is integer
//! arithmetic: the sweep of two cursors (Hübschle-Schneider, Sanders: "Parallel weighted random sampling", ESA 2019) loses
//! nothing, and a row with `u` units is drawn with probability `u / (rows * 2^32)`, neither more nor less.
//!
//! Draw k takes words `2 * (k & 1)` (row) and `2 * (k & 1) + 1` (compared with the threshold) of block `k >> 1`; where
//! the row's word is rejected, both come from the next attempt.

#![forbid(unsafe_code)]

use super::chunks::{self, Chunks};
use super::rng::{BLOCKS, Purpose, Stream, low};
use super::uniform::Below;
use super::units::{MEAN, Units};
use super::weights;
use crate::error::{CacheError, Result};
use crate::huge;
use crate::limits::WEIGHTED_ROWS_MAX;

/// Draws made together: enough independent table reads to hide the latency of memory.
const CHUNK: usize = 64;

/// Draws of the blocks that are made together.
const SET: usize = 2 * BLOCKS;

/// A table that draws rows in proportion to their weights, in constant time a draw.
#[derive(Debug)]
pub struct AliasTable {
    /// Low half: threshold, below which the row itself is drawn. High half: the row drawn otherwise.
    entries: Box<[u64]>,
    below: Below,
}

impl AliasTable {
    /// Builds the table in O(rows). Weights are finite and not negative, one at least positive; a row of weight zero is
    /// never drawn. Equal input gives equal bits on every platform.
    pub fn build(weights: &[f64]) -> Result<Self> {
        let rows = u32::try_from(weights.len()).map_err(|_| {
            CacheError::limit(
                "the number of rows drawn by weight",
                weights.len() as u64,
                WEIGHTED_ROWS_MAX,
            )
        })?;
        weights::check(weights, true)?;
        Ok(Self {
            entries: sweep(&Units::new(weights)?)?,
            below: Below::new(rows),
        })
    }

    /// How many rows the table draws from.
    pub fn rows(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Draw `k` of `seed` and `epoch`.
    pub fn draw(&self, seed: u64, epoch: u32, k: u64) -> u64 {
        self.draw_from(&Stream::new(seed, epoch, Purpose::Weighted), k)
    }

    /// Draws `start..start + out.len()` of `seed` and `epoch`, equal to [`draw`](Self::draw) one by one.
    pub fn fill(&self, seed: u64, epoch: u32, start: u64, out: &mut [u64]) {
        let stream = Stream::new(seed, epoch, Purpose::Weighted);
        let table = self;
        chunks::fill(&Draws { table, stream }, start, out);
    }

    fn draw_from(&self, stream: &Stream, k: u64) -> u64 {
        let mut attempt = 0;
        loop {
            let [w0, w1, w2, w3] = stream.block(k >> 1, attempt);
            let (word, fraction) = if k & 1 == 0 { (w0, w1) } else { (w2, w3) };
            if let Some(row) = self.below.accept(word) {
                let entry = self.entry(row.into());
                return choose(row.into(), fraction.into(), entry);
            }
            attempt += 1;
        }
    }

    #[inline(always)]
    fn entry(&self, row: u64) -> u64 {
        // Rows lie below the bound, so the entry is there; without one the row would stand for itself.
        self.entries.get(row as usize).copied().unwrap_or(u64::MAX)
    }

    #[inline(always)]
    fn chunk(&self, stream: &Stream, first: u64, out: &mut [u64; CHUNK]) {
        let (mut fractions, mut entries) = ([0; CHUNK], [0; CHUNK]);
        let mut again = 0;
        let sets = out.as_chunks_mut::<SET>().0.iter_mut();
        let blocks = (first >> 1..).step_by(BLOCKS);
        for ((rows, fractions), block) in sets.zip(fractions.as_chunks_mut::<SET>().0).zip(blocks) {
            let [w0, w1, w2, w3] = stream.blocks(block);
            let pairs = rows.as_chunks_mut::<2>().0.iter_mut();
            let pairs = pairs.zip(fractions.as_chunks_mut::<2>().0);
            let words = w0.iter().zip(&w1).zip(w2.iter().zip(&w3));
            for ((rows, fractions), ((&w0, &w1), (&w2, &w3))) in pairs.zip(words) {
                let ((r0, a0), (r1, a1)) = (self.below.split(w0), self.below.split(w2));
                *rows = [r0, r1];
                *fractions = [w1, w3];
                again |= a0 | a1;
            }
        }
        // All reads of the table stand together and none waits for another: this is what hides their latency.
        for (entry, &row) in entries.iter_mut().zip(&*out) {
            *entry = self.entry(row);
        }
        for (row, (&fraction, &entry)) in out.iter_mut().zip(fractions.iter().zip(&entries)) {
            *row = choose(*row, fraction, entry);
        }
        if again >> 63 != 0 {
            self.repair(stream, first, out);
        }
    }

    /// A chunk in which some word has to be drawn again, draw by draw.
    #[cold]
    fn repair(&self, stream: &Stream, first: u64, out: &mut [u64; CHUNK]) {
        for (k, row) in (first..).zip(out) {
            *row = self.draw_from(stream, k);
        }
    }
}

/// Draws of one stream.
struct Draws<'a> {
    table: &'a AliasTable,
    stream: Stream,
}

impl Chunks<CHUNK> for Draws<'_> {
    const ALIGN: u64 = 2;

    #[inline(always)]
    fn make(&self, first: u64, out: &mut [u64; CHUNK]) {
        self.table.chunk(&self.stream, first, out);
    }
}

/// The row or its alias, as the low half of `fraction` is below the threshold or not.
#[inline(always)]
fn choose(row: u64, fraction: u64, entry: u64) -> u64 {
    // Arithmetic on purpose: a comparison becomes a branch on a coin toss, which costs more than all the rest.
    let keep = low(fraction).wrapping_sub(low(entry)) >> 32;
    let alias = entry >> 32;
    alias ^ ((alias ^ row) & keep)
}

fn pack(threshold: u64, alias: usize) -> u64 {
    (alias as u64) << 32 | threshold
}

/// Two cursors, one over light rows and one over heavy ones: each light row is topped up by the current heavy row, and a
/// heavy row that has become light itself by the next one.
fn sweep(units: &Units<'_>) -> Result<Box<[u64]>> {
    let mut entries = huge::boxed(units.rows(), (0..units.rows()).map(|row| pack(0, row)))?;
    let mut set = |row: usize, threshold: u64, alias: usize| {
        if let Some(entry) = entries.get_mut(row) {
            *entry = pack(threshold, alias);
        }
    };
    let mut lights = units.iter().filter(|&(_, units)| units < MEAN);
    let mut heavies = units.iter().filter(|&(_, units)| units > MEAN);
    if let Some((mut heavy, mut left)) = heavies.next() {
        loop {
            if left > MEAN {
                let Some((row, units)) = lights.next() else {
                    break;
                };
                set(row, units, heavy);
                left -= MEAN - units;
            } else if let Some((next, units)) = heavies.next() {
                if left < MEAN {
                    set(heavy, left, next);
                }
                left = units - (MEAN - left);
                heavy = next;
            } else if left == MEAN {
                break;
            } else {
                return Err(CacheError::internal("alias table does not balance"));
            }
        }
        if left != MEAN || lights.next().is_some() {
            return Err(CacheError::internal("alias table does not balance"));
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::testing::chi_square_z;

    /// Units each row is drawn with, read back from a finished table.
    fn units_of(table: &AliasTable) -> Vec<u128> {
        let mut units = vec![0u128; table.entries.len()];
        for (row, entry) in table.entries.iter().enumerate() {
            let threshold = entry & 0xFFFF_FFFF;
            units[row] += u128::from(threshold);
            units[(entry >> 32) as usize] += u128::from(MEAN - threshold);
        }
        units
    }

    fn spread(rows: usize, power: i32) -> Vec<f64> {
        let mut out = vec![0; rows];
        crate::sampling::uniform::fill(3, 0, 1 << 20, 0, &mut out);
        out.iter()
            .map(|&x| ((x + 1) as f64 / (1u64 << 20) as f64).powi(power))
            .collect()
    }

    fn one_giant(rows: usize, at: usize) -> Vec<f64> {
        let mut weights = vec![1e-30; rows];
        weights[at] = 1.0;
        weights
    }

    #[test]
    fn every_row_has_its_units_within_the_stated_rounding() {
        let cases = [
            vec![1.0],
            vec![5e-324, 1e308],
            vec![1e308; 7],
            vec![5e-324; 9],
            vec![1.0, 2.0, 3.0, 4.0],
            vec![0.1, 0.2, 0.3, 0.4, 0.0],
            spread(1000, 1),
            spread(70_001, 4),
            spread(5000, -3),
            one_giant(1000, 0),
            one_giant(1000, 999),
            one_giant(100_000, 500),
            [vec![1.0; 500], vec![3.0; 500]].concat(),
        ];
        for weights in cases {
            let table = AliasTable::build(&weights).unwrap();
            let units = units_of(&table);
            let rows = weights.len() as u128;
            assert_eq!(units.iter().sum::<u128>(), rows << 32);
            let unit = weights::unit_scale(weights.iter().copied().fold(0.0, f64::max));
            let total: f64 = weights.iter().map(|w| w * unit).sum();
            for (&weight, &found) in weights.iter().zip(&units) {
                let exact = weight * unit / total * (weights.len() as f64) * 4_294_967_296.0;
                assert_eq!(found == 0, weight == 0.0);
                let error = (found as f64 - exact).abs();
                let allowed = if exact < 0.5 * 4_294_967_296.0 - 1.0 {
                    // Half a unit, one for a row that would get none, and what this check itself rounds.
                    if exact < 0.5 {
                        1.0
                    } else {
                        0.5 + exact * 1e-11
                    }
                } else {
                    1.5 + exact * 2f64.powi(-30)
                };
                assert!(error <= allowed, "{exact} {found} of {rows} rows");
            }
        }
    }

    #[test]
    fn simple_weights_are_exact() {
        let table = AliasTable::build(&[1.0, 2.0, 4.0, 1.0]).unwrap();
        let eighth = 4u128 << 29;
        assert_eq!(units_of(&table), [eighth, 2 * eighth, 4 * eighth, eighth]);
    }

    #[test]
    fn a_row_of_hardly_any_weight_keeps_exactly_one_unit() {
        let rest = |rows: u128, light: u128| (rows << 32) - light;
        for (weights, expected) in [
            (vec![1.0, 1e-30], vec![rest(2, 1), 1]),
            (vec![1.0, 5e-324], vec![rest(2, 1), 1]),
            (vec![1e300, 1.0, 1e-300], vec![rest(3, 2), 1, 1]),
            (vec![1e-300, 0.0, 1e300], vec![1, 0, rest(3, 1)]),
            (vec![5e-324, f64::MAX], vec![1, rest(2, 1)]),
            // Units below the mean follow the weights: 2^-20 of the heaviest is 2^-19 of the mean of two.
            (
                vec![1.0, 1.0 / f64::from(1 << 20)],
                vec![rest(2, 1 << 13), 1 << 13],
            ),
            (vec![5e-324, 1.5e-323], vec![1 << 31, 3 << 31]),
        ] {
            let table = AliasTable::build(&weights).unwrap();
            assert_eq!(units_of(&table), expected, "{weights:?}");
        }
    }

    #[test]
    fn batches_equal_single_draws_at_every_start_and_length() {
        let table = AliasTable::build(&spread(3000, 4)).unwrap();
        let expected: Vec<u64> = (0..400).map(|k| table.draw(1, 2, k)).collect();
        for start in 0..70 {
            for length in [0, 1, 2, 63, 64, 65, 130, 300] {
                let mut out = vec![u64::MAX; length];
                table.fill(1, 2, start as u64, &mut out);
                assert_eq!(out, expected[start..start + length]);
            }
        }
    }

    #[test]
    fn every_processor_gets_the_same_rows() {
        let table = AliasTable::build(&spread(3000, 4)).unwrap();
        let stream = Stream::new(1, 2, Purpose::Weighted);
        let (mut portable, mut wide) = ([0; 1000], [1; 1000]);
        let draws = Draws {
            table: &table,
            stream,
        };
        chunks::fill_portable(&draws, 5, &mut portable);
        table.fill(1, 2, 5, &mut wide);
        assert_eq!(portable, wide);
    }

    #[test]
    fn rejected_words_give_the_same_rows_in_batches() {
        // A bound just over 2^31 rejects nearly half of the words; rows beyond the table stand for themselves.
        let table = AliasTable {
            entries: (0..5).map(|row| pack(1 << 31, row)).collect(),
            below: Below::new((1 << 31) + 1),
        };
        let stream = Stream::new(8, 0, Purpose::Weighted);
        let rejected = (0..100).filter(|&k| {
            let word = stream.block(k >> 1, 0)[2 * (k as usize & 1)];
            table.below.accept(word).is_none()
        });
        assert!(rejected.count() > 30);
        let mut out = [0; 100];
        table.fill(8, 0, 0, &mut out);
        for (k, row) in (0..).zip(out) {
            assert_eq!(row, table.draw(8, 0, k));
        }
        // Here it is about one in 230, so that most batches that hold one hold no other.
        let rare = AliasTable {
            entries: (0..1 << 16).map(|row| pack(1 << 31, row)).collect(),
            below: Below::new(18_700_001),
        };
        let mut out = vec![0; 20_000];
        rare.fill(8, 0, 0, &mut out);
        for (k, &row) in (0..).zip(&out) {
            assert_eq!(row, rare.draw(8, 0, k));
        }
    }

    #[test]
    fn a_threshold_of_t_keeps_exactly_t_fractions() {
        const TOP: u64 = u32::MAX as u64;
        assert_eq!(choose(7, 0, pack(0, 9)), 9);
        assert_eq!(choose(7, 0, pack(1, 9)), 7);
        assert_eq!(choose(7, 1, pack(1, 9)), 9);
        assert_eq!(choose(7, TOP - 1, pack(TOP, 9)), 7);
        assert_eq!(choose(7, TOP, pack(TOP, 9)), 9);
    }

    #[test]
    fn rows_are_drawn_in_proportion_to_their_weights() {
        for (seed, weights) in [
            (1, vec![1.0, 2.0, 3.0, 4.0]),
            (2, spread(500, 1)),
            (3, [vec![1.0; 50], vec![10.0; 50]].concat()),
        ] {
            let table = AliasTable::build(&weights).unwrap();
            let mut counts = vec![0; weights.len()];
            let mut out = vec![0; 300_000];
            table.fill(seed, 0, 0, &mut out);
            out.iter().for_each(|&row| counts[row as usize] += 1);
            let z = chi_square_z(&counts, &weights);
            assert!(z.abs() < 4.0, "{z}");
        }
    }

    #[test]
    fn weights_that_cannot_be_drawn_from_are_refused() {
        for weights in [
            &[][..],
            &[0.0, 0.0],
            &[1.0, -1.0],
            &[f64::NAN],
            &[f64::INFINITY, 1.0],
        ] {
            assert!(matches!(
                AliasTable::build(weights),
                Err(CacheError::Weights { .. })
            ));
        }
    }
}
