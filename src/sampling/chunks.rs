//! Fills slices of numbers chunk by chunk, with the widest vectors that the processor has.
//!
//! The loop is compiled twice: for every processor, and for those with AVX2, which a portable build may not assume. It
//! is the same safe code, and the numbers are the same; only the instructions differ.

#![expect(
    unsafe_code,
    reason = "code for instructions that a processor may lack may only be called after a look"
)]

/// Numbers that are made `N` at a time.
pub(super) trait Chunks<const N: usize> {
    /// What the place of a chunk's first number is a multiple of: a power of two, and a divisor of `N`.
    const ALIGN: u64;

    /// Makes the numbers at places from `first` on.
    ///
    /// This has to be `#[inline(always)]`, and so has everything in it that shall gain from wide vectors: a function that
    /// is called, even a closure, stays compiled for every processor.
    fn make(&self, first: u64, out: &mut [u64; N]);
}

/// Fills `out` with the numbers at places from `start` on.
#[inline]
pub(super) fn fill<const N: usize>(chunks: &impl Chunks<N>, start: u64, out: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: all that `fill_avx2` asks for is a processor with AVX2, and this one was just found to be one.
        unsafe { fill_avx2(chunks, start, out) };
        return;
    }
    fill_portable(chunks, start, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2<const N: usize>(chunks: &impl Chunks<N>, start: u64, out: &mut [u64]) {
    fill_portable(chunks, start, out);
}

#[inline(always)]
pub(super) fn fill_portable<const N: usize, C: Chunks<N>>(chunks: &C, start: u64, out: &mut [u64]) {
    let mut skip = (start & (C::ALIGN - 1)) as usize;
    let mut first = start - skip as u64;
    let mut rest = out;
    while !rest.is_empty() {
        if skip == 0 {
            let (whole, last) = rest.as_chunks_mut();
            for chunk in whole {
                chunks.make(first, chunk);
                first = first.wrapping_add(N as u64);
            }
            rest = last;
        }
        let mut made = [0; N];
        if !rest.is_empty() {
            chunks.make(first, &mut made);
            first = first.wrapping_add(N as u64);
        }
        let usable = made.get(skip..).unwrap_or_default();
        let (now, later) = rest.split_at_mut(usable.len().min(rest.len()));
        for (number, &made) in now.iter_mut().zip(usable) {
            *number = made;
        }
        rest = later;
        skip = 0;
    }
}
