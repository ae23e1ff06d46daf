//! Where gathered values go: one destination per column, filled row by row from front to back.

use crate::error::{CacheError, Result};

/// Lengths of the values of a column, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lens<'a> {
    /// All of this length.
    Fixed(usize),
    /// Value `i` lies between offsets `i` and `i + 1`.
    Between(&'a [u64]),
}

/// The part of a column that one thread fills.
#[derive(Debug)]
pub(super) struct Target<'a> {
    rest: &'a mut [u8],
    lens: Lens<'a>,
    row: usize,
}

impl<'a> Target<'a> {
    /// A destination for values of these lengths.
    ///
    /// # Errors
    /// [`CacheError::Internal`] if `out` has not exactly that many bytes for `rows` values.
    pub fn new(out: &'a mut [u8], lens: Lens<'a>, rows: usize) -> Result<Self> {
        let wanted = match lens {
            Lens::Fixed(len) => len.checked_mul(rows),
            Lens::Between(offsets) => offsets.last().map(|end| *end as usize),
        };
        if wanted != Some(out.len()) {
            return Err(CacheError::internal("a destination of another length"));
        }
        Ok(Self {
            rest: out,
            lens,
            row: 0,
        })
    }

    /// Takes the next `rows` rows off the front, for another thread.
    pub fn split_front(&mut self, rows: usize) -> Result<Self> {
        let fault = || CacheError::internal("a destination with fewer rows");
        let (len, lens) = match self.lens {
            Lens::Fixed(len) => (len.saturating_mul(rows), self.lens),
            Lens::Between(offsets) => {
                let own = offsets.get(self.row..=self.row + rows).ok_or_else(fault)?;
                let ends = own.first().zip(own.last()).ok_or_else(fault)?;
                ((ends.1 - ends.0) as usize, Lens::Between(own))
            }
        };
        let (front, rest) = std::mem::take(&mut self.rest)
            .split_at_mut_checked(len)
            .ok_or_else(fault)?;
        self.rest = rest;
        self.row += rows;
        Ok(Self {
            rest: front,
            lens,
            row: 0,
        })
    }

    /// The next `rows` rows, which stay where they are.
    pub fn front(&mut self, rows: usize) -> Result<Target<'_>> {
        let mut whole = Target {
            rest: &mut *self.rest,
            lens: self.lens,
            row: self.row,
        };
        whole.split_front(rows)
    }

    /// The places of the values that are left, if these have one length and are not empty.
    pub fn values(&mut self) -> Option<std::slice::ChunksExactMut<'_, u8>> {
        match self.lens {
            Lens::Fixed(len) if len > 0 => Some(self.rest.chunks_exact_mut(len)),
            Lens::Fixed(_) | Lens::Between(_) => None,
        }
    }

    /// The place of the next value, which must be `len` bytes long; `None` for one of another length.
    #[inline]
    pub fn next(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.next_len() != Some(len) {
            return None;
        }
        let (front, rest) = std::mem::take(&mut self.rest).split_at_mut_checked(len)?;
        self.rest = rest;
        self.row += 1;
        Some(front)
    }

    /// Length of the next value, in bytes.
    #[inline]
    pub fn next_len(&self) -> Option<usize> {
        match self.lens {
            Lens::Fixed(len) => Some(len),
            Lens::Between(offsets) => match offsets.get(self.row..self.row + 2) {
                Some([start, end]) => Some((end - start) as usize),
                _ => None,
            },
        }
    }
}

/// Takes the next `rows` rows off the front of every column.
pub(super) fn split_fronts<'a>(targets: &mut [Target<'a>], rows: usize) -> Result<Vec<Target<'a>>> {
    let fronts = targets.iter_mut().map(|target| target.split_front(rows));
    fronts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_whole_without_a_gap() {
        let offsets = [0, 2, 2, 5, 6];
        for (lens, total) in [(Lens::Between(&offsets), 6), (Lens::Fixed(3), 12)] {
            let mut out = vec![0; total];
            let mut whole = Target::new(&mut out, lens, 4).unwrap();
            let mut front = whole.split_front(1).unwrap();
            let mut middle = whole.split_front(2).unwrap();
            let lens_in_order = match lens {
                Lens::Between(_) => [2, 0, 3, 1],
                Lens::Fixed(len) => [len; 4],
            };
            for (value, len) in lens_in_order.into_iter().enumerate() {
                let part = match value {
                    0 => &mut front,
                    1 | 2 => &mut middle,
                    _ => &mut whole,
                };
                part.next(len).unwrap().fill(value as u8 + 1);
            }
            let expected: Vec<u8> = match lens {
                Lens::Fixed(_) => vec![1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4],
                Lens::Between(_) => vec![1, 1, 3, 3, 3, 4],
            };
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn a_value_of_another_length_is_refused() {
        let mut out = vec![0; 6];
        let mut target = Target::new(&mut out, Lens::Fixed(3), 2).unwrap();
        assert!(target.next(2).is_none());
        assert!(target.next(3).is_some());
        assert!(Target::new(&mut [0; 5], Lens::Fixed(3), 2).is_err());
    }
}
