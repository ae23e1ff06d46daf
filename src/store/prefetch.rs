//! Tells the processor which memory is needed soon.

#![expect(unsafe_code, reason = "a prefetch takes a pointer")]

/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines after which the processor's own prefetcher has caught up.
const LINES_MAX: usize = 16;

/// Starts to load the first lines of `bytes` into the processor's cache. It changes nothing but time.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE).take(LINES_MAX) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads no value and faults on no address; this one lies inside `bytes` besides.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, LINE, LINES_MAX);
}
