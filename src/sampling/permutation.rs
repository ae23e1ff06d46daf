//! Keyed permutations of `0..rows` with access to any place in constant time and next to no memory.
//!
//! Up to 65,536 rows a table is shuffled with exact indices (Fisher-Yates), so every permutation is equally likely.
//! Above, a Feistel network on `tall * 2^bits >= rows` with eight rounds is applied until it lands inside; short
//! networks on small sets are badly biased, which is why small sets get the table.
//!
//! The words of pass p of an epoch start at block `p << 16` of its permutation stream: one pass needs 16,384 at most.

#![forbid(unsafe_code)]

use super::chunks::{self, Chunks};
use super::rng::{BLOCKS, Purpose, Stream, low};
use super::uniform::Below;
use crate::error::{CacheError, Result};

/// Most rows that are permuted by table: 128 KiB and a quarter of a millisecond.
const TABLE_ROWS_MAX: u64 = 1 << 16;

/// Most rows of a permutation: both halves of the network stay below 2^25.
pub const ROWS_MAX: u64 = 1 << 48;

/// Most passes of an epoch: 2^18 draws each, all numbered in 64 bits.
pub const PASSES_MAX: u64 = 1 << 46;

/// Indices computed together.
const CHUNK: usize = 64;

const ROUND_PAIRS: usize = 4;
const MULTIPLIER_0: u32 = 0xD251_1F53;
const MULTIPLIER_1: u32 = 0xCD9E_8D57;

/// One permutation of `0..rows`.
#[derive(Debug)]
pub struct Permutation(Kind);

#[derive(Debug)]
enum Kind {
    Table(Box<[u16]>),
    Network(Network),
}

impl Permutation {
    /// The permutation of `0..rows` that `seed` and `epoch` give pass `pass`, counted from 0. More than [`ROWS_MAX`]
    /// rows or [`PASSES_MAX`] passes are refused.
    pub fn new(seed: u64, epoch: u32, pass: u64, rows: u64) -> Result<Self> {
        within("the number of rows permuted", rows, ROWS_MAX)?;
        within("the number of passes of an epoch", pass, PASSES_MAX - 1)?;
        let stream = Stream::new(seed, epoch, Purpose::Permutation);
        Ok(Self(if rows <= TABLE_ROWS_MAX {
            Kind::Table(shuffled(&stream, pass << 16, rows as usize))
        } else {
            Kind::Network(Network::new(&stream, pass << 16, rows))
        }))
    }

    /// How many rows are permuted.
    pub fn rows(&self) -> u64 {
        match &self.0 {
            Kind::Table(table) => table.len() as u64,
            Kind::Network(network) => network.rows,
        }
    }

    /// The row at a place; none from [`rows`](Self::rows) on.
    pub fn get(&self, place: u64) -> Option<u64> {
        match &self.0 {
            Kind::Table(table) => table
                .get(usize::try_from(place).ok()?)
                .map(|&row| row.into()),
            Kind::Network(network) => (place < network.rows).then(|| network.row(place)),
        }
    }

    /// The rows at places `start..start + out.len()`, which have to be below [`rows`](Self::rows).
    pub fn fill(&self, start: u64, out: &mut [u64]) -> Result<()> {
        let end = start.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.rows()) {
            return Err(CacheError::OutOfRange {
                index: i128::from(start) + out.len() as i128 - 1,
                len: self.rows(),
            });
        }
        match &self.0 {
            Kind::Table(table) => {
                let rows = table.get(start as usize..).unwrap_or_default();
                for (out, &row) in out.iter_mut().zip(rows) {
                    *out = row.into();
                }
            }
            Kind::Network(network) => {
                chunks::fill(network, start, out);
            }
        }
        Ok(())
    }
}

fn within(what: &str, found: u64, limit: u64) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    Err(CacheError::limit(what, found, limit))
}

