//! Uniform draws for processors with AVX2, by hand: compilers put four vectors of words in order one word at a time, which
//! costs a third of the speed.
//!
//! Everything else that gains from AVX2 is the portable code compiled once more; see `chunks`.

#![expect(
    unsafe_code,
    reason = "vectors are stored through pointers, and only where the processor has them"
)]

use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_blend_epi32, _mm256_mul_epu32, _mm256_or_si256,
    _mm256_permute2x128_si256, _mm256_set1_epi64x, _mm256_setr_epi64x, _mm256_setzero_si256,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_sub_epi64, _mm256_testz_si256,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use super::chunks::Chunks;
use super::rng::{MULTIPLIER_0, MULTIPLIER_1};
use super::uniform::{CHUNK, Draws};

/// Draws on a processor with AVX2: there are none on others.
pub(super) struct Avx2Draws(Draws);

impl Avx2Draws {
    /// The same draws, where this processor has AVX2.
    #[inline]
    pub(super) fn new(draws: &Draws) -> Option<Self> {
        std::arch::is_x86_feature_detected!("avx2").then_some(Self(*draws))
    }
}

impl Chunks<CHUNK> for Avx2Draws {
    const ALIGN: u64 = 4;

    #[inline(always)]
    fn make(&self, first: u64, rows: &mut [u64; CHUNK]) {
        // SAFETY: `new` is the only way to a value of this type, and it found AVX2.
        let is_complete = unsafe { chunk(&self.0, first, rows) };
        if !is_complete {
            self.0.repair(first, rows);
        }
    }
}

/// The first attempt of a chunk; whether none of its draws has to be drawn again.
#[target_feature(enable = "avx2")]
#[inline]
fn chunk(draws: &Draws, first: u64, rows: &mut [u64; CHUNK]) -> bool {
    let (bound, reject) = draws.below.parts();
    let (bound, reject) = (all(bound.into()), all(reject.into()));
    let multipliers = (all(MULTIPLIER_0.into()), all(MULTIPLIER_1.into()));
    let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
    // Two vectors of blocks: one is a chain of products that wait for each other.
    let mut pair = [first >> 2, (first >> 2).wrapping_add(4)].map(|block| {
        let blocks = _mm256_add_epi64(all(block), lanes);
        let [.., c2, c3] = draws.stream.counter(0);
        [blocks, _mm256_srli_epi64(blocks, 32), all(c2), all(c3)]
    });
    for [k0, k1] in draws.stream.round_keys() {
        let (k0, k1) = (all(k0), all(k1));
        for words in &mut pair {
            let [c0, c1, c2, c3] = *words;
            let p0 = _mm256_mul_epu32(c0, multipliers.0);
            let p1 = _mm256_mul_epu32(c2, multipliers.1);
            let high0 = _mm256_srli_epi64(p0, 32);
            let high1 = _mm256_srli_epi64(p1, 32);
            *words = [
                _mm256_xor_si256(_mm256_xor_si256(c1, k0), high1),
                p1,
                _mm256_xor_si256(_mm256_xor_si256(c3, k1), high0),
                p0,
            ];
        }
    }
    let mut again = _mm256_setzero_si256();
    for (words, rows) in pair.into_iter().zip(rows.as_chunks_mut::<16>().0) {
        let products = words.map(|words| _mm256_mul_epu32(words, bound));
        for product in products {
            let low = _mm256_blend_epi32::<0b1010_1010>(product, _mm256_setzero_si256());
            again = _mm256_or_si256(again, _mm256_sub_epi64(low, reject));
        }
        weave(products.map(|product| _mm256_srli_epi64(product, 32)), rows);
    }
    _mm256_testz_si256(again, all(1 << 63)) == 1
}

/// Four equal lanes.
#[target_feature(enable = "avx2")]
#[inline]
fn all(lane: u64) -> __m256i {
    _mm256_set1_epi64x(lane.cast_signed())
}

/// Puts lane `i` of word `w` at place `4 * i + w`.
#[target_feature(enable = "avx2")]
#[inline]
fn weave([w0, w1, w2, w3]: [__m256i; 4], out: &mut [u64; 16]) {
    let (even01, odd01) = (_mm256_unpacklo_epi64(w0, w1), _mm256_unpackhi_epi64(w0, w1));
    let (even23, odd23) = (_mm256_unpacklo_epi64(w2, w3), _mm256_unpackhi_epi64(w2, w3));
    let woven = [
        _mm256_permute2x128_si256::<0x20>(even01, even23),
        _mm256_permute2x128_si256::<0x20>(odd01, odd23),
        _mm256_permute2x128_si256::<0x31>(even01, even23),
        _mm256_permute2x128_si256::<0x31>(odd01, odd23),
    ];
    for (out, lane) in out.as_chunks_mut::<4>().0.iter_mut().zip(woven) {
        // SAFETY: `out` is four numbers of 64 bits that nothing else refers to: room for the vector. The store asks for no
        // alignment.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), lane) };
    }
}
