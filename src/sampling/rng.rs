//! Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11) as a function from
//! (seed, epoch, purpose, block, attempt) to four words.
//!
//! The layout is pinned for ever. Key: low and high half of the seed. Counter words: 0 and 1 the low and high half of
//! the block number, 2 the epoch, 3 the attempt in its low 24 bits and the purpose in its high 8. A draw that has to be
//! repeated raises the attempt, so no draw ever moves another one.

#![forbid(unsafe_code)]

pub(super) const MULTIPLIER_0: u32 = 0xD251_1F53;
pub(super) const MULTIPLIER_1: u32 = 0xCD9E_8D57;
const WEYL_0: u32 = 0x9E37_79B9;
const WEYL_1: u32 = 0xBB67_AE85;
const ROUNDS: usize = 10;

/// Blocks that [`Stream::blocks`] makes: two vectors of each word on most processors.
pub(super) const BLOCKS: usize = 8;

const ATTEMPT_MASK: u32 = 0x00FF_FFFF;

/// What random words are used for. Each purpose has its own words; the numbers are part of the pinned layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// Rows drawn with equal probability.
    Uniform = 1,
    /// Rows drawn by weight.
    Weighted = 2,
    /// Keys and exact indices of permutations.
    Permutation = 3,
    /// Where systematic rounding starts.
    QuotaOffset = 4,
    /// The generator handed to user code for one sample.
    Sample = 5,
    /// Rows drawn in the place of damaged ones.
    Substitute = 6,
}

/// Philox4x32-10 of one counter under one key, as published.
#[inline(always)]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..ROUNDS {
        let p0 = u64::from(c0) * u64::from(MULTIPLIER_0);
        let p1 = u64::from(c2) * u64::from(MULTIPLIER_1);
        (c0, c1, c2, c3) = (
            (p1 >> 32) as u32 ^ c1 ^ k0,
            p1 as u32,
            (p0 >> 32) as u32 ^ c3 ^ k1,
            p0 as u32,
        );
        k0 = k0.wrapping_add(WEYL_0);
        k1 = k1.wrapping_add(WEYL_1);
    }
    [c0, c1, c2, c3]
}

/// The random words of one (seed, epoch, purpose), addressed by block and attempt.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: [u32; 2],
    epoch: u32,
    purpose: u32,
}

impl Stream {
    /// The words of `purpose` in `epoch` under `seed`.
    #[inline]
    pub fn new(seed: u64, epoch: u32, purpose: Purpose) -> Self {
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            epoch,
            purpose: u32::from(purpose as u8) << 24,
        }
    }

    /// The four words of a block; only the low 24 bits of `attempt` count.
    #[inline]
    pub fn block(&self, block: u64, attempt: u32) -> [u32; 4] {
        let last = self.purpose | (attempt & ATTEMPT_MASK);
        philox(
            [block as u32, (block >> 32) as u32, self.epoch, last],
            self.key,
        )
    }

    /// The counter of the first attempt of a block; only low halves count.
    #[inline(always)]
    pub(super) fn counter(&self, block: u64) -> [u64; 4] {
        [block, block >> 32, self.epoch.into(), self.purpose.into()]
    }

    /// The keys of all rounds.
    #[inline(always)]
    pub(super) fn round_keys(&self) -> [[u64; 2]; ROUNDS] {
        let mut keys = [[0; 2]; ROUNDS];
        let [mut k0, mut k1] = self.key;
        for key in &mut keys {
            *key = [k0.into(), k1.into()];
            k0 = k0.wrapping_add(WEYL_0);
            k1 = k1.wrapping_add(WEYL_1);
        }
        keys
    }

    /// The first attempt of consecutive blocks, word by word: the low half of element `[w][i]` is word `w` of block
    /// `first + i`. High halves hold what the rounds leave there.
    ///
    /// Words stand alone in 64-bit lanes, because a product of two words fills one: nothing is moved between lanes then.
    /// One plain loop, the rounds inside, is the form that the compiler turns into vector code; of two blocks each time,
    /// because one is a chain of products that wait for each other.
    #[inline(always)]
    pub(super) fn blocks(&self, first: u64) -> [[u64; BLOCKS]; 4] {
        let keys = self.round_keys();
        let mut words = [[0; BLOCKS]; 4];
        let [w0, w1, w2, w3] = &mut words;
        let (near0, far0) = w0.split_at_mut(BLOCKS / 2);
        let (near1, far1) = w1.split_at_mut(BLOCKS / 2);
        let (near2, far2) = w2.split_at_mut(BLOCKS / 2);
        let (near3, far3) = w3.split_at_mut(BLOCKS / 2);
        let near = near0.iter_mut().zip(near1).zip(near2.iter_mut().zip(near3));
        let far = far0.iter_mut().zip(far1).zip(far2.iter_mut().zip(far3));
        for (lane, (near, far)) in (0..).zip(near.zip(far)) {
            let block = first.wrapping_add(lane);
            let other = block.wrapping_add(BLOCKS as u64 / 2);
            let mut pair = [self.counter(block), self.counter(other)];
            for &[k0, k1] in &keys {
                for words in &mut pair {
                    let [c0, c1, c2, c3] = *words;
                    let p0 = low(c0) * u64::from(MULTIPLIER_0);
                    let p1 = low(c2) * u64::from(MULTIPLIER_1);
                    *words = [(p1 >> 32) ^ c1 ^ k0, p1, (p0 >> 32) ^ c3 ^ k1, p0];
                }
            }
            let ((near0, near1), (near2, near3)) = near;
            let ((far0, far1), (far2, far3)) = far;
            [
                [*near0, *near1, *near2, *near3],
                [*far0, *far1, *far2, *far3],
            ] = pair;
        }
        words
    }
}

/// The low half of a lane.
#[inline(always)]
pub(super) fn low(lane: u64) -> u64 {
    lane & 0xFFFF_FFFF
}

/// 128 random bits that belong to one position of an epoch, for user code that augments that sample.
pub fn sample_bits(seed: u64, epoch: u32, position: u64) -> [u32; 4] {
    Stream::new(seed, epoch, Purpose::Sample).block(position, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors published with the algorithm's reference implementation.
    #[test]
    fn published_vectors_hold() {
        assert_eq!(
            philox([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn batches_equal_single_blocks_also_across_the_carry_into_the_high_word() {
        for first in [0, 1, 7, (1 << 32) - 5, u64::MAX - 3] {
            for purpose in [Purpose::Uniform, Purpose::Sample] {
                let stream = Stream::new(0x0123_4567_89ab_cdef, 0xdead_beef, purpose);
                let words = stream.blocks(first);
                for index in 0..BLOCKS as u64 {
                    let single = stream.block(first.wrapping_add(index), 0);
                    for (word, &expected) in single.iter().enumerate() {
                        let found = words[word][index as usize] as u32;
                        assert_eq!(found, expected, "{first} {index} {word}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_input_has_its_own_place_in_the_counter() {
        let stream = Stream::new(7, 3, Purpose::Weighted);
        assert_eq!(
            stream.block(0x1_0000_0002, 5),
            philox([2, 1, 3, 0x0200_0005], [7, 0])
        );
        assert_eq!(
            Stream::new(7 << 32, 3, Purpose::Permutation).block(0, 0),
            philox([0, 0, 3, 0x0300_0000], [0, 7])
        );
        assert_eq!(stream.block(9, 1 << 24), stream.block(9, 0));
        assert_eq!(sample_bits(1, 2, 3), philox([3, 0, 2, 0x0500_0000], [1, 0]));
    }
}