/// Fisher-Yates from the front: place k receives one of the rows not yet placed, by draw k of the pass.
fn shuffled(stream: &Stream, first_block: u64, rows: usize) -> Box<[u16]> {
    let mut table: Box<[u16]> = (0..rows).map(|row| row as u16).collect();
    for (blocks, first) in (first_block..)
        .step_by(BLOCKS)
        .zip((0..rows).step_by(4 * BLOCKS))
    {
        let [w0, w1, w2, w3] = stream.blocks(blocks);
        let words = w0.into_iter().zip(w1).zip(w2.into_iter().zip(w3));
        let words = words.flat_map(|((w0, w1), (w2, w3))| [w0, w1, w2, w3]);
        for (place, word) in (first..rows).zip(words) {
            let word = low(word);
            let bound = (rows - place) as u32;
            let product = word * u64::from(bound);
            // The rejection limit lies below the bound, so most words are accepted without dividing to find it.
            let chosen = if (product as u32) < bound {
                Below::new(bound).draw(stream, (first_block << 2) + place as u64)
            } else {
                (product >> 32) as u32
            };
            table.swap(place, place + chosen as usize);
        }
    }
    table
}

/// An unbalanced Feistel network: a left half in `0..tall` and a right half of `bits` bits, changed in turn.
#[derive(Debug)]
struct Network {
    rows: u64,
    bits: u32,
    tall: u32,
    /// Per pair of rounds: two words for the left half's round, two for the right half's.
    keys: [[u32; 4]; ROUND_PAIRS],
}

impl Network {
    fn new(stream: &Stream, first_block: u64, rows: u64) -> Self {
        // Halves of about equal size: 2^bits is between sqrt(rows / 2) and sqrt(rows * 2).
        let bits = rows.max(1).ilog2().div_ceil(2);
        let mut keys = [[0; 4]; ROUND_PAIRS];
        for (block, key) in (first_block..).zip(&mut keys) {
            *key = stream.block(block, 0);
        }
        Self {
            rows,
            bits,
            tall: rows.div_ceil(1 << bits) as u32,
            keys,
        }
    }

    /// Two rounds: the left half is moved by a hash of the right one, then the right half by a hash of the new left one.
    #[inline(always)]
    fn two_rounds(&self, [k0, k1, k2, k3]: [u32; 4], left: u32, right: u32) -> (u32, u32) {
        let scaled = u64::from(mix(right, k0, k1)) * u64::from(self.tall);
        // Both halves stay below 2^25, so the sign of the difference tells whether the sum passed `tall`.
        let wrapped = (left + (scaled >> 32) as u32).wrapping_sub(self.tall);
        let left = wrapped.wrapping_add(self.tall & ((wrapped as i32) >> 31) as u32);
        (left, right.wrapping_add(mix(left, k2, k3)) & self.mask())
    }

    #[inline(always)]
    fn mask(&self) -> u32 {
        (1 << self.bits) - 1
    }

    fn step(&self, place: u64) -> u64 {
        let halves = ((place >> self.bits) as u32, place as u32 & self.mask());
        let (left, right) = self.keys.iter().fold(halves, |(left, right), &keys| {
            self.two_rounds(keys, left, right)
        });
        u64::from(left) << self.bits | u64::from(right)
    }

    fn row(&self, place: u64) -> u64 {
        let mut row = self.step(place);
        while row >= self.rows {
            row = self.step(row);
        }
        row
    }

    /// Rounds outside of lanes, because this form becomes vector code.
    #[inline(always)]
    fn all_rounds(&self, left: &mut [u32; CHUNK], right: &mut [u32; CHUNK]) {
        for keys in self.keys {
            for (left, right) in left.iter_mut().zip(right.iter_mut()) {
                (*left, *right) = self.two_rounds(keys, *left, *right);
            }
        }
    }
}

impl Chunks<CHUNK> for Network {
    const ALIGN: u64 = 1;

