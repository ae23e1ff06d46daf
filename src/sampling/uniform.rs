//! Exact indices below a bound: multiply-shift with rejection (Lemire 2019), the repetition being an attempt of its own.
//!
//! Below 2^32, draw k takes word `k & 3` of block `k >> 2`. From 2^32 on, it takes words `2 * (k & 1)` (low) and
//! `2 * (k & 1) + 1` (high) of block `k >> 1`.

#![forbid(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2Draws;
use super::chunks::{self, Chunks};
use super::rng::{BLOCKS, Purpose, Stream, low};

/// Draws made together.
pub(super) const CHUNK: usize = 4 * BLOCKS;

/// A bound below 2^32 with its rejection limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Below {
    bound: u32,
    /// Products whose low half is smaller than this would favour some indices.
    reject: u32,
}

impl Below {
    /// Indices in `0..bound`; a bound of zero is taken as one.
    #[inline]
    pub(super) fn new(bound: u32) -> Self {
        let bound = bound.max(1);
        Self {
            bound,
            reject: bound.wrapping_neg() % bound,
        }
    }

    /// The bound, and below which low half of a product a word has to be drawn again.
    #[inline(always)]
    pub(super) fn parts(self) -> (u32, u32) {
        (self.bound, self.reject)
    }

    /// The index a word stands for, or none if the word has to be drawn again.
    #[inline(always)]
    pub(super) fn accept(self, word: u32) -> Option<u32> {
        let product = u64::from(word) * u64::from(self.bound);
        (product as u32 >= self.reject).then_some((product >> 32) as u32)
    }

    /// The index that the word in the low half of a lane stands for, and a number whose top bit says "draw again":
    /// [`accept`](Self::accept) without a branch.
    #[inline(always)]
    pub(super) fn split(self, lane: u64) -> (u64, u64) {
        let product = low(lane) * u64::from(self.bound);
        let again = low(product).wrapping_sub(u64::from(self.reject));
        (product >> 32, again)
    }

    /// Draw `k` of a stream.
    #[inline]
    pub(super) fn draw(self, stream: &Stream, k: u64) -> u32 {
        self.draw_from(stream, k, 0)
    }

    /// Draw `k` of a stream if no attempt before `attempt` gave one.
    fn draw_from(self, stream: &Stream, k: u64, mut attempt: u32) -> u32 {
        loop {
            let word = pick(stream.block(k >> 2, attempt), k);
            if let Some(index) = self.accept(word) {
                return index;
            }
            attempt += 1;
        }
    }
}

#[inline(always)]
fn pick([w0, w1, w2, w3]: [u32; 4], k: u64) -> u32 {
    match k & 3 {
        0 => w0,
        1 => w1,
        2 => w2,
        _ => w3,
    }
}

/// Draw `k` of `seed` and `epoch`: a row in `0..rows`, each equally likely; no rows count as one.
pub fn draw(seed: u64, epoch: u32, rows: u64, k: u64) -> u64 {
    let stream = Stream::new(seed, epoch, Purpose::Uniform);
    match u32::try_from(rows) {
        Ok(rows) => Below::new(rows).draw(&stream, k).into(),
        Err(_) => draw_wide(&stream, rows, k),
    }
}

/// Draws `start..start + out.len()` of `seed` and `epoch` over `0..rows`, equal to [`draw`] one by one.
pub fn fill(seed: u64, epoch: u32, rows: u64, start: u64, out: &mut [u64]) {
    let stream = Stream::new(seed, epoch, Purpose::Uniform);
    match u32::try_from(rows) {
        Ok(rows) => {
            let below = Below::new(rows);
            let draws = Draws { stream, below };
            #[cfg(target_arch = "x86_64")]
            if let Some(draws) = Avx2Draws::new(&draws) {
                return chunks::fill(&draws, start, out);
            }
            chunks::fill(&draws, start, out);
        }
        Err(_) => {
            for (k, row) in (start..).zip(out) {
                *row = draw_wide(&stream, rows, k);
            }
        }
    }
}

/// Draws of one stream below 2^32 rows.
#[derive(Clone, Copy)]
pub(super) struct Draws {
    pub(super) stream: Stream,
    pub(super) below: Below,
}

impl Chunks<CHUNK> for Draws {
    const ALIGN: u64 = 4;

    #[inline(always)]
    fn make(&self, first: u64, rows: &mut [u64; CHUNK]) {
        let below = self.below;
        let [w0, w1, w2, w3] = self.stream.blocks(first >> 2);
        let mut again = 0;
        let words = w0.iter().zip(&w1).zip(w2.iter().zip(&w3));
        for (four, ((&w0, &w1), (&w2, &w3))) in rows.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            let ((r0, a0), (r1, a1)) = (below.split(w0), below.split(w1));
            let ((r2, a2), (r3, a3)) = (below.split(w2), below.split(w3));
            *four = [r0, r1, r2, r3];
            again |= a0 | a1 | a2 | a3;
        }
        if again >> 63 != 0 {
            self.repair(first, rows);
        }
    }
}

impl Draws {
    /// Draws again what the words of the first attempt did not give.
    #[cold]
    pub(super) fn repair(&self, first: u64, rows: &mut [u64; CHUNK]) {
        let [w0, w1, w2, w3] = self.stream.blocks(first >> 2);
        let words = w0.iter().zip(&w1).zip(w2.iter().zip(&w3));
        let words = words.flat_map(|((w0, w1), (w2, w3))| [w0, w1, w2, w3]);
        for (k, (&word, row)) in (first..).zip(words.zip(rows)) {
            if self.below.accept(word as u32).is_none() {
                *row = self.below.draw_from(&self.stream, k, 1).into();
            }
        }
    }
}

