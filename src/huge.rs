//! Tables in huge pages. The processor remembers where few pages lie, so that a large table is read faster at random places:
//! weighted draws from ten million rows took 17 ns instead of 21 each on the machine of `docs/benchmarks.md`.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "advice about memory takes a pointer")
)]

use crate::error::{CacheError, Result};

/// Bytes of a huge page; what is smaller gains nothing.
#[cfg(any(target_os = "linux", test))]
const HUGE: usize = 2 << 20;

/// The `len` values of an iterator, in huge pages where the system has them.
///
/// # Errors
/// [`CacheError::Memory`] if there is not enough of it.
pub fn boxed<T>(len: usize, values: impl Iterator<Item = T>) -> Result<Box<[T]>> {
    let mut table = Vec::new();
    let outcome = table.try_reserve_exact(len);
    let bytes = len.saturating_mul(size_of::<T>());
    outcome.map_err(|_| CacheError::memory("a table of weights", bytes))?;
    advise(&mut table);
    table.extend(values);
    Ok(table.into_boxed_slice())
}

/// Asks for huge pages for the whole capacity. They are wanted, not needed.
#[cfg(target_os = "linux")]
fn advise<T>(table: &mut Vec<T>) {
    let bytes = table.capacity().saturating_mul(size_of::<T>());
    let page = rustix::param::page_size();
    let start = table.as_mut_ptr().cast::<u8>();
    let to_page = start.align_offset(page);
    if bytes >= HUGE && to_page < bytes {
        let whole = (bytes - to_page) / page * page;
        // SAFETY: the range is of whole pages of memory that the table owns; the advice changes none of its bytes.
        unsafe { libc::madvise(start.add(to_page).cast(), whole, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_table: &mut Vec<T>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_iterator_whatever_was_promised() {
        for len in [0, 1, 1000, HUGE / 8 - 1, HUGE / 8, 3 * HUGE / 8 + 5] {
            let values = || (0..len as u64).map(|n| n * n);
            let expected: Box<[u64]> = values().collect();
            for promised in [len, len / 2, len + 7] {
                assert_eq!(boxed(promised, values()).unwrap(), expected);
            }
        }
    }

    #[test]
    fn a_table_that_is_larger_than_memory_is_refused() {
        for len in [usize::MAX, isize::MAX as usize / 8] {
            let outcome = boxed(len, std::iter::empty::<u64>());
            assert!(matches!(outcome, Err(CacheError::Memory { .. })));
        }
    }
}