    /// Places from `rows` on are mapped to something and of no use.
    #[inline(always)]
    fn make(&self, first: u64, rows: &mut [u64; CHUNK]) {
        let (mut left, mut right) = ([0; CHUNK], [0; CHUNK]);
        for ((left, right), place) in left.iter_mut().zip(&mut right).zip(first..) {
            (*left, *right) = ((place >> self.bits) as u32, place as u32 & self.mask());
        }
        self.all_rounds(&mut left, &mut right);
        let mut outside = 0;
        for (row, (&left, &right)) in rows.iter_mut().zip(left.iter().zip(&right)) {
            *row = u64::from(left) << self.bits | u64::from(right);
            outside |= (self.rows - 1).wrapping_sub(*row);
        }
        if outside >> 63 != 0 {
            for (place, row) in (first..).zip(rows) {
                if *row >= self.rows && place < self.rows {
                    *row = self.row(*row);
                }
            }
        }
    }
}

/// A keyed hash of one half, all 32 bits of it usable.
#[inline(always)]
fn mix(half: u32, k0: u32, k1: u32) -> u32 {
    fold(fold(half ^ k0, MULTIPLIER_0) ^ k1, MULTIPLIER_1)
}

#[inline(always)]
fn fold(word: u32, multiplier: u32) -> u32 {
    let product = u64::from(word) * u64::from(multiplier);
    (product >> 32) as u32 ^ product as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::testing::chi_square_z;

    fn all(permutation: &Permutation) -> Vec<u64> {
        let mut rows = vec![0; permutation.rows() as usize];
        permutation.fill(0, &mut rows).unwrap();
        rows
    }

    fn assert_bijection(rows: &[u64]) {
        let mut seen = vec![false; rows.len()];
        for &row in rows {
            assert!(!std::mem::replace(&mut seen[row as usize], true), "{row}");
        }
    }

    #[test]
    fn every_small_size_and_both_sides_of_every_power_of_two_are_bijections() {
        let around =
            (11..=18).flat_map(|power| [-1i64, 0, 1].map(|d| ((1i64 << power) + d) as u64));
        for rows in (0..=2000).chain(around).chain([100_003, (1 << 20) + 1]) {
            let permutation = Permutation::new(rows, 1, 2, rows).unwrap();
            assert_eq!(permutation.rows(), rows);
            assert_bijection(&all(&permutation));
        }
    }

    #[test]
    fn the_network_alone_is_a_bijection_at_every_size_that_it_could_be_asked_for() {
        let stream = Stream::new(4, 4, Purpose::Permutation);
        for rows in (1..=300).chain([1023, 1024, 1025, 4095, 4096, 4097, 5000]) {
            let network = Network::new(&stream, 0, rows);
            assert_bijection(
                &(0..rows)
                    .map(|place| network.row(place))
                    .collect::<Vec<_>>(),
            );
        }
    }

    #[test]
    fn batches_equal_single_look_ups_at_every_start_and_length() {
        for rows in [500, 65_536, 65_537, 1_000_003, (1 << 40) + 5] {
            let permutation = Permutation::new(1, 2, 3, rows).unwrap();
            for start in [0, 1, 63, 64, 65, 200, rows - 100, rows - 64, rows - 7] {
                for length in [0, 1, 5, 64, 65, 100, 200] {
                    let mut out = vec![u64::MAX; length];
                    let filled = permutation.fill(start, &mut out);
                    assert_eq!(filled.is_ok(), start + length as u64 <= rows);
                    if filled.is_ok() {
                        for (place, &row) in (start..).zip(&out) {
                            assert_eq!(permutation.get(place), Some(row));
                            assert!(row < rows);
                        }
                    }
                }
            }
            assert_eq!(permutation.get(rows), None);
            assert_eq!(permutation.get(u64::MAX), None);
            assert!(permutation.fill(u64::MAX, &mut [0; 2]).is_err());
        }
        // Where many places fall outside at first, batches walk on like single look-ups.
        let network = Network::new(&Stream::new(0, 0, Purpose::Permutation), 0, 129);
        let single: Vec<u64> = (0..128).map(|place| network.row(place)).collect();
        let mut chunks = [[0; CHUNK]; 2];
        for (first, chunk) in (0..).step_by(CHUNK).zip(&mut chunks) {
            network.make(first, chunk);
        }
        assert_eq!(chunks.concat(), single);
        assert!((0..128).any(|place| network.step(place) >= 129));
    }

    #[test]
    fn the_table_is_the_textbook_shuffle() {
        let stream = Stream::new(3, 4, Purpose::Permutation);
        for rows in [0usize, 1, 2, 3, 64, 65, 1000, 65_536] {
            let mut expected: Vec<u16> = (0..rows).map(|row| row as u16).collect();
            for k in 0..rows {
                let below = Below::new((rows - k) as u32);
                expected.swap(k, k + below.draw(&stream, (5 << 18) + k as u64) as usize);
            }
            assert_eq!(*shuffled(&stream, 5 << 16, rows), *expected);
        }
    }

    #[test]
    fn all_permutations_of_few_rows_are_equally_likely() {
        for (rows, count, keys) in [(4u64, 24, 40_000u64), (5, 120, 80_000), (6, 720, 200_000)] {
            let mut counts = vec![0; count];
            for key in 0..keys {
                // Neighbouring seeds, epochs and passes are what real jobs use.
                let permutation =
                    Permutation::new(key / 100, (key % 10) as u32, key / 10 % 10, rows);
                let mut left: Vec<u64> = (0..rows).collect();
                let mut rank = 0;
                for row in all(&permutation.unwrap()) {
                    let at = left.iter().position(|&other| other == row).unwrap();
                    rank = rank * left.len() + at;
                    left.remove(at);
                }
                counts[rank] += 1;
            }
            let z = chi_square_z(&counts, &vec![1.0; count]);
            assert!(z.abs() < 4.0, "{rows}: {z}");
        }
    }

    #[test]
    fn the_network_moves_every_place_to_everywhere() {
        let rows = 65_537u64;
        let mut first = vec![0; 64];
        let mut pair = vec![0; 64];
        let mut steps = vec![0; 64];
        let mut fixed = 0;
        for key in 0..400 {
            let permutation = Permutation::new(key / 20, (key % 20) as u32, 0, rows).unwrap();
            let mut out = [0; 256];
            permutation.fill(0, &mut out).unwrap();
            let cell = |value: u64| (value * 64 / rows) as usize;
            first[cell(out[0])] += 1;
            pair[cell(out[0]) / 8 * 8 + cell(out[1]) / 8] += 1;
            for two in out.windows(2) {
                steps[cell((two[1] + rows - two[0]) % rows)] += 1;
            }
            fixed += (0..).zip(out).filter(|&(place, row)| place == row).count();
        }
        for counts in [first, pair, steps] {
            let z = chi_square_z(&counts, &[1.0; 64]);
            assert!(z.abs() < 4.0, "{z}");
        }
        assert!(fixed < 12, "{fixed} fixed places, 1.6 expected");
    }

    #[test]
    fn passes_epochs_and_seeds_differ() {
        for rows in [1000, 100_000] {
            let of = |seed, epoch, pass| all(&Permutation::new(seed, epoch, pass, rows).unwrap());
            let base = of(1, 1, 1);
            for other in [of(2, 1, 1), of(1, 2, 1), of(1, 1, 2), of(1 << 32, 1, 1)] {
                let same = base.iter().zip(&other).filter(|(a, b)| a == b).count();
                assert!(same < 10, "{same}");
            }
        }
    }

    #[test]
    fn more_rows_than_the_halves_hold_are_refused() {
        assert!(Permutation::new(0, 0, 0, ROWS_MAX).is_ok());
        assert!(Permutation::new(0, 0, 0, ROWS_MAX + 1).is_err());
        assert!(Permutation::new(0, 0, PASSES_MAX - 1, 5).is_ok());
        assert!(Permutation::new(0, 0, PASSES_MAX, 5).is_err());
    }
}
