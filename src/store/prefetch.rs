//! Tells the processor which memory is needed soon.

#![expect(unsafe_code, reason = "a prefetch takes a pointer")]

/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines at the start after which the processor's own prefetcher has caught up.
const FIRST_LINES: usize = 16;
/// Bytes of which all lines are asked for, and none twice.
const SHORT: usize = 1024;
/// Bytes of a page, at whose end the processor's own prefetcher stops.
const PAGE: usize = 4096;
/// Lines of each further page.
const PAGE_LINES: usize = 2;
/// Pages that are prepared at most.
const PAGES_MAX: usize = 16;

/// Starts to load the first lines of `bytes`, and of each page that they reach into, into the processor's cache. It changes
/// nothing but time.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    if bytes.len() <= SHORT {
        let to_next_line = LINE - bytes.as_ptr() as usize % LINE;
        let others = bytes.get(to_next_line..).unwrap_or_default();
        line(bytes);
        return others.chunks(LINE).for_each(line);
    }
    bytes.chunks(LINE).take(FIRST_LINES).for_each(line);
    let first_page = PAGE - bytes.as_ptr() as usize % PAGE;
    let others = bytes.get(first_page..).unwrap_or_default();
    for page in others.chunks(PAGE).take(PAGES_MAX) {
        page.chunks(LINE).take(PAGE_LINES).for_each(line);
    }
}

#[inline]
fn line(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads no value and faults on no address; this one is that of `bytes` besides.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}