fn draw_wide(stream: &Stream, rows: u64, k: u64) -> u64 {
    let reject = rows.wrapping_neg() % rows.max(1);
    let mut attempt = 0;
    loop {
        let [w0, w1, w2, w3] = stream.block(k >> 1, attempt);
        let (low, high) = if k & 1 == 0 { (w0, w1) } else { (w2, w3) };
        let product = u128::from(u64::from(low) | u64::from(high) << 32) * u128::from(rows);
        if product as u64 >= reject {
            return (product >> 64) as u64;
        }
        attempt += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::testing::chi_square_z;

    const BOUNDS: [u64; 12] = [
        1,
        2,
        3,
        1000,
        65_537,
        1_281_167,
        (1 << 31) + 1,
        3 << 30,
        u32::MAX as u64,
        1 << 32,
        (1 << 33) + 1,
        (1 << 63) + 1,
    ];

    /// The definition, written as plainly as possible.
    fn naive(seed: u64, epoch: u32, rows: u64, k: u64) -> u64 {
        let stream = Stream::new(seed, epoch, Purpose::Uniform);
        for attempt in 0.. {
            let (word, bits) = if rows < 1 << 32 {
                (u128::from(stream.block(k / 4, attempt)[k as usize % 4]), 32)
            } else {
                let block = stream.block(k / 2, attempt);
                let at = k as usize % 2 * 2;
                let wide = u128::from(block[at]) + (u128::from(block[at + 1]) << 32);
                (wide, 64)
            };
            let range = 1u128 << bits;
            let product = word * u128::from(rows);
            if product % range >= range % u128::from(rows) {
                return (product / range) as u64;
            }
        }
        unreachable!()
    }

    #[test]
    fn batches_equal_the_definition_at_every_start_and_length() {
        for rows in BOUNDS {
            let expected: Vec<u64> = (0..400).map(|k| naive(5, 2, rows, k)).collect();
            for start in (0..70).chain([127, 128, 129]) {
                for length in [0, 1, 3, 63, 64, 65, 130, 200] {
                    let mut out = vec![u64::MAX; length];
                    fill(5, 2, rows, start as u64, &mut out);
                    assert_eq!(out, expected[start..start + length], "{rows} {start}");
                }
            }
            for (k, &row) in expected.iter().enumerate() {
                assert_eq!(draw(5, 2, rows, k as u64), row);
                assert!(row < rows);
            }
        }
    }

    #[test]
    fn every_processor_gets_the_same_rows() {
        for rows in [1, 1_000_003, 18_700_001, (1 << 31) + 1] {
            let draws = Draws {
                stream: Stream::new(5, 2, Purpose::Uniform),
                below: Below::new(rows),
            };
            for start in [0, 3, (1 << 34) - 40, u64::MAX - 2000] {
                let (mut portable, mut wide) = ([0; 1000], [1; 1000]);
                chunks::fill_portable(&draws, start, &mut portable);
                fill(5, 2, rows.into(), start, &mut wide);
                assert_eq!(portable, wide, "{rows} {start}");
            }
        }
    }

    #[test]
    fn a_single_rejected_word_of_a_batch_is_noticed_in_every_place() {
        // About one word in 230 is rejected, so that most batches that hold one hold no other.
        let (rows, below) = (18_700_001, Below::new(18_700_001));
        let stream = Stream::new(6, 0, Purpose::Uniform);
        let mut out = vec![0; 20_000];
        fill(6, 0, rows, 0, &mut out);
        let mut rejected = [0; 4];
        for (k, &row) in (0..).zip(&out) {
            assert_eq!(row, u64::from(below.draw(&stream, k)));
            let first = below.accept(pick(stream.block(k >> 2, 0), k));
            rejected[k as usize % 4] += u32::from(first.is_none());
        }
        assert!(
            rejected.iter().all(|&count| (5..100).contains(&count)),
            "{rejected:?}"
        );
    }

    #[test]
    fn far_positions_need_no_walk() {
        let start = (1 << 40) + 3;
        let mut out = [0; 100];
        fill(1, 0, 1_000_003, start, &mut out);
        for (k, row) in (start..).zip(out) {
            assert_eq!(row, naive(1, 0, 1_000_003, k));
        }
    }

    #[test]
    fn a_repeated_word_does_not_move_its_neighbours() {
        // Just over 2^31 rows nearly half of the words are drawn again; accepted first attempts stay where they are.
        let rows = (1u64 << 31) + 1;
        let stream = Stream::new(9, 0, Purpose::Uniform);
        let mut again = 0;
        for k in 0..1000u64 {
            let word = stream.block(k >> 2, 0)[k as usize % 4];
            match Below::new(rows as u32).accept(word) {
                Some(index) => assert_eq!(draw(9, 0, rows, k), u64::from(index)),
                None => again += 1,
            }
        }
        assert!((400..600).contains(&again), "{again}");
    }

    #[test]
    fn every_index_is_equally_likely_also_where_plain_scaling_is_not() {
        for rows in [6, 100, 1000] {
            let mut counts = vec![0u64; rows];
            let mut out = vec![0; 200_000];
            fill(11, 1, rows as u64, 0, &mut out);
            out.iter().for_each(|&row| counts[row as usize] += 1);
            let z = chi_square_z(&counts, &vec![1.0; rows]);
            assert!(z.abs() < 4.0, "{rows}: {z}");
        }
        // With 3 * 2^30 rows, scaling alone hits every third index twice as often as the others.
        let mut counts = [0u64; 3];
        let mut out = vec![0; 60_000];
        fill(11, 1, 3 << 30, 0, &mut out);
        out.iter().for_each(|&row| counts[row as usize % 3] += 1);
        let z = chi_square_z(&counts, &[1.0; 3]);
        assert!(z.abs() < 4.0, "{z}");
    }
}
